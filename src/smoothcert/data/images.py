"""A folder with one sub-folder of images a class, read image by image when asked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import checked_indices
from smoothcert.errors import DataError, MissingExtraError
from smoothcert.records import InputArray, IntArray

_SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
_SHORTER_SIDE, _CROP = 256, 224
_READERS, _FILES_TOGETHER = 8, 64
"""Threads that read files for a digest, and files that one takes at a time: hashing leaves Python to the others."""
_MOST_PIXELS = 100_000_000
"""Of an image after resizing: an image of one column would become gigabytes."""
_SPLIT_FOLDERS = {"train": ("train",), "test": ("val", "validation", "test")}


@dataclass(frozen=True, slots=True, eq=False)
class ImageFolderDataset:
    """Images in class folders. Labels are the positions of the folders in sorted order, as everywhere for ImageNet.

    Every image becomes RGB, is resized (bilinear) to a shorter side of 256 and cut to the 224x224 centre: (3, 224,
    224), eight bits a value.
    """

    name: str
    split: str
    folder: Path
    files: tuple[str, ...] = field(repr=False)
    labels: IntArray = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    input_shape: tuple[int, ...] = (3, _CROP, _CROP)
    input_range: tuple[float, float] | None = (0.0, 1.0)
    levels: int | None = 256
    _digest: str | None = field(default=None, init=False, repr=False)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def digest(self) -> str:
        """SHA-256 of class folders, file names and every byte of every file, read once for each dataset object."""
        if self._digest is None:
            sha = hashlib.sha256(f"smoothcert-images-2 {_SHORTER_SIDE} {_CROP} {len(self.files)}\n".encode())
            sha.update(_names_digest(self.class_names))
            sha.update(_names_digest(self.files))
            shares = [self.files[at : at + _FILES_TOGETHER] for at in range(0, len(self.files), _FILES_TOGETHER)]
            with ThreadPoolExecutor(_READERS) as readers:
                for digests in readers.map(self._file_digests, shares):
                    sha.update(digests)
            object.__setattr__(self, "_digest", sha.hexdigest())
        assert self._digest is not None
        return self._digest

    def _file_digests(self, files: Sequence[str]) -> bytes:
        return b"".join(_file_digest(self.folder / file) for file in files)

    def __len__(self) -> int:
        return len(self.files)

    def inputs(self, indices: Sequence[int] | IntArray | slice, /) -> InputArray:
        """(len(indices), 3, 224, 224) float32, decoded now."""
        chosen = np.arange(len(self))[checked_indices(indices, size=len(self), name=self.name)]
        pixels = np.empty((len(chosen), *self.input_shape), dtype=np.uint8)
        for row, index in enumerate(chosen):
            pixels[row] = read_image(self.folder / self.files[index])
        return np.divide(pixels, np.float32(255), dtype=np.float32)


def image_folder(name: str, folder: Path, *, split: str, classes: int | None = None) -> ImageFolderDataset:
    """The images of one split: in folder/train or folder/val (validation, test), or in `folder` if it has neither.

    classes: how many class folders there must be, if that is known.
    """
    place = _split_folder(folder, split)
    try:
        class_names = tuple(sorted(child.name for child in place.iterdir() if _is_visible_folder(child)))
        # Sorted as strings with "/" between, not as paths, so that the order is the same on every system.
        files = tuple(
            f"{class_name}/{file}" for class_name in class_names for file in sorted(_image_names(place / class_name))
        )
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error.strerror or error}") from error
    if not files:
        raise DataError(
            f"{place} holds no images in class folders: expected {place}/CLASS/IMAGE with images such as .jpeg or .png"
        )
    if classes is not None and len(class_names) != classes:
        raise DataError(
            f"{place} has {len(class_names)} class folders, but {name} has {classes} and labels are their positions in"
            f" sorted order; add the missing (empty) folders, or give the path {folder} instead of the name {name}"
        )
    position = {class_name: label for label, class_name in enumerate(class_names)}
    labels = np.array([position[file.split("/", 1)[0]] for file in files], dtype=np.int64)
    labels.setflags(write=False)
    return ImageFolderDataset(name=name, split=split, folder=place, files=files, labels=labels, class_names=class_names)


def read_image(path: Path) -> NDArray[np.uint8]:
    """(3, 224, 224) eight-bit centre of an image whose shorter side was resized to 256."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "images", "reading image files") from error
    try:
        with Image.open(path) as image:
            colour = image.convert("RGB")
    except Exception as error:  # for a damaged file Pillow raises a dozen kinds
        raise DataError(f"{path} cannot be read as an image: {error}") from error
    width, height = colour.size
    # The longer side is cut off to a whole number, as the usual ImageNet pipelines do.
    if width <= height:
        size = (_SHORTER_SIDE, max(_SHORTER_SIDE, _SHORTER_SIDE * height // width))
    else:
        size = (max(_SHORTER_SIDE, _SHORTER_SIDE * width // height), _SHORTER_SIDE)
    if size[0] * size[1] > _MOST_PIXELS:
        raise DataError(
            f"{path} is {width}x{height} pixels: with its shorter side at {_SHORTER_SIDE} it would have"
            f" {size[0] * size[1]:,}, and at most {_MOST_PIXELS:,} are made"
        )
    resized = colour.resize(size, Image.Resampling.BILINEAR)
    left, top = round((size[0] - _CROP) / 2), round((size[1] - _CROP) / 2)
    centre = np.asarray(resized.crop((left, top, left + _CROP, top + _CROP)), dtype=np.uint8)
    return np.ascontiguousarray(centre.transpose(2, 0, 1))


def _split_folder(folder: Path, split: str) -> Path:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: expected a folder with one sub-folder of images per class")
    for child in _SPLIT_FOLDERS[split]:
        if (folder / child).is_dir():
            return folder / child
    others = [child for names in _SPLIT_FOLDERS.values() for child in names if (folder / child).is_dir()]
    if others:
        wanted = " or ".join(_SPLIT_FOLDERS[split])
        raise DataError(f"{folder} has {', '.join(others)} but not {wanted}, which the {split} split needs")
    return folder


def _is_visible_folder(path: Path) -> bool:
    return not path.name.startswith(".") and path.is_dir()


def _image_names(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.lower().endswith(_SUFFIXES) and not name.startswith(".")]


def _names_digest(names: Sequence[str]) -> bytes:
    # A name holds no zero byte, and need not be text in any encoding.
    return hashlib.sha256(b"".join(f"{name}\0".encode(errors="surrogateescape") for name in names)).digest()


def _file_digest(path: Path) -> bytes:
    """SHA-256 of a whole file, in small pieces of memory."""
    if not path.is_file():
        # Opening a pipe would wait for somebody to write to it.
        raise DataError(f"{path} is not a file")
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
