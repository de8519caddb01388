"""From a folder of files, in whichever form they came, to the checked pieces of a published dataset."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.idx import encode_idx
from smoothcert.data.published import Packing, Piece, Published
from smoothcert.errors import DataError, MissingExtraError, SmoothcertError

_DEPTH = 4
_MAX_FOLDERS = 5_000
_MAX_JSON_BYTES = 10_000_000
_CIFAR_TRAIN_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR_TEST_BATCHES = ("test_batch",)

Candidates = Iterator[tuple[str, Callable[[], bytes]]]
"""Where a piece may be (for people), and how to read it as idx content."""


def decode_pieces(spec: Published, folder: Path) -> Iterator[tuple[Piece, bytes]]:
    """Yield every piece of `spec` with its idx content, found in `folder` or up to four levels below.

    A file counts only if its content has the SHA-256 of the piece, so a folder that holds several datasets under the
    same file names gives the right one. A piece that is not there is a DataError with what was found instead.
    """
    folders = list(_folders(folder))
    for piece in spec.pieces:
        yield piece, _find_piece(spec, piece, folders, folder)


def _find_piece(spec: Published, piece: Piece, folders: list[Path], top: Path) -> bytes:
    rejected: list[str] = []
    for place, read in _candidates(spec.packing, piece, folders):
        try:
            content = read()
        except (SmoothcertError, OSError, EOFError, ValueError, zlib.error) as error:
            rejected.append(f"{place}: {error}")
            continue
        reason = piece.mismatch(content)
        if reason is None:
            return content
        rejected.append(f"{place}: {reason}")
    wanted = f"{piece.split} {piece.role} of {spec.name}"
    if rejected:
        raise DataError(f"the {wanted} were found but cannot be used: " + "; ".join(rejected))
    raise DataError(f"the {wanted} are not in {top} (expected {spec.packing.value})")


def _folders(top: Path) -> Iterator[Path]:
    """`top` and what lies below it, not following links, nearest first within each branch."""
    for seen, (current, children, _) in enumerate(os.walk(top), start=1):
        depth = len(Path(current).relative_to(top).parts)
        children[:] = sorted(children) if depth < _DEPTH else []
        yield Path(current)
        if seen >= _MAX_FOLDERS:
            return


def _candidates(packing: Packing, piece: Piece, folders: list[Path]) -> Candidates:
    for folder in folders:
        yield from _idx_candidates(piece, folder)
        if packing is Packing.CIFAR:
            yield from _cifar_candidates(piece, folder)


def _idx_candidates(piece: Piece, folder: Path) -> Candidates:
    dotted = piece.file.replace("-idx", ".idx")
    for name in (piece.file, dotted):
        plain, packed = folder / name, folder / f"{name}.gz"
        if plain.is_file():
            yield str(plain), lambda path=plain: _read_limited(path, piece.size)  # type: ignore[misc]
        if packed.is_file():
            yield str(packed), lambda path=packed: _read_gzip(path, piece.size)  # type: ignore[misc]


def _read_limited(path: Path, size: int) -> bytes:
    with path.open("rb") as stream:
        return stream.read(size + 1)


def _read_gzip(path: Path, size: int) -> bytes:
    # One byte more than expected is enough to see that a file is too long, whatever it would unpack to.
    with gzip.open(path, "rb") as stream:
        return stream.read(size + 1)


def _cifar_candidates(piece: Piece, folder: Path) -> Candidates:
    batches = _CIFAR_TRAIN_BATCHES if piece.split == "train" else _CIFAR_TEST_BATCHES
    rows = piece.shape[0] // len(batches)
    binaries = [folder / f"{batch}.bin" for batch in batches]
    if all(path.is_file() for path in binaries):
        yield f"{folder}/*.bin", lambda: encode_idx(_from_binaries(binaries, piece.role, rows=rows))
    if piece.role == "inputs":
        images = [folder / f"{batch}.png" for batch in batches]
        if all(path.is_file() for path in images):
            yield f"{folder}/*.png", lambda: encode_idx(_from_row_images(images, rows=rows))
        return
    # The package spells it "lables".
    for name in (f"{piece.split}_lables.json", f"{piece.split}_labels.json"):
        path = folder / name
        if path.is_file():
            yield str(path), lambda path=path: encode_idx(read_json_labels(path))  # type: ignore[misc]


def _from_row_images(paths: list[Path], *, rows: int) -> NDArray[np.uint8]:
    return np.concatenate([read_row_image(path, rows=rows) for path in paths])


def read_row_image(path: Path, *, rows: int) -> NDArray[np.uint8]:
    """(rows, 3, 32, 32) from an RGB image of `rows` rows whose 1024 pixels are one 32x32 picture each."""
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
    except Exception as error:  # for a damaged file Pillow raises a dozen kinds
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


def _from_binaries(paths: list[Path], role: str, *, rows: int) -> NDArray[np.uint8]:
    records = np.concatenate([read_binary_batch(path, rows=rows) for path in paths])
    return records[:, 0] if role == "labels" else records[:, 1:].reshape(-1, 3, 32, 32)


def read_binary_batch(path: Path, *, rows: int) -> NDArray[np.uint8]:
    """(rows, 3073): the label, then red, green and blue planes, as in the binary version of CIFAR-10."""
    size = rows * 3073
    content = _read_limited(path, size)
    if len(content) != size:
        raise DataError(f"{path.name} has not the {size:,} bytes of {rows:,} records")
    return np.frombuffer(content, dtype=np.uint8).reshape(rows, 3073)
