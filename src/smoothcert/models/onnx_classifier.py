"""An ONNX file as a base classifier, computed by onnxruntime."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.models.adapter import AnswerAdapter
from smoothcert.models.backends import ONNXRUNTIME
from smoothcert.models.devices import usable_cores
from smoothcert.models.digests import file_digest, text_digest
from smoothcert.models.onnx_session import device_kind, external_files, open_session
from smoothcert.models.original import OneRow
from smoothcert.models.scores import decide_rule
from smoothcert.models.votes import resolve_num_classes
from smoothcert.records import InputArray

_LARGEST_FIXED_BATCH = 2**28


class OnnxClassifier(AnswerAdapter):
    """One float32 input (B, …) and an output of logits (B, K), or of int64 labels (B,) as scikit-learn converters
    write it. If a file has several outputs, the first of shape (B, K) is used, else the first of labels.

    A file exported for a fixed batch size works: batches are split, and the last one is padded. On the CPU any number
    of threads may call `classify`, each on one core. `original` computes the operations of the file without
    onnxruntime's optimisations. Scores are the softmax of the logits, or the outputs themselves if they are
    probabilities (`scores_are`).
    """

    backend_name = ONNXRUNTIME
    name = "the ONNX model"

    def __init__(
        self,
        path: Path,
        *,
        num_classes: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        device: str = "auto",
    ) -> None:
        kind = device_kind(device)
        # Before anything is loaded: a model may name files outside its folder.
        beside = external_files(path) if path.is_file() else []
        self._session = open_session(path, name=str(path), device=device)
        entry = _single_input(self._session, path)
        self._input_name = entry.name
        self._fixed_batch, self.input_shape = _input_shape(entry.shape, input_shape, path)
        output = _choose_output(self._session, path)
        self._output_name = output.name
        self.gives_scores = _is_logits(output)
        self.backend = f"{ONNXRUNTIME} {kind}"
        is_declared = len(output.shape) == 2 and isinstance(output.shape[1], int)
        self.num_classes = resolve_num_classes(output.shape[1] if is_declared else self._count_classes(), num_classes)
        self.scores_are = decide_rule(self._logits, input_shape=self.input_shape if self.gives_scores else None)
        self.description = f"ONNX {path.name}, {self.num_classes} classes{self.scores_are.note}"
        weights = [text for file in beside for text in (file.relative_to(path.parent).as_posix(), file_digest(file))]
        self.digest = text_digest(self.backend + self.scores_are.note, self._output_name, file_digest(path), *weights)
        self.concurrency = usable_cores() if kind == "cpu" else 1
        plain = copy.copy(self)
        plain._session = open_session(path, name=str(path), device=device, optimise=False)
        self.original = OneRow(plain)

    def _answer(self, batch: InputArray, /) -> np.ndarray[Any, Any]:
        if self._fixed_batch is None:
            return self._run(batch)
        size = self._fixed_batch
        padded = np.zeros((-(-len(batch) // size) * size, *batch.shape[1:]), dtype=np.float32)
        padded[: len(batch)] = batch
        parts = [self._run(padded[start : start + size]) for start in range(0, len(padded), size)]
        return np.concatenate(parts)[: len(batch)]

    def _run(self, batch: InputArray) -> np.ndarray[Any, Any]:
        try:
            answer = self._session.run([self._output_name], {self._input_name: batch})[0]
        except Exception as error:  # onnxruntime raises its own unrelated classes
            raise ModelError(f"the ONNX model failed on a float32 batch of shape {batch.shape}: {error}") from error
        return np.asarray(answer)


def _single_input(session: Any, path: Path) -> Any:
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type != "tensor(float)":
        found = ", ".join(f"{entry.name}: {entry.type}" for entry in inputs) or "none"
        raise ModelError(f"{path} takes the inputs [{found}]; expected a single tensor(float), the batch")
    return inputs[0]


def _input_shape(
    declared: list[int | str | None], given: tuple[int, ...] | None, path: Path
) -> tuple[int | None, tuple[int, ...] | None]:
    """(fixed batch size or None, shape of one input or None), from the file and the caller."""
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


def _choose_output(session: Any, path: Path) -> Any:
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
