"""Opening an ONNX model in onnxruntime: provider, threads, and the weight files beside the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from smoothcert.errors import InputError, MissingExtraError, ModelError
from smoothcert.files import require_readable
from smoothcert.models.devices import parse_device

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "mps": "CoreMLExecutionProvider"}


def device_kind(device: str) -> str:
    """cpu, cuda or mps. "auto" is the CPU, because an accelerated onnxruntime is a separate installation."""
    kind, _ = parse_device(device)
    return "cpu" if kind == "auto" else kind


def open_session(model: Path | bytes, *, name: str, device: str, optimise: bool = True) -> Any:
    """A session that computes every call on one core, or on the accelerator.

    model: a file or its content. name: how messages call the model. optimise: False computes the operations of the
    file one by one.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", "running an ONNX model") from error
    if isinstance(model, Path):
        require_readable(model, ModelError(f"there is no file {model}; give the path of an .onnx file"))
    provider = _PROVIDERS[device_kind(device)]
    if provider not in onnxruntime.get_available_providers():
        raise InputError(
            f"device {device!r} is not available for ONNX: this onnxruntime has no {provider}; use --device cpu"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    _, index = parse_device(device)
    try:
        return onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            sess_options=options,
            providers=[provider],
            provider_options=[{"device_id": str(index)} if index is not None else {}],
        )
    except Exception as error:  # onnxruntime raises its own unrelated classes
        raise ModelError(f"{name} cannot be loaded as an ONNX model: {error}; is the file complete?") from error


def external_files(path: Path) -> list[Path]:
    """The weight files that a model keeps beside it, sorted by name. The model is parsed, not loaded.

    ModelError if a file is missing or outside the folder of the model, and if the model cannot be read.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "reading an ONNX model") from error
    try:
        model = onnx.load_model(path, format="protobuf", load_external_data=False)
        names = {
            entry.value
            for tensor in _tensors_in(model, onnx.TensorProto)
            for entry in tensor.external_data
            if entry.key == "location"
        }
    except Exception as error:  # protobuf raises its own unrelated classes
        raise ModelError(f"{path} cannot be loaded as an ONNX model: {error}; is the file complete?") from error
    return [_file_beside(path, name) for name in sorted(names)]


def _tensors_in(message: Any, tensor_type: type) -> Iterator[Any]:
    """All tensors inside a protobuf message."""
    if isinstance(message, tensor_type):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _tensors_in(part, tensor_type)


def _file_beside(path: Path, name: str) -> Path:
    problem = f"{path} cannot be loaded as an ONNX model: it keeps weights in {name!r}, which"
    file = path.parent / name
    try:
        inside = file.resolve().is_relative_to(path.parent.resolve())
        exists = file.is_file()
    except (OSError, ValueError) as error:  # names that no file system accepts
        raise ModelError(f"{problem} is not a valid file name ({error})") from error
    if PurePosixPath(name).is_absolute() or not inside:
        raise ModelError(f"{problem} lies outside the folder of the model; move it there and save the model again")
    if not exists:
        raise ModelError(f"{problem} does not exist; put it beside the model")
    return file
