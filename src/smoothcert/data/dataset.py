"""The interface of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from smoothcert.records import InputArray, IntArray


class Dataset(Protocol):
    """Labelled inputs of one split, in pixel units.

    labels: (len,) int64 in 0 … num_classes-1, or -1 for an input without a label.
    num_classes: number of classes that the data shows; 0 for data without labels.
    input_range: (low, high) that contains every value, (0.0, 1.0) for images; None if the data has no natural range.
    levels: k if every value is a multiple of 1/(k-1): 256 for 8-bit images, 17 for digits, 4081 for 4x4 block means of
        8-bit images; None if there is no grid.
    digest: SHA-256 of inputs and labels.
    """

    @property
    def name(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def input_shape(self) -> tuple[int, ...]: ...
    @property
    def input_range(self) -> tuple[float, float] | None: ...
    @property
    def levels(self) -> int | None: ...
    @property
    def labels(self) -> IntArray: ...
    @property
    def digest(self) -> str: ...

    def __len__(self) -> int: ...

    def inputs(self, indices: Sequence[int] | IntArray | slice, /) -> InputArray:
        """Read inputs: (len(indices), *input_shape) float32, a new C-contiguous array."""
