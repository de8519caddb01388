"""Opening an ONNX model in onnxruntime: which provider computes, and how many threads it uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoothcert.errors import InputError, MissingExtraError, ModelError
from smoothcert.models.devices import parse_device

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "mps": "CoreMLExecutionProvider"}


def device_kind(device: str) -> str:
    """cpu, cuda or mps: "auto" is the processor, because an accelerated onnxruntime is a separate
    installation.
    """
    kind, _ = parse_device(device)
    return "cpu" if kind == "auto" else kind


def open_session(model: Path | bytes, *, name: str, device: str, optimise: bool = True) -> Any:
    """A session that computes every call on one core, or on the accelerator. model: a file, or what would be in it.

    name: what to call the model in messages. optimise: without, the operations of the file are computed one by one.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", "running an ONNX model") from error
    if isinstance(model, Path) and not model.is_file():
        raise ModelError(f"there is no file {model}; give the path of an .onnx file")
    provider = _PROVIDERS[device_kind(device)]
    if provider not in onnxruntime.get_available_providers():
        raise InputError(
            f"device {device!r} is not there for ONNX: this onnxruntime has no {provider}; use --device cpu"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    _, index = parse_device(device)
    provider_options = [{"device_id": str(index)} if index is not None else {}]
    try:
        return onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            sess_options=options,
            providers=[provider],
            provider_options=provider_options,
        )
    except Exception as error:  # onnxruntime raises its own unrelated classes
        raise ModelError(f"{name} cannot be loaded as an ONNX model: {error}; is the file complete?") from error
