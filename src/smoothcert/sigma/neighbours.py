"""Exact nearest neighbours: a fast search proposes, an error bound excludes, double precision decides.

The search computes ‖x-p‖² as ‖p‖² - 2x·p + ‖x‖² with one matrix product in single precision. That loses digits to
cancellation, so its order proves nothing by itself. But its error is bounded: every point whose lowest possible
distance lies above the highest possible distance of k others is no neighbour. What is left, usually hardly more than k
points, is measured again by differences in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, InputArray, IntArray

_UNIT = 2.0**-24
"""Relative rounding error of one float32 operation."""
_COLUMNS = 1024
"""Products are summed in blocks of this many coordinates, then the blocks: the error grows with 1024 + d/1024 only."""
_SCORE_BYTES = 64 * 2**20
_ROWS_MEASURED_AT_ONCE = 2048
_LARGEST_SQUARE = 1e36
"""Beyond this, sums in single precision could overflow: then nothing is excluded."""
_GREYS = np.divide(np.arange(256), np.float32(255), dtype=np.float32)
"""The float32 values of 8-bit images."""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourIndex:
    """Points in space, and how far the nearest of them are.

    stored: (n, *input_shape), float32, or uint8 grey levels g that stand for float32(g/255).
    """

    stored: NDArray[Any] = field(repr=False)
    _centre: NDArray[np.float32] = field(init=False, repr=False)
    _centred: NDArray[np.float32] = field(init=False, repr=False)
    _lowest_squares: NDArray[np.float32] = field(init=False, repr=False)
    _squares: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        flat = _as_floats(self.stored).reshape(len(self.stored), -1)
        with np.errstate(over="ignore"):
            # Seen from their middle the points have smaller norms, and the search smaller errors.
            centre = flat.mean(axis=0, dtype=np.float64).astype(np.float32)
            centred = flat - centre
            squares = np.einsum("ij,ij->i", centred, centred, dtype=np.float64)
            object.__setattr__(self, "_centre", centre)
            object.__setattr__(self, "_centred", centred)
            object.__setattr__(self, "_squares", squares)
            object.__setattr__(self, "_lowest_squares", ((1.0 - self._relative_error) * squares).astype(np.float32))

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(int(side) for side in self.stored.shape[1:])

    @property
    def _dimension(self) -> int:
        return math.prod(self.input_shape)

    @property
    def _relative_error(self) -> float:
        """η: a computed ‖p‖² - 2x·p is within η(‖x‖²+‖p‖²) of the true one, all seen from the centre.

        A sum of products in blocks of b errs by at most γ Σ|x_i p_i| with γ = m u/(1-m u), m = b + d/b, in whatever
        order the library adds (Higham 2002, section 3.1), and 2Σ|x_i p_i| ≤ ‖x‖²+‖p‖². Rounding x-c and p-c moves the
        squared distance by at most 4u(1+u)²(‖x‖²+‖p‖²), rounding ‖p‖² and the last addition by at most 4u times that
        sum. The 16u below are twice what these need, which also covers the rounding of the measurement in double
        precision: points that are excluded would have *measured* farther, so the result does not depend on how the
        library adds.
        """
        longest = min(self._dimension, _COLUMNS) + -(-self._dimension // _COLUMNS)
        return longest * _UNIT / (1.0 - longest * _UNIT) + 16.0 * _UNIT

    def distances(self, inputs: InputArray, *, k: int) -> FloatArray:
        """Distances to the k nearest points, the nearest first.

        inputs: (m, *input_shape) float32. Returns (m, k) float64, each within a relative error of 1e-14. A row depends
        on its input alone, to the bit; it is NaN where the input is not finite.
        """
        queries = self._checked(inputs, k)
        nearest = np.full((len(queries), k), np.nan)
        finite = np.flatnonzero(np.isfinite(queries).all(axis=1))
        rows = max(1, _SCORE_BYTES // (4 * len(self)))
        for start in range(0, len(finite), rows):
            chosen = finite[start : start + rows]
            for row, candidates in zip(chosen, self._candidates(queries[chosen], k), strict=True):
                nearest[row] = self._measured(queries[row], candidates, k)
        return nearest

    def _checked(self, inputs: InputArray, k: int) -> NDArray[np.float32]:
        if inputs.shape[1:] != self.input_shape or inputs.dtype != np.float32:
            raise InputError(
                f"inputs are {inputs.dtype} of shape {inputs.shape[1:]}; the points sigma was fitted on are float32 of "
                f"shape {self.input_shape}"
            )
        if not 1 <= k <= len(self):
            raise InputError(f"{k} nearest neighbours were asked for; there are {len(self)} points")
        return np.ascontiguousarray(inputs).reshape(len(inputs), self._dimension)

    def _candidates(self, queries: NDArray[np.float32], k: int) -> Iterator[IntArray]:
        """For every query, points that include its k nearest. queries: (m, d), all finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            lowest, squares = self._lowest_scores(queries)
            error = self._relative_error
            # Products below the smallest normal number may be lost altogether.
            lost = 2.0**-120 * self._dimension
            for scores, square in zip(lowest, squares, strict=True):
                near = np.argpartition(scores, k - 1)[:k]
                # Truly at most this far, in squares less ‖x‖²: k points are, so who is surely farther is no neighbour.
                reach = float((scores[near] + 2.0 * error * self._squares[near]).max()) + 2.0 * error * square + lost
                if not square + float(self._squares.max()) < _LARGEST_SQUARE:
                    reach = math.inf
                yield np.flatnonzero(~(scores > np.nextafter(np.float32(reach), np.float32(np.inf))))

    def _lowest_scores(self, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], FloatArray]:
        """(1-η)‖p‖² - 2x·p for every query and point, and ‖x‖² for every query, all seen from the centre."""
        centred = queries - self._centre
        squares = np.einsum("ij,ij->i", centred, centred, dtype=np.float64)
        centred *= -2.0
        scores: NDArray[np.float32] = np.matmul(centred[:, :_COLUMNS], self._centred[:, :_COLUMNS].T)
        for start in range(_COLUMNS, self._dimension, _COLUMNS):
            block = slice(start, start + _COLUMNS)
            scores += np.matmul(centred[:, block], self._centred[:, block].T)
        scores += self._lowest_squares
        return scores, squares

    def _measured(self, query: NDArray[np.float32], candidates: IntArray, k: int) -> FloatArray:
        """Sorted distances to the k nearest candidates."""
        squares = np.empty(len(candidates))
        for start in range(0, len(candidates), _ROWS_MEASURED_AT_ONCE):
            part = slice(start, start + _ROWS_MEASURED_AT_ONCE)
            points = _as_floats(self.stored[candidates[part]]).reshape(-1, self._dimension)
            differences = np.subtract(points, query, dtype=np.float64)
            # A plain sum along contiguous rows adds in an order that only the dimension decides; a product of the
            # linear algebra library would not.
            squares[part] = np.add.reduce(np.square(differences, out=differences), axis=1)
        squares.sort()
        return np.sqrt(squares[:k])


def compact(points: InputArray) -> NDArray[Any]:
    """The points as uint8 grey levels if every value is exactly float32(g/255), as in 8-bit images; else unchanged."""
    levels = np.empty(points.shape, dtype=np.uint8)
    for start in range(0, len(points), _ROWS_MEASURED_AT_ONCE):
        part = slice(start, start + _ROWS_MEASURED_AT_ONCE)
        values = points[part]
        if not bool(((values >= 0) & (values <= 1)).all()):
            return points
        np.rint(values * np.float32(255), out=levels[part], casting="unsafe")
        # Compared as bits: -0.0 is not 0.0 to a digest.
        if not np.array_equal(_GREYS[levels[part]].view(np.uint32), values.view(np.uint32)):
            return points
    return levels


def _as_floats(stored: NDArray[Any]) -> NDArray[np.float32]:
    return _GREYS[stored] if stored.dtype == np.uint8 else stored
