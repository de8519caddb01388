"""What a classifier answers at the points of a regular grid in the plane, and where those points lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, IntArray

UNDECIDED = -1
"""Stands where the samples settle on no class …"""
NOT_ASKED = -2
"""… and where the classifier takes no inputs."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A part of the plane, in the units of the inputs: (x, y) of its lower left and of its upper right corner."""

    low: tuple[float, float]
    high: tuple[float, float]

    def __post_init__(self) -> None:
        if not (np.isfinite([*self.low, *self.high]).all() and self.width > 0 and self.height > 0):
            raise InputError(f"there is no rectangle from {self.low} to {self.high}: finite sides > 0 were expected")

    @property
    def width(self) -> float:
        return self.high[0] - self.low[0]

    @property
    def height(self) -> float:
        return self.high[1] - self.low[1]

    def cells(self, *, longer: int) -> tuple[int, int]:
        """(rows, columns) of cells that are nearly square, `longer` of them along the longer side; at least one."""
        side = max(self.width, self.height) / longer
        return max(1, round(self.height / side)), max(1, round(self.width / side))

    def centres(self, rows: int, columns: int) -> FloatArray:
        """(rows, columns, 2): the middle (x, y) of every cell; row 0 is the lowest, column 0 the leftmost."""
        x = self.low[0] + (np.arange(columns) + 0.5) * (self.width / columns)
        y = self.low[1] + (np.arange(rows) + 0.5) * (self.height / rows)
        return np.stack(np.broadcast_arrays(x[None, :], y[:, None]), axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class DecisionMap:
    """An estimate of the decision regions; no certificate.

    answers: (rows, columns) int64: the class at the point of each cell, UNDECIDED or NOT_ASKED. points: (rows, columns,
    2): the (x, y) that was asked: the middle of the cell, or the input closest to it where inputs lie on a grid.
    n: samples behind an answer, which is wrong with probability at most alpha. remembered: points answered by a memory.
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
                f"answers of shape {self.answers.shape} at points of shape {self.points.shape} are no map: (rows, "
                "columns) and (rows, columns, 2) were expected"
            )

    @property
    def asked(self) -> int:
        """How many cells were asked about."""
        return int((self.answers != NOT_ASKED).sum())

    @property
    def classes(self) -> list[int]:
        """The classes that occur, ascending."""
        return [int(label) for label in np.unique(self.answers) if label >= 0]
