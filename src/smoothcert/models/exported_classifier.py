"""Torch modules as base classifiers computed by onnxruntime."""

from __future__ import annotations

import copy
import io
import warnings
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from smoothcert.errors import BatchTooLargeError, InputError, MissingExtraError, ModelError
from smoothcert.models.backends import ONNXRUNTIME
from smoothcert.models.devices import usable_cores
from smoothcert.models.freezing import check_batches, export_program, is_stock, same_logits, summarise_error
from smoothcert.models.onnx_session import device_kind, open_session
from smoothcert.models.onnx_simplify import simplify
from smoothcert.models.torch_classifier import TorchAdapter, pad_batch, private_copy
from smoothcert.models.torch_original import check_no_autocast, dtype_name, floating_dtypes
from smoothcert.models.votes import FloatingArray, check_batch, check_logits_shape
from smoothcert.records import InputArray

INPUT, OUTPUT = "inputs", "logits"
"""Names of the input, (batch, *input_shape), and the output, (batch, num_classes)."""

_OPSET = 17
_EXAMPLE_ROWS = 16


class ExportedClassifier(TorchAdapter):
    """A torch module, exported to ONNX and computed by onnxruntime.

    The module must be float32 and one graph for all input values (`freezing`), and its logits must agree with those of
    the module, within the rounding error that a frozen graph may have too; otherwise ModelError. Batches are padded as
    in `TorchClassifier`. On the CPU any number of threads may call `classify`, each on one core.
    """

    backend_name = ONNXRUNTIME

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
        program = _export_program(network, input_shape)
        self._adopt(module, network, num_classes=num_classes, input_shape=input_shape)
        kind = device_kind(device)
        self.has_independent_rows = kind == "cpu"
        self.concurrency = usable_cores() if kind == "cpu" else 1
        self._session = open_session(export_onnx(network, input_shape), name="the exported model", device=device)
        if not same_logits(network, self._forward, check_batches(input_shape)):
            raise ModelError(
                "the model computed by onnxruntime gives other logits than torch; use the back end torch for it"
            )
        self._identify(module, network, backend=f"{ONNXRUNTIME} {kind} from torch", program=program)

    def _logits(self, batch: InputArray, /) -> FloatingArray:
        check_batch(batch, self.input_shape)
        logits = self._run(pad_batch(batch))[: len(batch)]
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


def _export_program(network: nn.Module, input_shape: tuple[int, ...]) -> ExportedProgram | None:
    """The module as one graph, or None if it consists of stock layers; ModelError if ONNX cannot represent it."""
    other = [dtype for dtype in floating_dtypes(network) if dtype is not torch.float32]
    if other:
        raise ModelError(
            f"the model has {dtype_name(other[0])} values, and the back end onnxruntime computes in float32 only: use "
            "the back end torch, which keeps the precision, or convert the model yourself"
        )
    if is_stock(network):
        return None
    try:
        return export_program(network, input_shape, input_dtype=torch.float32)
    except Exception as error:  # anything that torch.export or the user's code may raise
        raise ModelError(
            "the back end onnxruntime needs a model that is one graph for all input values, and torch.export fails "
            f"on this one ({summarise_error(error)}): use the back end torch"
        ) from error


def export_onnx(network: nn.Module, input_shape: tuple[int, ...]) -> bytes:
    """The network as an ONNX model for batches of any size, or a ModelError.

    Uses the exporter that traces an example (`torch.jit.trace`, as the frozen graph does): it takes a tenth of a
    second. The newer exporter, by symbolic execution, made the same graphs in 3 to 15 seconds.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "computing a torch model by onnxruntime") from error
    stream = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # torch recommends its newer exporter at every call, and announces that parts of this one will go.
            warnings.filterwarnings("ignore", message="You are using the legacy", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.onnx")
            # Raised if Python code looks at values: the trace would contain one branch only.
            warnings.filterwarnings("error", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
            torch.onnx.export(
                copy.deepcopy(network),
                (torch.zeros((_EXAMPLE_ROWS, *input_shape)),),
                stream,  # type: ignore[arg-type]  # the declared type is that of the other exporter
                dynamo=False,
                opset_version=_OPSET,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_axes={INPUT: {0: "batch"}, OUTPUT: {0: "batch"}},
            )
    except Exception as error:  # anything that an exporter may raise
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelError(
            f"the model cannot be written as ONNX, which onnxruntime needs ({reason}); use the back end torch"
        ) from error
    return bytes(simplify(onnx.load_model_from_string(stream.getvalue())).SerializeToString())
