"""A dataset as a model takes it: its columns in the order of the model, its labels numbered by the model's classes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.dataset import Dataset
from smoothcert.errors import DataError, InputError
from smoothcert.records import InputArray, IntArray
from smoothcert.records.class_names import are_numbers, are_positions, find_position, list_names


@dataclass(frozen=True, slots=True, eq=False)
class MatchedDataset:
    """A dataset with its columns in another order, or its labels numbered in another way.

    order: where each column is in the base; None for the same order.
    """

    base: Dataset
    labels: IntArray = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    order: NDArray[np.int64] | None = field(repr=False)

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def split(self) -> str:
        return self.base.split

    @property
    def reads_files(self) -> bool:
        return reads_files(self.base)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.base.input_shape

    @property
    def input_range(self) -> tuple[float, float] | None:
        return self.base.input_range

    @property
    def levels(self) -> int | None:
        return self.base.levels

    @property
    def digest(self) -> str:
        """SHA-256 of the data as it was given, the order of the columns, and the labels."""
        order = None if self.order is None else self.order.tolist()
        changes = json.dumps([self.base.digest, order, self.labels.tolist(), self.num_classes])
        return hashlib.sha256(f"smoothcert-matched-data-1 {changes}".encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.base)

    def inputs(self, indices: Sequence[int] | IntArray | slice, /) -> InputArray:
        """Read inputs: (len(indices), *input_shape) float32, a new C-contiguous array."""
        read = self.base.inputs(indices)
        if self.order is None:
            return read
        columns = read.reshape(len(read), -1)[:, self.order]
        return np.ascontiguousarray(columns.reshape(read.shape))


def match_dataset(dataset: Dataset, *, class_names: Sequence[str], feature_names: Sequence[str]) -> Dataset:
    """The dataset with columns in the order of `feature_names` and labels as positions in `class_names`.

    Empty names leave columns or labels as they are. A DataError if the data has other columns, or other classes.
    """
    names, columns = tuple(class_names), get_feature_names(dataset)
    order = None
    if feature_names and columns:
        try:
            order = find_order(columns, feature_names)
        except InputError as error:
            raise DataError(f"{dataset.name} does not fit the model: {error}") from error
    labels = _number_labels(dataset, names)
    if order is None and names in ((), dataset.class_names):
        return dataset
    return MatchedDataset(dataset, labels, names or dataset.class_names, tuple(feature_names) or columns, order)


def get_feature_names(dataset: Dataset) -> tuple[str, ...]:
    """The names of the columns; empty if the data has none."""
    names: tuple[str, ...] = getattr(dataset, "feature_names", ())
    return names


def reads_files(dataset: Dataset) -> bool:
    """Whether inputs are read from files when they are asked for, by our own code, which any thread may run."""
    return bool(getattr(dataset, "reads_files", False))


def list_class_names(dataset: Dataset, num_classes: int) -> tuple[str, ...]:
    """The names of all classes; empty if they are only numbered, or if the data does not name each of them."""
    names = dataset.class_names
    return () if are_positions(names) or len(names) != num_classes else tuple(names)


def has_text_labels(dataset: Dataset) -> bool:
    """Whether labels were given as texts, which are numbered in sorted order."""
    return bool(getattr(dataset, "has_text_labels", False))


def find_order(columns: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64] | None:
    """Where each wanted column is; None if they are in that order. An InputError names missing and further columns."""
    if list(columns) == list(wanted):
        return None
    missing = [name for name in wanted if name not in set(columns)]
    further = [name for name in columns if name not in set(wanted)]
    if missing or further:
        told = [f"without the column {list_names(missing)}"] if missing else []
        told += [f"with the column {list_names(further)}, which the model does not take"] if further else []
        raise InputError(f"the data comes {', and '.join(told)}; the model was fitted on {list_names(wanted)}")
    if len(set(columns)) < len(columns):
        raise InputError("two columns of the data have the same name")
    places = {name: place for place, name in enumerate(columns)}
    return np.array([places[name] for name in wanted], dtype=np.int64)


def _number_labels(dataset: Dataset, names: tuple[str, ...]) -> IntArray:
    """The labels as positions in `names`."""
    own, labels = dataset.class_names, dataset.labels
    if not names or own == names:
        return labels
    present = np.unique(labels)
    by_name = not are_positions(own) and set(own) <= set(names)
    # Labels that were numbers may be classes that are named by numbers, whatever the data calls them.
    by_number = are_positions(own) or (are_numbers(names) and not has_text_labels(dataset))
    if not by_name and not by_number:
        unknown = [name for name in own if name not in set(names)]
        raise DataError(
            f"{dataset.name} has the class {list_names(unknown)}, which the model does not have: expected "
            f"{list_names(names)}"
        )
    try:
        found = [
            find_position(own[label] if by_name and label >= 0 else int(label), names) for label in present.tolist()
        ]
    except InputError as error:
        raise DataError(f"{dataset.name} does not fit the model: {error}") from error
    numbered: IntArray = np.array(found, dtype=np.int64)[np.searchsorted(present, labels)]
    return numbered
