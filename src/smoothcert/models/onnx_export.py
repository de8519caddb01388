"""A torch module as an ONNX model in memory."""

from __future__ import annotations

import copy
import io
import warnings

import torch
from torch import nn

from smoothcert.errors import MissingExtraError, ModelError
from smoothcert.models.onnx_simplify import simplified

INPUT, OUTPUT = "inputs", "logits"
"""The names of what goes in, (batch, *input_shape), and of what comes out, (batch, num_classes)."""

_OPSET = 17
_EXAMPLE_ROWS = 16


def exported(network: nn.Module, input_shape: tuple[int, ...]) -> bytes:
    """The network as an ONNX model for batches of any size, or a ModelError.

    By the exporter that records what the network does to an example (`torch.jit.trace`, as the frozen graph does): it
    takes a tenth of a second. The newer one, by symbolic execution, made the same graphs in 3 to 15 seconds.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "computing a torch model by onnxruntime") from error
    stream = io.BytesIO()
    try:
        _write(copy.deepcopy(network), torch.zeros((_EXAMPLE_ROWS, *input_shape)), stream)
    except Exception as error:  # whatever an exporter may raise
        told = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(
            f"the model cannot be written as ONNX, which onnxruntime needs ({told}); use the back end torch"
        ) from error
    return bytes(simplified(onnx.load_model_from_string(stream.getvalue())).SerializeToString())


def _write(network: nn.Module, example: torch.Tensor, stream: io.BytesIO) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        # torch recommends its newer exporter at every call, and says that parts of this one will go.
        warnings.filterwarnings("ignore", message="You are using the legacy", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.onnx")
        # Raised where Python code looks at values: the trace would hold one branch only.
        warnings.filterwarnings("error", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        torch.onnx.export(
            network,
            (example,),
            stream,  # type: ignore[arg-type]  # this exporter writes to streams too, the declared type is the other's
            dynamo=False,
            opset_version=_OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_axes={INPUT: {0: "batch"}, OUTPUT: {0: "batch"}},
        )
