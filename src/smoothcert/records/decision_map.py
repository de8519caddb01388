"""The answers of a classifier at the points of a regular grid in the plane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, IntArray

UNDECIDED = -1
"""Stands for a point at which no class is proved."""
NOT_ASKED = -2
"""Stands for a point that the classifier does not accept as an input."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A part of the plane, in units of the inputs. low, high: (x, y) of the lower left and upper right corner."""

    low: tuple[float, float]
    high: tuple[float, float]

    def __post_init__(self) -> None:
        if not (np.isfinite([*self.low, *self.high]).all() and self.width > 0 and self.height > 0):
            raise InputError(f"invalid rectangle from {self.low} to {self.high}: expected finite sides > 0")

    @property
    def width(self) -> float:
        return self.high[0] - self.low[0]

    @property
    def height(self) -> float:
        return self.high[1] - self.low[1]

    def cells(self, *, longer: int) -> tuple[int, int]:
        """(rows, columns) of nearly square cells, `longer` of them along the longer side, at least one per side."""
        side = max(self.width, self.height) / longer
        return max(1, round(self.height / side)), max(1, round(self.width / side))

    def centres(self, rows: int, columns: int) -> FloatArray:
        """(rows, columns, 2): the centre (x, y) of each cell. Row 0 is the lowest, column 0 the leftmost."""
        x = self.low[0] + (np.arange(columns) + 0.5) * (self.width / columns)
        y = self.low[1] + (np.arange(rows) + 0.5) * (self.height / rows)
        return np.stack(np.broadcast_arrays(x[None, :], y[:, None]), axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class DecisionMap:
    """An estimate of the decision regions, not a certificate.

    points: (rows, columns, 2), the (x, y) of each cell: its centre, or the closest input if inputs lie on a grid.
    answers: (rows, columns) int64, the class at each point, UNDECIDED or NOT_ASKED. n: samples per answer. alpha: the
    largest probability that an answer is wrong. remembered: number of points answered by a memory.
    """

    rectangle: Rectangle
    points: FloatArray
    answers: IntArray
    n: int
    alpha: float
    remembered: int = 0

    def __post_init__(self) -> None:
        if self.answers.ndim != 2 or self.points.shape != (*self.answers.shape, 2):
            raise InputError(
                f"got answers of shape {self.answers.shape} and points of shape {self.points.shape}: expected (rows, "
                "columns) and (rows, columns, 2)"
            )

    @property
    def asked(self) -> int:
        """The number of cells with an answer or an abstention."""
        return int((self.answers != NOT_ASKED).sum())

    @property
    def classes(self) -> list[int]:
        """The classes that occur, in ascending order."""
        return [int(label) for label in np.unique(self.answers) if label >= 0]
