"""The folder where fetched datasets live: one sub-folder a dataset, idx files, and a note of where they came from.

ROOT/mnist/train-images-idx3-ubyte … , ROOT/mnist/origin.json, ROOT/mnist.lock
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.data.idx import decode_idx
from smoothcert.data.published import Piece, Published
from smoothcert.errors import DataError
from smoothcert.files import write_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ORIGIN = "origin.json"
PARTIAL = ".partial-"
"""Prefix of files that are still being written; whoever holds the lock may remove left-over ones."""


def default_root() -> Path:
    """Where datasets are kept: $SMOOTHCERT_DATA, or the user's cache folder."""
    given = os.environ.get("SMOOTHCERT_DATA")
    if given:
        return Path(given).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("smoothcert") / "data"


def folder_of(spec: Published, root: Path) -> Path:
    return root / spec.name


def is_here(spec: Published, root: Path) -> bool:
    """Whether all files are there with the right size. Contents are checked whenever they are read."""
    folder = folder_of(spec, root)
    return all(_size(folder / piece.file) == piece.size for piece in spec.pieces)


def is_intact(spec: Published, root: Path) -> bool:
    """Whether all files are there, byte for byte."""
    folder = folder_of(spec, root)
    return is_here(spec, root) and all(
        piece.mismatch((folder / piece.file).read_bytes()) is None for piece in spec.pieces
    )


def origin_of(spec: Published, root: Path) -> str:
    """The source the stored files came from, as recorded when they were fetched; "unknown" without a record."""
    try:
        origin = json.loads((folder_of(spec, root) / _ORIGIN).read_text(encoding="utf-8"))
        return str(origin["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


def record_origin(spec: Published, root: Path, source: str) -> None:
    origin = {"source": source, "sha256": {piece.file: piece.sha256 for piece in spec.pieces}}
    write_atomically(folder_of(spec, root) / _ORIGIN, (json.dumps(origin, indent=2) + "\n").encode())


def read_piece(spec: Published, piece: Piece, root: Path) -> NDArray[np.uint8]:
    """The array of a stored piece, its SHA-256 checked on the way."""
    path = folder_of(spec, root) / piece.file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; run `smoothcert data fetch {spec.name}`") from error
    reason = piece.mismatch(content)
    if reason is not None:
        raise DataError(f"{path} is damaged ({reason}); run `smoothcert data fetch {spec.name}` to replace it")
    return decode_idx(content, name=str(path)).reshape(piece.shape)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at any moment, also after a crash, it is absent, old or complete."""
    write_whole(path, content, prefix=PARTIAL)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
