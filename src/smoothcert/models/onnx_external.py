"""The files in which an ONNX model keeps its weights, read off the model without loading it.

A walk over the protobuf wire format (https://protobuf.dev/programming-guides/encoding/) that follows only the fields
under which tensors can lie. Fields come in any order there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from smoothcert.errors import ModelError

_MESSAGES = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "TensorProto": {13: "StringStringEntryProto"},
}
"""The fields of onnx.proto under which there can be tensors, by number."""

_KEY, _VALUE = 1, 2
_VARINT, _EIGHT_BYTES, _WITH_LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_DEEPEST = 200


class _DamagedError(Exception):
    pass


def external_files(path: Path) -> list[Path]:
    """The weight files a model keeps beside it, in the order of their names.

    ModelError where one is missing or lies outside the folder of the model, and where the model cannot be read.
    """
    content = memoryview(path.read_bytes())
    try:
        names = sorted(set(_locations(content, "ModelProto", 0)))
    except _DamagedError as error:
        raise ModelError(f"{path} cannot be loaded as an ONNX model: {error}; is the file complete?") from error
    return [_file_beside(path, name) for name in names]


def _file_beside(path: Path, name: str) -> Path:
    refused = f"{path} cannot be loaded as an ONNX model: it keeps weights in {name!r}, which"
    file = path.parent / name
    try:
        inside = file.resolve().is_relative_to(path.parent.resolve())
        exists = file.is_file()
    except (OSError, ValueError) as error:  # names no file system takes
        raise ModelError(f"{refused} is no name of a file ({error})") from error
    if PurePosixPath(name).is_absolute() or not inside:
        raise ModelError(f"{refused} lies outside the folder of the model; move it there and save the model anew")
    if not exists:
        raise ModelError(f"{refused} is not there; put it beside the model")
    return file


def _locations(content: memoryview, message: str, depth: int) -> Iterator[str]:
    """The values of all entries "location" of the tensors in a message."""
    if depth > _DEEPEST:
        raise _DamagedError("its parts are nested too deeply")
    if message == "StringStringEntryProto":
        # Where a field is there twice the last one counts.
        entry = {number: bytes(part) for number, part in _fields(content)}
        if entry.get(_KEY) == b"location":
            yield entry.get(_VALUE, b"").decode(errors="surrogateescape")
        return
    for number, part in _fields(content):
        inner = _MESSAGES[message].get(number)
        if inner is not None:
            yield from _locations(part, inner, depth + 1)


def _fields(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Numbers and contents of the fields that have a length, in the order of the file."""
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        kind = tag & 7
        if kind == _VARINT:
            _, place = _varint(content, place)
            continue
        if kind == _WITH_LENGTH:
            length, place = _varint(content, place)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise _DamagedError(f"it has a field of the unknown kind {kind}")
        end = place + length
        if end > len(content):
            raise _DamagedError("it ends inside a field")
        if kind == _WITH_LENGTH:
            yield tag >> 3, content[place:end]
        place = end


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    """A whole number in sevens of bits, lowest first, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(content):
            raise _DamagedError("it ends inside a number")
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise _DamagedError("it has a number of more than 64 bits")
