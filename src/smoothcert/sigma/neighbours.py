"""Exact nearest neighbours: a fast search excludes points by a proven bound, the others are measured in float64.

The search computes ‖x-p‖² as ‖p‖² - 2x·p + ‖x‖² with one matrix product in float32. Cancellation makes this inaccurate,
but its error is bounded. A point whose lowest possible distance exceeds the highest possible distance of k others is no
neighbour. The remaining points, usually hardly more than k, are measured again by differences in float64.
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
"""Products are summed in blocks of this many coordinates, so that the error grows with 1024 + d/1024 only."""
_SCORE_BYTES = 64 * 2**20
_ROWS_MEASURED_AT_ONCE = 2048
_LARGEST_SQUARE = 1e36
"""Beyond this, sums in float32 could overflow, and nothing is excluded."""
_GREYS = np.divide(np.arange(256), np.float32(255), dtype=np.float32)
"""The float32 values of 8-bit images."""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourIndex:
    """Finds the distances to the nearest of n points.

    stored: (n, *input_shape), float32, or uint8 grey levels g that represent float32(g/255).
    """

    stored: NDArray[Any] = field(repr=False)
    _centre: NDArray[np.float32] = field(init=False, repr=False)
    _centred: NDArray[np.float32] = field(init=False, repr=False)
    _lowest_squares: NDArray[np.float32] = field(init=False, repr=False)
    _squares: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        flat = _as_floats(self.stored).reshape(len(self.stored), -1)
        with np.errstate(over="ignore"):
            # Relative to their mean the points have smaller norms, and the search has smaller errors.
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
        """η: a computed ‖p‖² - 2x·p is within η(‖x‖²+‖p‖²) of the true one, all relative to the centre.

        A sum of products in blocks of b has an error of at most γ Σ|x_i p_i| with γ = m u/(1-m u), m = b + d/b, in any
        order of summation (Higham 2002, section 3.1), and 2Σ|x_i p_i| ≤ ‖x‖²+‖p‖². Rounding x-c and p-c changes the
        squared distance by at most 4u(1+u)²(‖x‖²+‖p‖²), rounding ‖p‖² and the last addition by at most 4u times that
        sum. 16u is twice that and also covers the rounding of the measurement in float64: excluded points would have
        *measured* farther, so the result does not depend on the order of summation.
        """
        longest = min(self._dimension, _COLUMNS) + -(-self._dimension // _COLUMNS)
        return longest * _UNIT / (1.0 - longest * _UNIT) + 16.0 * _UNIT

    def distances(self, inputs: InputArray, *, k: int) -> FloatArray:
        """Return the distances to the k nearest points, the nearest first.

        inputs: (m, *input_shape) float32. Returns (m, k) float64 with a relative error of at most 1e-14. A row depends
        on its own input only, to the bit; it is NaN if the input is not finite.
        """
        queries = self._flatten(inputs, k)
        nearest = np.full((len(queries), k), np.nan)
        finite = np.flatnonzero(np.isfinite(queries).all(axis=1))
        rows = max(1, _SCORE_BYTES // (4 * len(self)))
        for start in range(0, len(finite), rows):
            chosen = finite[start : start + rows]
            for row, candidates in zip(chosen, self._candidates(queries[chosen], k), strict=True):
                nearest[row] = self._measure(queries[row], candidates, k)
        return nearest

    def _flatten(self, inputs: InputArray, k: int) -> NDArray[np.float32]:
        if inputs.shape[1:] != self.input_shape or inputs.dtype != np.float32:
            raise InputError(
                f"inputs are {inputs.dtype} of shape {inputs.shape[1:]}; the points sigma was fitted on are float32 of "
                f"shape {self.input_shape}"
            )
        if not 1 <= k <= len(self):
            raise InputError(f"{k} nearest neighbours are not possible: there are {len(self)} points")
        return np.ascontiguousarray(inputs).reshape(len(inputs), self._dimension)

    def _candidates(self, queries: NDArray[np.float32], k: int) -> Iterator[IntArray]:
        """For every query, points that include its k nearest. queries: (m, d), all finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            lowest, squares = self._lowest_scores(queries)
            error = self._relative_error
            # Products below the smallest normal number may underflow.
            lost = 2.0**-120 * self._dimension
            for scores, square in zip(lowest, squares, strict=True):
                near = np.argpartition(scores, k - 1)[:k]
                # At least k points have a true squared distance minus ‖x‖² of at most this.
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

    def _measure(self, query: NDArray[np.float32], candidates: IntArray, k: int) -> FloatArray:
        """Sorted distances to the k nearest candidates."""
        squares = np.empty(len(candidates))
        for start in range(0, len(candidates), _ROWS_MEASURED_AT_ONCE):
            part = slice(start, start + _ROWS_MEASURED_AT_ONCE)
            points = _as_floats(self.stored[candidates[part]]).reshape(-1, self._dimension)
            differences = np.subtract(points, query, dtype=np.float64)
            # In a plain sum along contiguous rows the order depends on the dimension only, unlike in a matrix product.
            squares[part] = np.add.reduce(np.square(differences, out=differences), axis=1)
        squares.sort()
        return np.sqrt(squares[:k])


def compact(points: InputArray) -> NDArray[Any]:
    """Return the points as uint8 grey levels if all values are exactly float32(g/255); otherwise unchanged."""
    levels = np.empty(points.shape, dtype=np.uint8)
    for start in range(0, len(points), _ROWS_MEASURED_AT_ONCE):
        part = slice(start, start + _ROWS_MEASURED_AT_ONCE)
        values = points[part]
        if not bool(((values >= 0) & (values <= 1)).all()):
            return points
        np.rint(values * np.float32(255), out=levels[part], casting="unsafe")
        # Compared as bits, because -0.0 and 0.0 have different digests.
        if not np.array_equal(_GREYS[levels[part]].view(np.uint32), values.view(np.uint32)):
            return points
    return levels


def _as_floats(stored: NDArray[Any]) -> NDArray[np.float32]:
    return _GREYS[stored] if stored.dtype == np.uint8 else stored
