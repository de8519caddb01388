"""One way to every dataset: by its name, or by the path of the user's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smoothcert.data import store
from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.base import Dataset
from smoothcert.data.catalogue import (
    CATALOGUE,
    IMAGENET_CLASSES,
    IMAGENET_VARIABLE,
    Entry,
    cone_dimension,
    unknown_dataset,
)
from smoothcert.data.digits import digits
from smoothcert.data.fetching import fetch
from smoothcert.data.files import FILE_ENDINGS, InputRange, load_file
from smoothcert.data.images import image_folder
from smoothcert.data.progress import ProgressCallback
from smoothcert.data.published import PUBLISHED
from smoothcert.data.small_mnist import block_sums, principal_components, project
from smoothcert.data.synthetic import cone, swiss_roll
from smoothcert.errors import DataError, InputError

SPLITS = ("train", "test")


def load_dataset(
    name_or_path: str,
    *,
    split: str = "test",
    root: Path | None = None,
    input_range: InputRange | Literal["default"] = "default",
    dimension: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    num_classes: int | None = None,
    fetch_missing: bool = True,
    progress: ProgressCallback | None = None,
) -> Dataset:
    """Load one split of a dataset.

    name_or_path: a name from list_datasets(), "cone-18" for the cone in 18 dimensions, or the path of an .npz, .npy or
        .csv file or of a folder of class folders (see load_file and image_folder for what they must hold).
    root: where fetched datasets are kept, default_root() if None; for imagenet, the folder that holds it.
    input_range: only for files: the range their values must lie in, [0, 1] by default, None for anywhere.
    dimension: only for the cone. input_shape, num_classes: only for files.
    fetch_missing: fetch a dataset that is not here yet; otherwise that is a DataError. progress hears about it.
    """
    if split not in SPLITS:
        raise InputError(f"there is no split {split!r}: expected {' or '.join(SPLITS)}")
    size = cone_dimension(name_or_path)
    if dimension is not None and (size is None or (name_or_path != "cone" and dimension != size)):
        raise InputError(f"dimension {dimension} does not fit {name_or_path}: only the cone can have any dimension")
    if size is not None or name_or_path in CATALOGUE:
        _refuse_file_options(name_or_path, input_range, input_shape, num_classes)
    if size is not None:
        return cone(split, dimension=dimension if dimension is not None else size)
    if name_or_path in CATALOGUE:
        return _load_named(CATALOGUE[name_or_path], split, root=root, fetch_missing=fetch_missing, progress=progress)
    return _load_path(name_or_path, split, input_range, input_shape, num_classes)


def parse_input_range(text: str | None) -> InputRange | Literal["default"]:
    """What the command line means: nothing given is the default, "any" is None, "LOW,HIGH" a range."""
    if text is None:
        return "default"
    if text.strip().lower() == "any":
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"input range {text!r} cannot be read: expected any, or LOW,HIGH such as 0,1") from None
    return _checked_range((low, high))


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """What the command line means by the shape of one input: "1,8,8" or "1x8x8"; nothing given is None."""
    if text is None:
        return None
    try:
        shape = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise InputError(f"input shape {text!r} cannot be read: expected numbers such as 1,28,28") from None
    if min(shape) < 1:
        raise InputError(f"input shape {text!r} has a side below 1")
    return shape


def _checked_range(input_range: tuple[float, float]) -> tuple[float, float]:
    low, high = input_range
    if not (float("-inf") < low < high < float("inf")):
        raise InputError(f"input range [{low:g}, {high:g}] is empty or not finite: expected low < high")
    return low, high


def _refuse_file_options(name: str, input_range: object, input_shape: object, num_classes: object) -> None:
    if input_range != "default" or input_shape is not None or num_classes is not None:
        raise InputError(
            f"{name} has its own input range, shape and classes: input_range, input_shape and num_classes are for your"
            " own files only"
        )


def _load_path(
    text: str,
    split: str,
    input_range: InputRange | Literal["default"],
    input_shape: tuple[int, ...] | None,
    num_classes: int | None,
) -> Dataset:
    path = Path(text).expanduser()
    if path.is_dir():
        _refuse_file_options(f"the image folder {text}", input_range, input_shape, num_classes)
        return image_folder(path.resolve().name, path, split=split)
    looks_like_path = path.suffix.lower() in FILE_ENDINGS or path.exists() or path.name != text
    if not looks_like_path:
        raise DataError(unknown_dataset(text))
    wanted: InputRange = (0.0, 1.0) if input_range == "default" else input_range
    return load_file(
        path,
        split=split,
        input_range=None if wanted is None else _checked_range(wanted),
        input_shape=input_shape,
        num_classes=num_classes,
    )


def _load_named(
    entry: Entry, split: str, *, root: Path | None, fetch_missing: bool, progress: ProgressCallback | None
) -> Dataset:
    if entry.name == "digits":
        return digits(split)
    if entry.name == "swiss-roll":
        return swiss_roll(split)
    if entry.name == "imagenet":
        return image_folder("imagenet", _imagenet_folder(root), split=split, classes=IMAGENET_CLASSES)
    assert entry.files is not None
    place = root if root is not None else store.default_root()
    spec = PUBLISHED[entry.files]
    if not store.is_here(spec, place):
        if not fetch_missing:
            raise DataError(f"{entry.name} is not in {place}: run `smoothcert data fetch {spec.name}`")
        fetch(spec.name, root=place, progress=progress)
    return _from_store(entry, split, place)


def _from_store(entry: Entry, split: str, root: Path) -> ArrayDataset:
    assert entry.files is not None
    spec = PUBLISHED[entry.files]
    labels = store.read_piece(spec, spec.piece(split, "labels"), root)
    images = store.read_piece(spec, spec.piece(split, "inputs"), root)
    if entry.name == "small-mnist":
        stored: NDArray[Any] = block_sums(images)[:, None]
    elif entry.name == "small-mnist-pca":
        train = images if split == "train" else store.read_piece(spec, spec.piece("train", "inputs"), root)
        total, components = principal_components(block_sums(train))
        stored = project(block_sums(images), total, components, train_size=len(train))
    else:
        stored = images.reshape(len(images), *entry.input_shape)
    return ArrayDataset(
        name=entry.name,
        split=split,
        stored=stored,
        labels=labels.astype(np.int64),
        num_classes=entry.num_classes,
        class_names=entry.class_names,
        input_range=entry.input_range,
        levels=entry.levels,
    )


def _imagenet_folder(root: Path | None) -> Path:
    """An explicit root wins over the environment, and that over the store."""
    if root is not None:
        return root / "imagenet" if (root / "imagenet").is_dir() else root
    given = os.environ.get(IMAGENET_VARIABLE)
    if given:
        return Path(given).expanduser()
    place = store.default_root() / "imagenet"
    if not place.is_dir():
        raise DataError(
            f"imagenet cannot be fetched and {place} does not exist: set {IMAGENET_VARIABLE} to your folder (with"
            " val/CLASS/IMAGE inside), or give that folder's path as the dataset"
        )
    return place
