"""A dataset in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, InputError
from smoothcert.records import InputArray, IntArray

_GRID_DTYPES = (np.dtype(np.uint8), np.dtype(np.uint16))


@dataclass(frozen=True, slots=True, eq=False)
class ArrayDataset:
    """Inputs and labels in memory.

    stored: (n, *input_shape). Either float32 values (`levels` None), or uint8/uint16 grid numbers 0 … levels-1 whose
        values are number/(levels-1) in [0, 1], each rounded once to float32.
    labels: (n,) integers in 0 … num_classes-1; -1 means "no label".
    feature_names: names of the columns of flat inputs, if known. has_text_labels: labels were texts, numbered by
        class_names.
    Both arrays become read-only.
    """

    name: str
    split: str
    stored: NDArray[Any] = field(repr=False)
    labels: IntArray = field(repr=False)
    num_classes: int
    class_names: tuple[str, ...] = ()
    input_range: tuple[float, float] | None = (0.0, 1.0)
    levels: int | None = None
    feature_names: tuple[str, ...] = ()
    has_text_labels: bool = False
    _digest: str | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        stored = _read_only(np.ascontiguousarray(self.stored))
        labels = _read_only(np.asarray(self.labels, dtype=np.int64))
        object.__setattr__(self, "stored", stored)
        object.__setattr__(self, "labels", labels)
        if not self.class_names:
            object.__setattr__(self, "class_names", tuple(str(k) for k in range(self.num_classes)))
        self._check_shapes()
        self._check_values()

    def _check_shapes(self) -> None:
        if self.stored.ndim < 2 or 0 in self.stored.shape:
            raise DataError(
                f"{self.name}: inputs have shape {self.stored.shape}: expected (n, …) with at least one"
                " input and at least one value per input"
            )
        if self.labels.shape != (len(self.stored),):
            raise DataError(
                f"{self.name}: {len(self.stored)} inputs but labels of shape {self.labels.shape}: expected one label"
                " per input"
            )
        if len(self.class_names) != self.num_classes:
            raise DataError(f"{self.name}: {len(self.class_names)} class names, expected {self.num_classes}")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < -1 or high >= max(self.num_classes, 0):
            raise DataError(
                f"{self.name}: labels lie in {low} … {high}: expected 0 … {self.num_classes - 1}, or -1 for no label"
            )

    def _check_values(self) -> None:
        if self.levels is None:
            if self.stored.dtype != np.float32:
                raise DataError(f"{self.name}: inputs are {self.stored.dtype}, expected float32")
            return
        if self.stored.dtype not in _GRID_DTYPES or self.levels < 2 or int(self.stored.max()) >= self.levels:
            raise DataError(
                f"{self.name}: {self.levels} grid levels need uint8 or uint16 numbers 0 … {self.levels - 1},"
                f" not {self.stored.dtype} up to {self.stored.max()}"
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(int(side) for side in self.stored.shape[1:])

    @property
    def digest(self) -> str:
        """SHA-256 of grid, shape, values and labels; name and origin do not matter.

        Names of classes count where labels were texts.
        """
        if self._digest is None:
            digest = DataDigest(
                dtype=self.stored.dtype,
                levels=self.levels,
                shape=self.stored.shape,
                num_classes=self.num_classes,
                class_names=self.class_names if self.has_text_labels else None,
            )
            digest.add(self.stored)
            object.__setattr__(self, "_digest", digest.finish(self.labels))
        assert self._digest is not None
        return self._digest

    def __len__(self) -> int:
        return len(self.stored)

    def inputs(self, indices: Sequence[int] | IntArray | slice, /) -> InputArray:
        """Read inputs: (len(indices), *input_shape) float32, a new C-contiguous array."""
        selected = self.stored[as_indices(indices, size=len(self), name=self.name)]
        if self.levels is None:
            return np.array(selected, dtype=np.float32, order="C")
        # Divide instead of multiplying by 1/255: the quotient is the float32 nearest to the true value.
        return np.asarray(np.divide(selected, np.float32(self.levels - 1), dtype=np.float32))


class DataDigest:
    """The digest of a dataset whose stored inputs come in parts. class_names: if they count."""

    def __init__(
        self,
        *,
        dtype: np.dtype[Any],
        levels: int | None,
        shape: tuple[int, ...],
        num_classes: int,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self._sha = hashlib.sha256(f"smoothcert-data-1 {dtype.name} {levels} {shape} {num_classes}\n".encode())
        if class_names is not None:
            self._sha.update(json.dumps(class_names).encode())

    def add(self, part: NDArray[Any]) -> None:
        """The next stored inputs."""
        self._sha.update(_little_endian(part))

    def finish(self, labels: IntArray) -> str:
        """The digest, once all inputs were added."""
        self._sha.update(_little_endian(labels))
        return self._sha.hexdigest()


def count_classes(labels: IntArray, *, least: int) -> int:
    """The number of classes that labels show: at least two if there is any label or class; 0 without."""
    largest = max(int(labels.max()) + 1, least)
    return 0 if largest == 0 else max(2, largest)


def as_indices(indices: Sequence[int] | IntArray | slice, *, size: int, name: str) -> NDArray[np.int64] | slice:
    """Convert indices for numpy. Anything but whole numbers within the dataset is an InputError."""
    if isinstance(indices, slice):
        return indices
    array = np.asarray(indices)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{name}: indices must be a flat list of whole numbers, not {array.dtype} {array.shape}")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= size:
        raise InputError(f"{name}: index {low if low < 0 else high} is out of range: expected 0 … {size - 1}")
    return array.astype(np.int64)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view


def _little_endian(array: NDArray[Any]) -> memoryview:
    ordered = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return ordered.data.cast("B")
