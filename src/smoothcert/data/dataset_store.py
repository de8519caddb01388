"""The folder of fetched datasets: one sub-folder per dataset, with idx files and a note of their source.

ROOT/mnist/train-images-idx3-ubyte … , ROOT/mnist/origin.json, ROOT/mnist.lock
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.data.idx import decode_idx
from smoothcert.data.published import ArrayFile, PublishedDataset
from smoothcert.errors import DataError
from smoothcert.files import write_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ORIGIN = "origin.json"
PARTIAL = ".partial-"
"""Prefix of files that are being written. The holder of the lock may delete left-over ones."""


def default_root() -> Path:
    """Folder of fetched datasets: $SMOOTHCERT_DATA, or the user's cache folder."""
    given = os.environ.get("SMOOTHCERT_DATA")
    if given:
        return Path(given).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("smoothcert") / "data"


def dataset_folder(spec: PublishedDataset, root: Path) -> Path:
    return root / spec.name


def has_files(spec: PublishedDataset, root: Path) -> bool:
    """Whether all files exist with the right size. Reading a file checks its content."""
    folder = dataset_folder(spec, root)
    return all(_size(folder / file.name) == file.size for file in spec.files)


def is_intact(spec: PublishedDataset, root: Path) -> bool:
    """Whether all files exist and have the right SHA-256."""
    folder = dataset_folder(spec, root)
    return has_files(spec, root) and all(
        file.find_mismatch((folder / file.name).read_bytes()) is None for file in spec.files
    )


def read_origin(spec: PublishedDataset, root: Path) -> str:
    """The source that the files were fetched from; "unknown" without a record."""
    try:
        origin = json.loads((dataset_folder(spec, root) / _ORIGIN).read_text(encoding="utf-8"))
        return str(origin["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


def write_origin(spec: PublishedDataset, root: Path, source: str) -> None:
    origin = {"source": source, "sha256": {file.name: file.sha256 for file in spec.files}}
    write_file(spec, root, _ORIGIN, (json.dumps(origin, indent=2) + "\n").encode())


def write_file(spec: PublishedDataset, root: Path, name: str, content: bytes) -> None:
    """Write a file atomically: even after a crash it is absent, old or complete."""
    write_whole(dataset_folder(spec, root) / name, content, prefix=PARTIAL)


def read_array(spec: PublishedDataset, file: ArrayFile, root: Path) -> NDArray[np.uint8]:
    """Read a stored array and check its SHA-256."""
    path = dataset_folder(spec, root) / file.name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; run `smoothcert data fetch {spec.name}`") from error
    reason = file.find_mismatch(content)
    if reason is not None:
        raise DataError(f"{path} is damaged ({reason}); run `smoothcert data fetch {spec.name}` to replace it")
    return decode_idx(content, name=str(path)).reshape(file.shape)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
