"""The user's data files: .npz, .npy and .csv. Nothing is unpickled."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import ArrayDataset, count_classes
from smoothcert.data.csv_files import read_csv_table
from smoothcert.errors import DataError, InputError
from smoothcert.records import IntArray
from smoothcert.records.class_names import NO_LABEL, find_position

_NPY = b"\x93NUMPY"
InputRange = tuple[float, float] | None

_INPUT_KEYS = ("x", "inputs", "images", "data")
_LABEL_KEYS = ("y", "labels", "label", "targets")
_MOST_CLASSES = 1_000_000
"""More than any classifier has. A larger label is a mistake, and a name for each class would fill the memory."""
_BOMB_BYTES, _BOMB_RATIO = 2**30, 200
"""A larger array with a higher compression ratio is refused as a decompression bomb."""


@dataclass(frozen=True, slots=True)
class RawData:
    """Content of a file before validation. labels: numbers or texts, None if there are none. classes: least number of
    classes. texts: labels that are texts, also of other splits.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any] | None
    classes: int = 0
    class_names: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset()
    feature_names: tuple[str, ...] = ()


def load_file(
    path: Path,
    *,
    split: str,
    input_range: InputRange,
    input_shape: tuple[int, ...] | None = None,
    num_classes: int | None = None,
    label_column: str | None = None,
) -> ArrayDataset:
    """Load a dataset from one file.

    .npz: arrays x_SPLIT and y_SPLIT, or x and y (also inputs, images or data; labels, label or targets), and optionally
        class_names, and feature_names of the columns.
    .npy: inputs; labels in NAME_labels.npy or labels.npy beside it, otherwise the inputs are unlabelled.
    .csv: one input per line. With a header the labels are in the column `label_column`, or the one named label, target,
        class or y, and the others are named features; without a header the label is last.
    Unlabelled inputs have label -1. Labels that are texts are numbered by class_names, or in sorted order. A file
    without splits is the same for every split.

    uint8 inputs are divided by 255 and marked as 8-bit; bool inputs become 0 and 1. Other values are not changed and
    must lie within `input_range` (None: any). input_shape: reshape each input to this. num_classes: default one more
    than the largest label.
    """
    if num_classes is not None and num_classes > _MOST_CLASSES:
        raise InputError(f"num_classes={num_classes} is too large: expected at most {_MOST_CLASSES:,}")
    if label_column is not None and path.suffix.lower() != ".csv":
        raise InputError(f"label_column {label_column!r} is for .csv files: {path} has no columns with names")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path} has an unknown ending: expected {', '.join(_READERS)} or a folder of class folders")
    if not path.is_file():
        raise DataError(f"{path} does not exist")
    try:
        raw = reader(path, split, label_column)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return make_dataset(
        path, raw, split=split, input_range=input_range, input_shape=input_shape, num_classes=num_classes
    )


def make_dataset(
    path: Path,
    raw: RawData,
    *,
    split: str,
    input_range: InputRange,
    input_shape: tuple[int, ...] | None = None,
    num_classes: int | None = None,
) -> ArrayDataset:
    """The dataset in a file with this content, as `load_file` describes it."""
    stored, levels = _convert_inputs(path, raw.inputs, input_range)
    values = math.prod(stored.shape[1:])
    if len(raw.feature_names) not in (0, values):
        raise DataError(f"{path} has {len(raw.feature_names)} feature_names for inputs of {values} values")
    labels, names = _convert_labels(path, raw, len(stored))
    if raw.texts and num_classes not in (None, len(names)):
        raise InputError(f"{path} has labels of {len(names)} classes, but num_classes is {num_classes}")
    classes = num_classes
    if classes is None:
        classes = len(names) if raw.texts else count_classes(labels, least=raw.classes)
    if classes > _MOST_CLASSES:
        raise DataError(
            f"{path} has labels up to {classes - 1}: expected whole numbers 0, 1, 2, … below {_MOST_CLASSES:,}"
        )
    return ArrayDataset(
        name=path.stem,
        split=split,
        stored=_reshape(path, stored, input_shape),
        labels=labels,
        num_classes=classes,
        class_names=names if len(names) == classes else (),
        input_range=input_range,
        levels=levels,
        feature_names=raw.feature_names,
        has_text_labels=bool(raw.texts),
    )


def _read_npz(path: Path, split: str, _label_column: str | None) -> RawData:
    with path.open("rb") as stream:
        archive = _load_numpy(path, stream)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path} is named .npz but is not an npz archive")
        keys = {key.lower(): key for key in archive.files}
        input_key, label_key = _find_keys(path, keys, split)
        names = _read_names(path, archive, keys.get("class_names"))
        every = [_read_member(path, archive, key) for key in _list_label_keys(keys)]
        return RawData(
            inputs=_read_member(path, archive, input_key),
            labels=None if label_key is None else _read_member(path, archive, label_key),
            classes=max([len(names), *(_largest_label(labels) + 1 for labels in every)]),
            class_names=names,
            texts=frozenset().union(*map(_list_texts, every)),
            feature_names=_read_names(path, archive, keys.get("feature_names")),
        )


def _read_names(path: Path, archive: np.lib.npyio.NpzFile, key: str | None) -> tuple[str, ...]:
    return () if key is None else tuple(str(name) for name in _read_member(path, archive, key).ravel())


def _find_keys(path: Path, keys: dict[str, str], split: str) -> tuple[str, str | None]:
    pairs = [
        (template.format(x), template.format(y))
        for template in (f"{{}}_{split}", f"{split}_{{}}", "{}")
        for x in _INPUT_KEYS
        for y in _LABEL_KEYS
    ]
    for x, y in pairs:
        if x in keys and y in keys:
            return keys[x], keys[y]
    for x, _ in pairs:
        if x in keys:
            return keys[x], None
    raise DataError(
        f"{path} holds {', '.join(sorted(keys.values())) or 'nothing'}: expected x_{split} and y_{split}, or x and y,"
        " or inputs and labels, or images and labels"
    )


def _list_label_keys(keys: dict[str, str]) -> list[str]:
    """Label arrays of all splits: a class may occur only in the other split."""
    templates = ("{}", "{}_train", "{}_test", "train_{}", "test_{}")
    names = [template.format(name) for template in templates for name in _LABEL_KEYS]
    return [keys[name] for name in names if name in keys]


def _largest_label(labels: NDArray[Any]) -> int:
    return int(labels.max()) if labels.size and labels.dtype.kind in "iub" else -1


def _list_texts(labels: NDArray[Any]) -> frozenset[str]:
    """The labels that are texts; none if they are numbers."""
    return frozenset(np.unique(labels).tolist()) if labels.dtype.kind == "U" else frozenset()


def _read_member(path: Path, archive: np.lib.npyio.NpzFile, key: str) -> NDArray[Any]:
    try:
        assert archive.zip is not None  # the archive is open
        _check_member(archive.zip, key)
        return np.asarray(archive[key])
    except OSError:
        raise
    except Exception as error:  # numpy and zipfile raise many types for a damaged file
        raise DataError(f"{path}: array {key} {_explain(error)}") from error


def _read_npy(path: Path, _split: str, _label_column: str | None) -> RawData:
    inputs = _load_npy(path)
    for candidate in (path.with_name(f"{path.stem}_labels.npy"), path.with_name("labels.npy")):
        if candidate != path and candidate.is_file():
            labels = _load_npy(candidate)
            return RawData(inputs=inputs, labels=labels, texts=_list_texts(labels))
    return RawData(inputs=inputs, labels=None)


def _load_npy(path: Path) -> NDArray[Any]:
    with path.open("rb") as stream:
        loaded = _load_numpy(path, stream)
    if not isinstance(loaded, np.ndarray):
        raise DataError(f"{path} is named .npy but is not a single numpy array")
    return loaded


def _load_numpy(path: Path, stream: BinaryIO) -> Any:
    # The caller owns the stream: numpy does not close a file that it opened itself if the content is damaged.
    try:
        if stream.read(len(_NPY)) == _NPY:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            _check_array_size(stream, size)
        stream.seek(0)
        return np.load(stream, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # numpy and zipfile raise many types for a damaged file
        raise DataError(f"{path} {_explain(error)}") from error


def _check_member(archive: zipfile.ZipFile, key: str) -> None:
    """Raise ValueError if a member of an npz archive is a decompression bomb or shorter than its array."""
    member = archive.getinfo(key if key in archive.NameToInfo else f"{key}.npy")
    if member.file_size > max(_BOMB_BYTES, _BOMB_RATIO * member.compress_size):
        raise ValueError(f"unpacking {member.compress_size:,} to {member.file_size:,} bytes is refused")
    with archive.open(member) as stream:
        _check_array_size(stream, member.file_size)


def _check_array_size(stream: IO[bytes], size: int) -> None:
    """Raise ValueError if the array announced in the header does not fit into `size` bytes.

    numpy would allocate memory for the array before reading it.
    """
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not supported")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    if any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"shape {shape} is invalid")
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"an array of shape {shape} does not fit into its {size:,} bytes")


def _explain(error: Exception) -> str:
    if "allow_pickle" in str(error) or "pickled" in str(error):
        return "contains Python objects, which are never unpickled: save plain numeric arrays"
    return f"is damaged or not a numpy file: {error}"


def _read_csv(path: Path, _split: str, label_column: str | None) -> RawData:
    table = read_csv_table(path, label_column=label_column)
    return RawData(
        inputs=table.inputs,
        labels=table.labels,
        texts=_list_texts(table.labels),
        feature_names=table.feature_names,
    )


_READERS: dict[str, Callable[[Path, str, str | None], RawData]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".csv": _read_csv,
}
FILE_ENDINGS = tuple(_READERS)


def _convert_inputs(path: Path, inputs: NDArray[Any], input_range: InputRange) -> tuple[NDArray[Any], int | None]:
    """Returns the array to store and its number of grid levels."""
    if inputs.ndim < 2 or inputs.size == 0:
        raise DataError(f"{path}: inputs have shape {inputs.shape}: expected (n, …), one row per input")
    if inputs.dtype == np.uint8:
        stored, levels = inputs, 256
    elif inputs.dtype == np.bool_:
        stored, levels = inputs.astype(np.uint8), 2
    elif inputs.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            stored, levels = np.asarray(inputs, dtype=np.float32), None
        _refuse_non_finite(path, stored)
        _refuse_out_of_range(path, stored, input_range)
    else:
        raise DataError(f"{path}: inputs are {inputs.dtype}: expected floats in [0, 1] or 8-bit images (uint8)")
    return stored, levels


def _refuse_non_finite(path: Path, values: NDArray[np.float32]) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        rows = np.flatnonzero(~finite.reshape(len(values), -1).all(axis=1))
        raise DataError(
            f"{path}: {len(rows)} of {len(values)} inputs contain NaN or infinite values, the first is input {rows[0]};"
            " they cannot be certified: repair or remove them"
        )


def _refuse_out_of_range(path: Path, values: NDArray[np.float32], input_range: InputRange) -> None:
    if input_range is None:
        return
    low, high = float(values.min()), float(values.max())
    if input_range[0] <= low and high <= input_range[1]:
        return
    actual, expected = f"[{low:.4g}, {high:.4g}]", f"[{input_range[0]:g}, {input_range[1]:g}]"
    any_range = "pass input_range=None (--input-range any on the command line)"
    if low >= 0 and 1 < high <= 255 and bool((values == np.rint(values)).all()):
        hint = f"these look like 8-bit images: save them as uint8, or divide by 255; or {any_range}"
    else:
        hint = f"put Standardise inside the model; or, if the data has no pixel units, {any_range}"
    raise DataError(f"{path}: inputs lie in {actual}, not in {expected}: sigma is in pixel units; {hint}")


def _convert_labels(path: Path, raw: RawData, count: int) -> tuple[IntArray, tuple[str, ...]]:
    """Labels as positions, and the names of the classes if the file has any."""
    labels = raw.labels
    if labels is None:
        return np.full(count, NO_LABEL, dtype=np.int64), raw.class_names
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (count,):
        hint = "; one-hot rows become labels with argmax(axis=1)" if labels.ndim == 2 else ""
        raise DataError(f"{path}: {count} inputs but labels of shape {labels.shape}: expected ({count},){hint}")
    if labels.dtype.kind == "U":
        return _number_texts(path, labels, raw.class_names or tuple(sorted(raw.texts)))
    return _check_numbers(path, labels), raw.class_names


def _number_texts(path: Path, labels: NDArray[Any], names: tuple[str, ...]) -> tuple[IntArray, tuple[str, ...]]:
    present, places = np.unique(labels, return_inverse=True)
    try:
        found = np.array([find_position(text, names) for text in present.tolist()], dtype=np.int64)
    except InputError as error:
        raise DataError(f"{path}: class_names and labels differ: {error}") from error
    return found[places], names


def _check_numbers(path: Path, labels: NDArray[Any]) -> IntArray:
    if labels.dtype.kind not in "iufb":
        raise DataError(f"{path}: labels are {labels.dtype}: expected whole numbers 0, 1, 2, … or texts")
    whole = labels.astype(np.float64)
    bad = ~(np.isfinite(whole) & (whole == np.rint(whole)) & (whole >= NO_LABEL) & (whole < _MOST_CLASSES))
    if bad.any():
        index = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"{path}: the label of input {index} is {labels[index]}: expected whole numbers 0, 1, 2, …, or -1, below"
            f" {_MOST_CLASSES:,}"
        )
    return whole.astype(np.int64)


def _reshape(path: Path, stored: NDArray[Any], shape: tuple[int, ...] | None) -> NDArray[Any]:
    if shape is None:
        return stored
    if math.prod(shape) != math.prod(stored.shape[1:]) or any(side < 1 for side in shape):
        raise InputError(f"{path}: inputs of shape {stored.shape[1:]} cannot be reshaped to {shape}")
    return stored.reshape(len(stored), *shape)
