"""Torch modules as base classifiers computed by onnxruntime."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from smoothcert.errors import BatchTooLargeError, InputError, ModelError
from smoothcert.models.backends import FROM_TORCH, ONNXRUNTIME
from smoothcert.models.devices import usable_cores
from smoothcert.models.freezing import check_batches, exported_program, same_logits, summary
from smoothcert.models.module_digest import module_digest
from smoothcert.models.onnx_export import INPUT, OUTPUT, exported
from smoothcert.models.onnx_session import device_kind, open_session
from smoothcert.models.scores import decided_rule
from smoothcert.models.stock_modules import is_stock
from smoothcert.models.torch_classifier import (
    checked_original,
    described,
    filled_up,
    private_copy,
    tried_num_classes,
)
from smoothcert.models.torch_original import FloatingArray, check_no_autocast, floating_dtypes
from smoothcert.models.votes import check_batch, check_logits_shape, known_num_classes, votes_from_logits
from smoothcert.records import FloatArray, InputArray, IntArray


class ExportedClassifier:
    """A torch module, written as ONNX and computed by onnxruntime; the caller's module is copied, never changed.

    The module must be float32 and one graph, whatever the values (`freezing`), and its logits must agree with the
    module's, within the rounding errors a frozen graph is allowed too; otherwise a ModelError says so. Batches are
    filled up as `TorchClassifier` does. On the processor any number of threads may call `classify`; each works on one
    core. Scores are as in `TorchClassifier`. `original` is the caller's own object.
    """

    gives_scores = True

    def __init__(
        self,
        module: nn.Module,
        *,
        num_classes: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        device: str = "auto",
    ) -> None:
        if input_shape is None:
            raise InputError("the back end onnxruntime must know the shape of an input: give input_shape")
        check_no_autocast()
        network = private_copy(module, torch.device("cpu"))
        program = _checked_program(network, input_shape)
        self.input_shape: tuple[int, ...] | None = input_shape
        self.num_classes = known_num_classes(tried_num_classes(network, input_shape), num_classes)
        self.original = checked_original(
            module, network, num_classes=self.num_classes, input_shape=input_shape, input_dtype=torch.float32
        )
        kind = device_kind(device)
        self.backend = f"{ONNXRUNTIME} {kind} {FROM_TORCH}"
        self.concurrency = usable_cores() if kind == "cpu" else 1
        self._session = open_session(exported(network, input_shape), name="the exported model", device=device)
        if not same_logits(network, self._forward, check_batches(input_shape)):
            raise ModelError(
                "the model computed by onnxruntime gives other logits than torch; use the back end torch for it"
            )
        self.scores_are = self.original.scores_are = decided_rule(self._logits, input_shape=input_shape)
        self.description = described(module, self.num_classes) + self.scores_are.note
        self.digest = module_digest(network, backend=self.backend + self.scores_are.note, program=program)

    def classify(self, batch: InputArray, /) -> IntArray:
        return votes_from_logits(self._logits(batch))

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        return self.scores_are.votes_and_scores(self._logits(batch))

    def prepare_thread(self) -> None:
        """Nothing to prepare: the session was opened with one thread for each call."""

    def release_threads(self) -> None:
        """Nothing to undo."""

    def _logits(self, batch: InputArray) -> FloatingArray:
        check_batch(batch, self.input_shape)
        logits = self._run(filled_up(batch))[: len(batch)]
        check_logits_shape(logits.shape, batch_size=len(batch), num_classes=self.num_classes)
        return logits

    def _forward(self, batch: Tensor) -> Tensor:
        return torch.from_numpy(self._run(batch.numpy()))

    def _run(self, batch: InputArray) -> FloatingArray:
        try:
            return cast(FloatingArray, np.asarray(self._session.run([OUTPUT], {INPUT: batch})[0]))
        except Exception as error:  # onnxruntime raises its own unrelated classes
            if "alloc" in str(error).lower():
                raise BatchTooLargeError(
                    f"a batch of {len(batch)} does not fit in memory; use a smaller --batch"
                ) from error
            raise ModelError(
                f"the model failed in onnxruntime on a float32 batch of shape {batch.shape}: {error}"
            ) from error


def _checked_program(network: nn.Module, input_shape: tuple[int, ...]) -> ExportedProgram | None:
    """The module as one graph, None where it is known to be one.

    ModelError for a module that an ONNX file would not be the same function as.
    """
    other = [dtype for dtype in floating_dtypes(network) if dtype is not torch.float32]
    if other:
        kind = str(other[0]).removeprefix("torch.")
        raise ModelError(
            f"the model has {kind} values, and the back end onnxruntime computes in float32 only: use the back end "
            "torch, which keeps the precision, or convert the model yourself"
        )
    if is_stock(network):
        return None
    try:
        return exported_program(network, input_shape, input_dtype=torch.float32)
    except Exception as error:  # whatever export or the user's code may raise
        raise ModelError(
            "the back end onnxruntime needs a model that is one graph, whatever the values of its input, and "
            f"torch.export cannot write this one down ({summary(error)}): use the back end torch"
        ) from error
