"""Conversion of a folder of files, in any form of distribution, into the checked arrays of a published dataset."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.idx import encode_idx
from smoothcert.data.published import ArrayFile, Packing, PublishedDataset
from smoothcert.errors import DataError, MissingExtraError, SmoothcertError

_DEPTH = 4
_MAX_FOLDERS = 5_000
_MAX_JSON_BYTES = 10_000_000
_CIFAR_BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}

_Candidates = Iterator[tuple[str, Callable[[], bytes]]]
"""Where an array may be (for messages), and a function that reads it as idx content."""


def decode_files(spec: PublishedDataset, folder: Path) -> Iterator[tuple[ArrayFile, bytes]]:
    """Yield every array of `spec` with its idx content, found in `folder` or up to four levels below.

    Only content with the right SHA-256 is accepted, so a folder may hold several datasets with the same file names. A
    missing array is a DataError that says what was found instead.
    """
    folders = list(_walk(folder))
    for file in spec.files:
        yield file, _find_file(spec, file, folders, folder)


def _find_file(spec: PublishedDataset, file: ArrayFile, folders: list[Path], top: Path) -> bytes:
    rejected: list[str] = []
    for place, read in _list_candidates(spec.packing, file, folders):
        try:
            content = read()
        except (SmoothcertError, OSError, EOFError, ValueError, zlib.error) as error:
            rejected.append(f"{place}: {error}")
            continue
        reason = file.find_mismatch(content)
        if reason is None:
            return content
        rejected.append(f"{place}: {reason}")
    array = f"{file.split} {file.role} of {spec.name}"
    if rejected:
        raise DataError(f"the {array} were found but cannot be used: " + "; ".join(rejected))
    raise DataError(f"the {array} are not in {top} (expected {spec.packing.value})")


def _walk(top: Path) -> Iterator[Path]:
    """`top` and the folders below it, without following links."""
    for seen, (current, children, _) in enumerate(os.walk(top), start=1):
        depth = len(Path(current).relative_to(top).parts)
        children[:] = sorted(children) if depth < _DEPTH else []
        yield Path(current)
        if seen >= _MAX_FOLDERS:
            return


def _list_candidates(packing: Packing, file: ArrayFile, folders: list[Path]) -> _Candidates:
    for folder in folders:
        for name in (file.name, file.name.replace("-idx", ".idx")):
            plain, packed = folder / name, folder / f"{name}.gz"
            if plain.is_file():
                yield str(plain), partial(_read_limited, plain, file.size)
            if packed.is_file():
                yield str(packed), partial(_read_limited, packed, file.size, open_file=gzip.open)
        if packing is Packing.CIFAR:
            yield from _list_cifar_candidates(file, folder)


def _read_limited(path: Path, size: int, *, open_file: Callable[..., gzip.GzipFile] | None = None) -> bytes:
    # One byte more than expected shows that a file is too long, however much it would unpack to.
    with path.open("rb") if open_file is None else open_file(path, "rb") as stream:
        return stream.read(size + 1)


def _list_cifar_candidates(file: ArrayFile, folder: Path) -> _Candidates:
    batches = _CIFAR_BATCHES[file.split]
    rows = file.shape[0] // len(batches)
    binaries = [folder / f"{batch}.bin" for batch in batches]
    if all(path.is_file() for path in binaries):
        yield f"{folder}/*.bin", lambda: encode_idx(_read_binaries(binaries, file.role, rows=rows))
    if file.role == "inputs":
        images = [folder / f"{batch}.png" for batch in batches]
        if all(path.is_file() for path in images):
            yield (
                f"{folder}/*.png",
                lambda: encode_idx(np.concatenate([read_row_image(path, rows=rows) for path in images])),
            )
        return
    # The npm package misspells the name as "lables".
    for name in (f"{file.split}_lables.json", f"{file.split}_labels.json"):
        path = folder / name
        if path.is_file():
            yield str(path), lambda path=path: encode_idx(read_json_labels(path))  # type: ignore[misc]


def read_row_image(path: Path, *, rows: int) -> NDArray[np.uint8]:
    """(rows, 3, 32, 32) from an RGB image with one 32x32 picture of 1024 pixels per row."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "images", "reading CIFAR-10 from PNG files") from error
    try:
        with Image.open(path, formats=("PNG",)) as image:
            if image.size != (1024, rows) or image.mode != "RGB":
                raise DataError(f"{path.name} is {image.mode} {image.size}, expected RGB (1024, {rows})")
            pixels = np.asarray(image, dtype=np.uint8)
    except SmoothcertError:
        raise
    except Exception as error:  # Pillow raises many types for a damaged file
        raise DataError(f"{path.name} is not a readable PNG: {error}") from error
    return np.ascontiguousarray(pixels.reshape(rows, 32, 32, 3).transpose(0, 3, 1, 2))


def read_json_labels(path: Path) -> NDArray[np.uint8]:
    """(n,) from a json list of whole numbers 0 … 255."""
    try:
        labels = json.loads(_read_limited(path, _MAX_JSON_BYTES).decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path.name} is not a json list of labels 0 … 255: {error}") from error
    if not isinstance(labels, list) or not all(type(k) is int and 0 <= k <= 255 for k in labels):
        raise DataError(f"{path.name} is not a json list of labels 0 … 255")
    return np.array(labels, dtype=np.uint8)


def _read_binaries(paths: list[Path], role: str, *, rows: int) -> NDArray[np.uint8]:
    records = np.concatenate([read_binary_batch(path, rows=rows) for path in paths])
    return records[:, 0] if role == "labels" else records[:, 1:].reshape(-1, 3, 32, 32)


def read_binary_batch(path: Path, *, rows: int) -> NDArray[np.uint8]:
    """(rows, 3073): label, then red, green and blue planes, as in the binary version of CIFAR-10."""
    size = rows * 3073
    content = _read_limited(path, size)
    if len(content) != size:
        raise DataError(f"{path.name} does not have the {size:,} bytes of {rows:,} records")
    return np.frombuffer(content, dtype=np.uint8).reshape(rows, 3073)
