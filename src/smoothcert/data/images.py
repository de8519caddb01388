"""Folders with one sub-folder of images per class. Images are read on demand."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import as_indices
from smoothcert.errors import DataError, InputError, MissingExtraError
from smoothcert.records import InputArray, IntArray

_SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
_SHORTER_SIDE, _CROP = 256, 224
_READERS, _FILES_TOGETHER = 8, 64
"""Threads that read files for a digest, and files per task. Hashing releases the interpreter lock."""
_MOST_PIXELS = 100_000_000
"""Limit for an image after resizing: an image with one column would become gigabytes."""
_LONGEST_SIDE = 10_000
_SPLIT_FOLDERS = {"train": ("train",), "test": ("val", "validation", "test")}


@dataclass(frozen=True, slots=True)
class ImageForm:
    """How image files become inputs of one shape, 8 bits per value.

    channels: 3 (RGB) or 1 (grey). size: (height, width) that images are resized to; None takes them as they are.
    shorter_side: resize this side instead, keep the aspect ratio, and cut `size` out of the centre. Resizing is
    Pillow's bilinear filter, which averages over all pixels that an output pixel covers.
    """

    channels: int = 3
    size: tuple[int, int] | None = None
    shorter_side: int | None = None

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise InputError(f"images cannot have {self.channels} channels: expected 3 (RGB) or 1 (grey)")
        if self.size is not None and not 1 <= min(self.size) <= max(self.size) <= _LONGEST_SIDE:
            raise InputError(f"images cannot be resized to {self.size}: expected sides from 1 to {_LONGEST_SIDE}")
        if self.shorter_side is None:
            return
        if self.size is None or not max(self.size) <= self.shorter_side <= _LONGEST_SIDE:
            raise InputError(
                f"the centre {self.size} cannot be cut out of images with a shorter side of {self.shorter_side}: it "
                f"must be at least as long, and at most {_LONGEST_SIDE}"
            )

    @property
    def text(self) -> str:
        """For the digest of a dataset."""
        if self == IMAGENET_FORM:
            return f"smoothcert-images-2 {_SHORTER_SIDE} {_CROP}"
        return f"smoothcert-images-3 {self.channels} {self.size} {self.shorter_side}"


IMAGENET_FORM = ImageForm(size=(_CROP, _CROP), shorter_side=_SHORTER_SIDE)


def parse_resize(text: str | None) -> tuple[tuple[int, int] | None, int | None]:
    """Parse "HEIGHT,WIDTH", "SIDE" for a square, or "SHORTER:SIDE" for the centre: size and shorter side."""
    if text is None:
        return None, None
    shorter, separator, size = text.rpartition(":")
    try:
        sides = [int(side) for side in size.replace("x", ",").split(",")]
        height, width = sides * 2 if len(sides) == 1 else sides
        return (height, width), int(shorter) if separator else None
    except ValueError:
        raise InputError(
            f"--resize {text!r} is invalid: expected HEIGHT,WIDTH such as 32,32, or SHORTER:SIDE such as 256:224"
        ) from None


def make_image_form(
    *, input_shape: tuple[int, ...] | None, resize: tuple[int, int] | None, shorter_side: int | None
) -> ImageForm:
    """The form of the images of a folder. input_shape: (channels, height, width), or None."""
    if input_shape is None:
        return ImageForm(size=resize, shorter_side=shorter_side)
    if len(input_shape) != 3 or (resize is not None and input_shape[1:] != resize):
        wanted = "(channels, height, width)" if resize is None else f"(channels, {resize[0]}, {resize[1]})"
        raise InputError(f"images cannot have the input shape {input_shape}: expected {wanted}")
    channels, height, width = input_shape
    return ImageForm(channels=channels, size=(height, width), shorter_side=shorter_side)


@dataclass(frozen=True, slots=True, eq=False)
class ImageFolderDataset:
    """Images in class folders. Labels are the positions of the folders in sorted order, as usual for ImageNet."""

    name: str
    split: str
    folder: Path
    files: tuple[str, ...] = field(repr=False)
    labels: IntArray = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    form: ImageForm = IMAGENET_FORM
    input_range: tuple[float, float] | None = (0.0, 1.0)
    levels: int | None = 256
    reads_files: bool = field(default=True, init=False, repr=False)
    _size: tuple[int, int] | None = field(default=None, init=False, repr=False)
    _digest: str | None = field(default=None, init=False, repr=False)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(channels, height, width). Images that are not resized must all have one size, which is read once."""
        if self._size is None:
            object.__setattr__(self, "_size", self.form.size or self._find_common_size())
        assert self._size is not None
        return self.form.channels, *self._size

    def _find_common_size(self) -> tuple[int, int]:
        with ThreadPoolExecutor(_READERS) as readers:
            sizes = Counter(readers.map(lambda file: _read_size(self.folder / file), self.files))
        if len(sizes) > 1:
            common = [f"{height},{width} ({count} images)" for (height, width), count in sizes.most_common(5)]
            more = f" and {len(sizes) - len(common)} more" if len(sizes) > len(common) else ""
            raise DataError(
                f"{self.folder} has images of {len(sizes)} sizes, HEIGHT,WIDTH = {', '.join(common)}{more}: a model "
                "takes inputs of one size. Give --resize HEIGHT,WIDTH, or --resize 256:224 for a shorter side of 256 "
                "and the centre of 224x224 (in Python, resize=(HEIGHT, WIDTH) and shorter_side)"
            )
        return next(iter(sizes))

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def digest(self) -> str:
        """SHA-256 of the form, class folders, file names and all file contents; computed once."""
        if self._digest is None:
            sha = hashlib.sha256(f"{self.form.text} {len(self.files)}\n".encode())
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
        """Read and decode images: (len(indices), channels, height, width) float32."""
        selected = np.arange(len(self))[as_indices(indices, size=len(self), name=self.name)]
        pixels = np.empty((len(selected), *self.input_shape), dtype=np.uint8)
        for row, index in enumerate(selected):
            path = self.folder / self.files[index]
            image = read_image(path, self.form)
            if image.shape != self.input_shape:
                raise DataError(f"{path} has changed: its size was {self._size}, now it is {image.shape[1:]}")
            pixels[row] = image
        return np.divide(pixels, np.float32(255), dtype=np.float32)


def open_image_folder(
    name: str, folder: Path, *, split: str, classes: int | None = None, form: ImageForm = IMAGENET_FORM
) -> ImageFolderDataset:
    """Open one split: folder/train or folder/val (validation, test), or `folder` itself if it has neither.

    classes: required number of class folders, if known. form: see `ImageForm`.
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
    return ImageFolderDataset(
        name=name, split=split, folder=place, files=files, labels=labels, class_names=class_names, form=form
    )


def read_image(path: Path, form: ImageForm = IMAGENET_FORM) -> NDArray[np.uint8]:
    """Read an image: (channels, height, width) uint8, as `form` says."""
    with _opening(path) as image:
        mode, size = image.mode, image.size
        if mode[0] not in "IF":
            image = image.convert("RGB" if form.channels == 3 else "L")
    if mode[0] in "IF":  # conversion would cut off all values above 255
        raise DataError(f"{path} has more than 8 bits per value (mode {mode}): save it as an 8-bit image")
    target, box = _plan_resizing(path, size, form)
    if target != image.size:
        from PIL import Image

        image = image.resize(target, Image.Resampling.BILINEAR)
    pixels = np.asarray(image if box is None else image.crop(box), dtype=np.uint8)
    return np.ascontiguousarray(pixels[None] if form.channels == 1 else pixels.transpose(2, 0, 1))


def _plan_resizing(
    path: Path, size: tuple[int, int], form: ImageForm
) -> tuple[tuple[int, int], tuple[int, int, int, int] | None]:
    """The size an image is resized to, and the box that is cut out. Both are in Pillow's order: width first."""
    width, height = size
    box = None
    if form.size is None:
        target = size
    elif form.shorter_side is None:
        target = (form.size[1], form.size[0])
    else:
        shorter = form.shorter_side
        # The longer side is rounded down, as in the usual ImageNet pipelines.
        if width <= height:
            target = (shorter, max(shorter, shorter * height // width))
        else:
            target = (max(shorter, shorter * width // height), shorter)
        rows, columns = form.size
        left, top = round((target[0] - columns) / 2), round((target[1] - rows) / 2)
        box = (left, top, left + columns, top + rows)
    if target[0] * target[1] > _MOST_PIXELS:
        raise DataError(
            f"{path} is {width}x{height} pixels: resized to {target[0]}x{target[1]} it would have"
            f" {target[0] * target[1]:,}, and at most {_MOST_PIXELS:,} are supported"
        )
    return target, box


def _read_size(path: Path) -> tuple[int, int]:
    """(height, width) from the header of an image."""
    with _opening(path) as image:
        width, height = image.size
    return height, width


@contextmanager
def _opening(path: Path) -> Iterator[Any]:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "images", "reading image files") from error
    try:
        with Image.open(path) as image:
            yield image
    except Exception as error:  # Pillow raises many types for a damaged file
        raise DataError(f"{path} cannot be read as an image: {error}") from error


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
