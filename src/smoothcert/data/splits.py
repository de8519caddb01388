"""Training and test data: the splits of a dataset, or parts of one that has no splits."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import ArrayDataset, as_indices
from smoothcert.data.dataset import Dataset
from smoothcert.data.download_sources import ProgressCallback
from smoothcert.data.loading import load_dataset
from smoothcert.errors import DataError, InputError
from smoothcert.files import write_whole
from smoothcert.records import InputArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class DatasetPart:
    """Some inputs of a dataset, as a split of their own. indices: (k,) in `whole`."""

    whole: Dataset
    indices: IntArray
    split: str

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def num_classes(self) -> int:
        return self.whole.num_classes

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.whole.class_names

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.whole.input_shape

    @property
    def input_range(self) -> tuple[float, float] | None:
        return self.whole.input_range

    @property
    def levels(self) -> int | None:
        return self.whole.levels

    @property
    def labels(self) -> IntArray:
        labels: IntArray = self.whole.labels[self.indices]
        return labels

    @property
    def digest(self) -> str:
        """SHA-256 of the digest of the whole and of the indices."""
        sha = hashlib.sha256(f"smoothcert-part-1 {self.whole.digest}\n".encode())
        sha.update(self.indices.astype("<i8").tobytes())
        return sha.hexdigest()

    def __len__(self) -> int:
        return len(self.indices)

    def inputs(self, indices: Sequence[int] | IntArray | slice, /) -> InputArray:
        """Read inputs: (len(indices), *input_shape) float32."""
        return self.whole.inputs(self.indices[as_indices(indices, size=len(self), name=self.name)])


def load_splits(
    name_or_path: str, *, progress: ProgressCallback | None = None, **options: Any
) -> tuple[Dataset, Dataset | None]:
    """Load the training split and the test split. The latter is None where there are no test inputs of their own.

    A file without splits is the same for every split: its training inputs must not be taken for test inputs.
    options: further arguments of `load_dataset`.
    """
    train = load_dataset(name_or_path, split="train", progress=progress, **options)
    try:
        test = load_dataset(name_or_path, split="test", **options)
    except DataError:
        return train, None
    return train, None if _is_same(train, test) else test


def _is_same(first: Dataset, second: Dataset) -> bool:
    return np.array_equal(first.labels, second.labels) and first.digest == second.digest


def write_part(path: Path, part: DatasetPart) -> bool:
    """Write a part of a dataset in memory as an .npz file that `load_dataset` reads. False for images on disk."""
    if not isinstance(part.whole, ArrayDataset):
        return False
    arrays: dict[str, NDArray[Any]] = {"x": _storable_inputs(part, part.whole), "y": part.labels}
    if part.class_names != tuple(str(label) for label in range(part.num_classes)):
        arrays["class_names"] = np.array(part.class_names)
    if part.whole.feature_names:
        arrays["feature_names"] = np.array(part.whole.feature_names)
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    return True


def _storable_inputs(part: DatasetPart, whole: ArrayDataset) -> NDArray[Any]:
    """As a file states its grid: uint8 for 256 levels, bool for 2. Other values are stored as floats."""
    match whole.levels:
        case 256:
            return whole.stored[part.indices].astype(np.uint8)
        case 2:
            return whole.stored[part.indices].astype(np.bool_)
        case _:
            return part.inputs(slice(None))
