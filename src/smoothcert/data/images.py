"""Folders with one sub-folder of images per class. Images are read on demand."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import as_indices
from smoothcert.errors import DataError, MissingExtraError
from smoothcert.records import InputArray, IntArray

_SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
_SHORTER_SIDE, _CROP = 256, 224
_READERS, _FILES_TOGETHER = 8, 64
"""Threads that read files for a digest, and files per task. Hashing releases the interpreter lock."""
_MOST_PIXELS = 100_000_000
"""Limit for an image after resizing: an image with one column would become gigabytes."""
_SPLIT_FOLDERS = {"train": ("train",), "test": ("val", "validation", "test")}


@dataclass(frozen=True, slots=True, eq=False)
class ImageFolderDataset:
    """Images in class folders. Labels are the positions of the folders in sorted order, as usual for ImageNet.

    Every image is converted to RGB, resized (bilinear) to a shorter side of 256 and cropped to the 224x224 centre:
    (3, 224, 224), 8 bits per value.
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
        """SHA-256 of class folders, file names and all file contents; computed once."""
        if self._digest is None:
            sha = hashlib.sha256(f"smoothcert-images-2 {_SHORTER_SIDE} {_CROP} {len(self.files)}\n".encode())
            sha.update(_hash_names(self.class_names))
            sha.update(_hash_names(self.files))
            shares = [self.files[at : at + _FILES_TOGETHER] for at in range(0, len(self.files), _FILES_TOGETHER)]
            with ThreadPoolExecutor(_READERS) as readers:
                for digests in readers.map(self._hash_files, shares):
                    sha.update(digests)
            object.__setattr__(self, "_digest", sha.hexdigest())
        assert self._digest is not None
        return self._digest

    def _hash_files(self, files: Sequence[str]) -> bytes:
        return b"".join(_hash_file(self.folder / file) for file in files)

    def __len__(self) -> int:
        return len(self.files)

    def inputs(self, indices: Sequence[int] | IntArray | slice, /) -> InputArray:
        """Read and decode images: (len(indices), 3, 224, 224) float32."""
        selected = np.arange(len(self))[as_indices(indices, size=len(self), name=self.name)]
        pixels = np.empty((len(selected), *self.input_shape), dtype=np.uint8)
        for row, index in enumerate(selected):
            pixels[row] = read_image(self.folder / self.files[index])
        return np.divide(pixels, np.float32(255), dtype=np.float32)


def open_image_folder(name: str, folder: Path, *, split: str, classes: int | None = None) -> ImageFolderDataset:
    """Open one split: folder/train or folder/val (validation, test), or `folder` itself if it has neither.

    classes: required number of class folders, if known.
    """
    place = _find_split(folder, split)
    try:
        class_names = tuple(sorted(child.name for child in place.iterdir() if _is_visible_folder(child)))
        # Sorted as strings with "/" between, not as paths, so that the order is the same on every system.
        files = tuple(
            f"{class_name}/{file}" for class_name in class_names for file in sorted(_list_images(place / class_name))
        )
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error.strerror or error}") from error
    if not files:
        raise DataError(
            f"{place} has no images in class folders: expected {place}/CLASS/IMAGE with images such as .jpeg or .png"
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
    """Read an image: (3, 224, 224) 8-bit centre after resizing the shorter side to 256."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "images", "reading image files") from error
    try:
        with Image.open(path) as image:
            colour = image.convert("RGB")
    except Exception as error:  # Pillow raises many types for a damaged file
        raise DataError(f"{path} cannot be read as an image: {error}") from error
    width, height = colour.size
    # The longer side is rounded down, as in the usual ImageNet pipelines.
    if width <= height:
        size = (_SHORTER_SIDE, max(_SHORTER_SIDE, _SHORTER_SIDE * height // width))
    else:
        size = (max(_SHORTER_SIDE, _SHORTER_SIDE * width // height), _SHORTER_SIDE)
    if size[0] * size[1] > _MOST_PIXELS:
        raise DataError(
            f"{path} is {width}x{height} pixels: resized to a shorter side of {_SHORTER_SIDE} it would have"
            f" {size[0] * size[1]:,}, and at most {_MOST_PIXELS:,} are supported"
        )
    resized = colour.resize(size, Image.Resampling.BILINEAR)
    left, top = round((size[0] - _CROP) / 2), round((size[1] - _CROP) / 2)
    centre = np.asarray(resized.crop((left, top, left + _CROP, top + _CROP)), dtype=np.uint8)
    return np.ascontiguousarray(centre.transpose(2, 0, 1))


def _find_split(folder: Path, split: str) -> Path:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: expected a folder with one sub-folder of images per class")
    for child in _SPLIT_FOLDERS[split]:
        if (folder / child).is_dir():
            return folder / child
    others = [child for names in _SPLIT_FOLDERS.values() for child in names if (folder / child).is_dir()]
    if others:
        expected = " or ".join(_SPLIT_FOLDERS[split])
        raise DataError(f"{folder} has {', '.join(others)} but not {expected}, which the {split} split needs")
    return folder


def _is_visible_folder(path: Path) -> bool:
    return not path.name.startswith(".") and path.is_dir()


def _list_images(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.lower().endswith(_SUFFIXES) and not name.startswith(".")]


def _hash_names(names: Sequence[str]) -> bytes:
    # A name contains no zero byte, and may be invalid text.
    return hashlib.sha256(b"".join(f"{name}\0".encode(errors="surrogateescape") for name in names)).digest()


def _hash_file(path: Path) -> bytes:
    """SHA-256 of a file, read in small chunks."""
    if not path.is_file():
        # Opening a named pipe would block.
        raise DataError(f"{path} is not a file")
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
