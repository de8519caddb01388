"""Loading of every dataset: by name, or by the path of the user's files."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smoothcert.data import dataset_store as store
from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.dataset import Dataset
from smoothcert.data.download_sources import ProgressCallback
from smoothcert.data.fetching import fetch
from smoothcert.data.images import make_image_form, open_image_folder
from smoothcert.data.named_datasets import (
    CATALOGUE,
    IMAGENET_CLASSES,
    IMAGENET_VARIABLE,
    NamedDataset,
    parse_cone_dimension,
    unknown_dataset_error,
)
from smoothcert.data.published import PUBLISHED
from smoothcert.data.small_mnist import block_sums, principal_components, project, signs_by_extreme_image
from smoothcert.data.synthetic import make_cone, make_levine_swiss_roll, make_swiss_roll
from smoothcert.data.user_files import FILE_ENDINGS, InputRange, load_file
from smoothcert.errors import DataError, InputError, MissingExtraError
from smoothcert.records import IntArray
from smoothcert.spec import DataSpec

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
    label_column: str | None = None,
    resize: tuple[int, int] | None = None,
    shorter_side: int | None = None,
    fetch_missing: bool = True,
    progress: ProgressCallback | None = None,
) -> Dataset:
    """Load one split of a dataset.

    name_or_path: a name from list_datasets(), "cone-18" for the cone in 18 dimensions, or the path of an .npz, .npy or
        .csv file or of a folder of class folders (see load_file and open_image_folder for the formats).
    root: folder of fetched datasets, default_root() if None; for imagenet, its folder.
    input_range: for files: the range that must contain their values, default [0, 1], None for any.
    dimension: for the cone. input_shape, num_classes: for files. label_column: the column of the labels in a csv file.
    resize: for folders of images: (height, width) that all images are resized to; by default they keep their size,
        which must be the same for all. shorter_side: resize this side, and cut `resize` out of the centre. input_shape
        resizes them, too: (channels, height, width), with 3 channels or 1 (grey).
    fetch_missing: fetch a dataset that is not stored yet; if False, that is a DataError. progress: called during it.
    """
    if split not in SPLITS:
        raise InputError(f"there is no split {split!r}: expected {' or '.join(SPLITS)}")
    cone_dimension = parse_cone_dimension(name_or_path)
    if dimension is not None and (cone_dimension is None or (name_or_path != "cone" and dimension != cone_dimension)):
        raise InputError(f"dimension {dimension} does not fit {name_or_path}: only the cone can have any dimension")
    if cone_dimension is not None or name_or_path in CATALOGUE:
        _refuse_file_options(name_or_path, label_column, input_range, num_classes, input_shape, resize, shorter_side)
    if cone_dimension is not None:
        return make_cone(split, dimension=dimension if dimension is not None else cone_dimension)
    if name_or_path in CATALOGUE:
        return _load_named(CATALOGUE[name_or_path], split, root=root, fetch_missing=fetch_missing, progress=progress)
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        _refuse_file_options(f"the image folder {name_or_path}", label_column, input_range, num_classes)
        form = make_image_form(input_shape=input_shape, resize=resize, shorter_side=shorter_side)
        return open_image_folder(path.resolve().name, path, split=split, form=form)
    if resize is not None or shorter_side is not None:
        raise InputError(f"resize is for folders of images, and {name_or_path} is not one: resize its inputs yourself")
    return _load_path(name_or_path, split, input_range, input_shape, num_classes, label_column)


def load_requested(data: DataSpec, *, fetch_missing: bool = True, progress: ProgressCallback | None = None) -> Dataset:
    """Load the dataset that a run requested, all of its inputs."""
    return load_dataset(
        data.place,
        split=data.split,
        root=None if data.root is None else Path(data.root),
        input_range=data.input_range,
        input_shape=data.input_shape,
        label_column=data.label_column,
        resize=data.resize,
        shorter_side=data.shorter_side,
        fetch_missing=fetch_missing,
        progress=progress,
    )


def parse_input_range(text: str | None) -> InputRange | Literal["default"]:
    """Parse an option of the command line: None is the default, "any" is None, "LOW,HIGH" is a range."""
    if text is None:
        return "default"
    if text.strip().lower() == "any":
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"input range {text!r} is invalid: expected any, or LOW,HIGH such as 0,1") from None
    _check_range((low, high))
    return low, high


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """Parse the shape of one input, "1,8,8" or "1x8x8"; None stays None."""
    if text is None:
        return None
    try:
        shape = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise InputError(f"input shape {text!r} is invalid: expected numbers such as 1,28,28") from None
    if min(shape) < 1:
        raise InputError(f"input shape {text!r} has a side below 1")
    return shape


def _check_range(input_range: InputRange) -> None:
    if input_range is not None and not (float("-inf") < input_range[0] < input_range[1] < float("inf")):
        low, high = input_range
        raise InputError(f"input range [{low:g}, {high:g}] is empty or not finite: expected low < high")


def _refuse_file_options(name: str, label_column: object, input_range: object, *others: object) -> None:
    if label_column is not None:
        raise InputError(f"{name} has its own labels: label_column is only for your own csv files")
    if input_range != "default" or any(value is not None for value in others):
        raise InputError(
            f"{name} has its own input range, shape and classes: input_range, input_shape, resize and num_classes are"
            " only for your own files"
        )


def _load_path(
    text: str,
    split: str,
    input_range: InputRange | Literal["default"],
    input_shape: tuple[int, ...] | None,
    num_classes: int | None,
    label_column: str | None,
) -> Dataset:
    path = Path(text).expanduser()
    looks_like_path = path.suffix.lower() in FILE_ENDINGS or path.exists() or path.name != text
    if not looks_like_path:
        raise unknown_dataset_error(text)
    allowed: InputRange = (0.0, 1.0) if input_range == "default" else input_range
    _check_range(allowed)
    return load_file(
        path,
        split=split,
        input_range=allowed,
        input_shape=input_shape,
        num_classes=num_classes,
        label_column=label_column,
    )


def _load_named(
    entry: NamedDataset, split: str, *, root: Path | None, fetch_missing: bool, progress: ProgressCallback | None
) -> Dataset:
    if entry.name == "digits":
        return load_digits(split)
    if entry.name == "swiss-roll":
        return make_swiss_roll(split)
    if entry.name == "levine-swiss-roll":
        return make_levine_swiss_roll(split)
    if entry.name == "imagenet":
        return open_image_folder("imagenet", _find_imagenet(root), split=split, classes=IMAGENET_CLASSES)
    assert entry.files is not None
    folder = root if root is not None else store.default_root()
    spec = PUBLISHED[entry.files]
    if not store.has_files(spec, folder):
        if not fetch_missing:
            raise DataError(f"{entry.name} is not in {folder}: run `smoothcert data fetch {spec.name}`")
        fetch(spec.name, root=folder, progress=progress)
    return _load_stored(entry, split, folder)


def load_digits(split: str) -> ArrayDataset:
    """The digits bundled with scikit-learn: 8x8 images with values 0 … 16, divided by 16; inputs (n, 1, 8, 8).

    The split is fixed: of every class, in scikit-learn's order, each fourth image is a test image (445 of 1797), so
    both parts have the same class frequencies. The order is kept within each part.
    """
    images, labels = _read_digits()
    is_test = np.zeros(labels.size, dtype=np.bool_)
    for label in np.unique(labels):
        is_test[np.flatnonzero(labels == label)[3::4]] = True
    selected = is_test == (split == "test")
    return _make_dataset(CATALOGUE["digits"], split, images[selected], labels[selected])


def _read_digits() -> tuple[NDArray[np.uint8], IntArray]:
    """Images (n, 64) and labels from the data file of scikit-learn, which takes more than a second to import."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise MissingExtraError("scikit-learn", "sklearn", "the digits dataset")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        rows = np.loadtxt(file, delimiter=",", dtype=np.int64)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} of scikit-learn cannot be read: {error}; install scikit-learn again") from error
    return rows[:, :-1].astype(np.uint8), rows[:, -1]


def _load_stored(entry: NamedDataset, split: str, root: Path) -> ArrayDataset:
    assert entry.files is not None
    spec = PUBLISHED[entry.files]
    labels = store.read_array(spec, spec.find_file(split, "labels"), root)
    images = store.read_array(spec, spec.find_file(split, "inputs"), root)
    stored: NDArray[Any] = images
    if entry.name == "small-mnist":
        stored = block_sums(images)
    elif entry.name in ("small-mnist-pca", "levine-mnist-pca"):
        train = images if split == "train" else store.read_array(spec, spec.find_file("train", "inputs"), root)
        train_sums = block_sums(train)
        total, components = principal_components(train_sums)
        if entry.name == "levine-mnist-pca":
            components = components * signs_by_extreme_image(train_sums, components)[:, None]
        stored = project(block_sums(images), total, components, train_size=len(train))
    return _make_dataset(entry, split, stored, labels.astype(np.int64))


def _make_dataset(entry: NamedDataset, split: str, stored: NDArray[Any], labels: IntArray) -> ArrayDataset:
    return ArrayDataset(
        name=entry.name,
        split=split,
        stored=stored.reshape(len(stored), *entry.input_shape),
        labels=labels,
        num_classes=entry.num_classes,
        class_names=entry.class_names,
        input_range=entry.input_range,
        levels=entry.levels,
    )


def _find_imagenet(root: Path | None) -> Path:
    """An explicit root takes precedence over the environment variable, and that over the store."""
    if root is not None:
        return root / "imagenet" if (root / "imagenet").is_dir() else root
    given = os.environ.get(IMAGENET_VARIABLE)
    if given:
        return Path(given).expanduser()
    folder = store.default_root() / "imagenet"
    if not folder.is_dir():
        raise DataError(
            f"imagenet cannot be fetched and {folder} does not exist: set {IMAGENET_VARIABLE} to your folder (with"
            " val/CLASS/IMAGE inside), or give that folder's path as the dataset"
        )
    return folder
