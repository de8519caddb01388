"""An ONNX file as a base classifier, computed by onnxruntime."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.models.devices import usable_cores
from smoothcert.models.digests import file_digest, text_digest
from smoothcert.models.onnx_external import external_files
from smoothcert.models.onnx_session import device_kind, open_session
from smoothcert.models.original import OneRow
from smoothcert.models.scores import decided_rule
from smoothcert.models.votes import check_batch, check_logits_shape, known_num_classes, votes_from_answer
from smoothcert.records import FloatArray, InputArray, IntArray

_LARGEST_FIXED_BATCH = 2**28


class OnnxClassifier:
    """One float32 input of shape (B, …), and an output of logits (B, K), or of labels (B,) int64 as
    converters of scikit-learn models write it. Where a file has several outputs, the first of shape (B, K) is
    taken, then the first of labels.

    A file exported for one fixed batch size works: batches are cut, and the last one is filled up. On the
    processor any number of threads may call `classify`; each works on one core. `original` computes the operations of
    the file as they stand there, without onnxruntime's optimisations. Scores are the softmax of the
    logits, or the outputs themselves where they are probabilities (`scores_are`).
    """

    def __init__(
        self,
        path: Path,
        *,
        num_classes: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        device: str = "auto",
    ) -> None:
        kind = device_kind(device)
        # Before anything is loaded: a model may name files that are none of its business.
        beside = external_files(path) if path.is_file() else []
        self._session = open_session(path, name=str(path), device=device)
        entry = _single_input(self._session, path)
        self._input_name = entry.name
        self._fixed_batch, self.input_shape = _input_shape(entry.shape, input_shape, path)
        output = _chosen_output(self._session, path)
        self._output_name = output.name
        self.gives_scores = _is_logits(output)
        self.backend = f"onnxruntime {kind}"
        self.num_classes = known_num_classes(self._found_num_classes(output), num_classes)
        self.scores_are = decided_rule(self._answer, input_shape=self.input_shape if self.gives_scores else None)
        self.description = f"ONNX {path.name}, {self.num_classes} classes{self.scores_are.note}"
        weights = [text for file in beside for text in (file.relative_to(path.parent).as_posix(), file_digest(file))]
        self.digest = text_digest(self.backend + self.scores_are.note, self._output_name, file_digest(path), *weights)
        self.concurrency = usable_cores() if kind == "cpu" else 1
        plain = copy.copy(self)
        plain._session = open_session(path, name=str(path), device=device, optimise=False)
        self.original = OneRow(plain)

    def classify(self, batch: InputArray, /) -> IntArray:
        check_batch(batch, self.input_shape)
        return votes_from_answer(self._answer(batch), batch_size=len(batch), num_classes=self.num_classes)

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        check_batch(batch, self.input_shape)
        logits = self._answer(batch)
        check_logits_shape(logits.shape, batch_size=len(batch), num_classes=self.num_classes)
        return self.scores_are.votes_and_scores(logits)

    def prepare_thread(self) -> None:
        """Nothing to prepare: the session was opened with one thread for each call."""

    def release_threads(self) -> None:
        """Nothing to undo."""

    def _answer(self, batch: InputArray) -> np.ndarray[Any, Any]:
        if self._fixed_batch is None:
            return self._run(batch)
        size = self._fixed_batch
        filled = np.zeros((-(-len(batch) // size) * size, *batch.shape[1:]), dtype=np.float32)
        filled[: len(batch)] = batch
        parts = [self._run(filled[start : start + size]) for start in range(0, len(filled), size)]
        return np.concatenate(parts)[: len(batch)]

    def _run(self, batch: InputArray) -> np.ndarray[Any, Any]:
        try:
            answer = self._session.run([self._output_name], {self._input_name: batch})[0]
        except Exception as error:  # onnxruntime raises its own unrelated classes
            raise ModelError(f"the ONNX model failed on a float32 batch of shape {batch.shape}: {error}") from error
        return np.asarray(answer)

    def _found_num_classes(self, output: Any) -> int | None:
        """From the declared output shape, else by trying two zero inputs; None where labels come back."""
        if len(output.shape) == 2 and isinstance(output.shape[1], int):
            return output.shape[1]
        if self.input_shape is None:
            return None
        answer = self._answer(np.zeros((2, *self.input_shape), dtype=np.float32))
        return answer.shape[1] if answer.ndim == 2 else None


def _single_input(session: Any, path: Path) -> Any:
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type != "tensor(float)":
        found = ", ".join(f"{entry.name}: {entry.type}" for entry in inputs) or "none"
        raise ModelError(f"{path} takes the inputs [{found}]; expected a single tensor(float), the batch")
    return inputs[0]


def _input_shape(
    declared: list[int | str | None], given: tuple[int, ...] | None, path: Path
) -> tuple[int | None, tuple[int, ...] | None]:
    """(fixed batch size or None, shape of one input or None), from what the file declares and the caller
    says.
    """
    if not declared:
        return None, given
    fixed_batch = declared[0] if isinstance(declared[0], int) else None
    cells = math.prod(size for size in declared if isinstance(size, int))
    if fixed_batch is not None and not 1 <= cells <= _LARGEST_FIXED_BATCH:
        raise ModelError(
            f"{path} was exported for batches of shape {declared}, {cells:,} numbers; expected 1 … "
            f"{_LARGEST_FIXED_BATCH:,}, or a batch size left open, which is best"
        )
    rest = declared[1:]
    if given is None:
        sizes = [size for size in rest if isinstance(size, int)]
        return fixed_batch, tuple(sizes) if len(sizes) == len(rest) else None
    agrees = len(given) == len(rest) and all(
        size == wanted for size, wanted in zip(given, rest, strict=True) if isinstance(wanted, int)
    )
    if not agrees:
        raise ModelError(f"{path} takes inputs of shape {rest}, not {given}")
    return fixed_batch, given


def _chosen_output(session: Any, path: Path) -> Any:
    outputs = session.get_outputs()
    logits = [entry for entry in outputs if _is_logits(entry)]
    labels = [entry for entry in outputs if entry.type == "tensor(int64)" and len(entry.shape) == 1]
    if not logits and not labels:
        found = ", ".join(f"{entry.name}: {entry.type} {entry.shape}" for entry in outputs)
        raise ModelError(
            f"{path} gives the outputs [{found}]; expected float logits (batch, classes) or int64 labels (batch)"
        )
    return (logits or labels)[0]


def _is_logits(output: Any) -> bool:
    return output.type in ("tensor(float)", "tensor(double)") and len(output.shape) == 2
