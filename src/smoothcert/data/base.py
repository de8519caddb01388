"""What every dataset offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from smoothcert.records import InputArray, IntArray


class Dataset(Protocol):
    """Labelled inputs of one split, in pixel units.

    labels: (len,) int64 in 0 … num_classes-1, or -1 where an input has no label.
    num_classes: as far as the data knows; 0 for data without labels (the model knows better).
    input_range: (low, high) every value lies in, (0.0, 1.0) for images; None where the data has no natural range.
    levels: number of grid values k if every value is a multiple of 1/(k-1): 256 for 8-bit images, 17 for digits,
        4081 for 4x4 block means of 8-bit images; None where there is no grid.
    digest: SHA-256 that identifies inputs and labels.
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
        """(len(indices), *input_shape) float32, a fresh C-contiguous array."""
