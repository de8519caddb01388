"""What every dataset offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from smoothcert.records import InputArray, IntArray


class Dataset(Protocol):
    """Labelled inputs of one split, in pixel units.

    input_range: (low, high) every value lies in, (0.0, 1.0) for images; None where the data has no natural range.
    levels: 256 if every value is a multiple of 1/255 (8-bit origin), else None.
    digest: SHA-256 that identifies inputs and labels.
    """

    name: str
    split: str
    num_classes: int
    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    input_range: tuple[float, float] | None
    levels: int | None
    labels: IntArray

    @property
    def digest(self) -> str: ...

    def __len__(self) -> int: ...

    def inputs(self, indices: Sequence[int] | IntArray | slice, /) -> InputArray:
        """(len(indices), *input_shape) float32."""
