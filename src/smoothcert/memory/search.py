"""Which of many stored balls can be near a point: a sketch of every centre bounds its distance from below.

A centre x is kept as v(x) = (B(x-c), ‖(x-c) - BᵀB(x-c)‖): its coordinates in a few directions and the length of the
rest. For an orthonormal B that is no longer than x itself: ‖x-y‖² ≥ ‖B(x-y)‖² + (rest_x - rest_y)², because the rest of
x-y is at least as long as the lengths of the rests differ. And ‖x-y‖₁ ≥ ‖x-y‖₂. So a ball whose sketch is far from the
point's sketch is far from the point. What rounding can do is proved below and subtracted: a bound never exceeds the
true distance, and a ball about which nothing is known has the bound zero.

Each process makes the sketches for itself. They speed up and decide nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.memory.log import Centre
from smoothcert.records import FloatArray, IntArray

DIRECTIONS = 128
MORE_DIRECTIONS = 512
"""For inputs like white noise, of which the usual number shows less than half."""
SAMPLE = 1024
"""Centres the directions are fitted to."""

SINGLE = 2.0**-24
_DOUBLE = 2.0**-53
_LONGEST = 1e15
"""Centres farther than this from the middle have no sketch: their squares leave the range of single precision."""
LEAST = 2.0**-120
"""More than what underflow in single precision can take off a sum of a few hundred terms."""
_LARGEST_DEFECT = 1e-6
_ITERATIONS = 4
_CELLS_AT_ONCE = 1 << 22
_SAMPLE_CELLS = 1 << 25


@dataclass(frozen=True, slots=True, eq=False)
class Sketcher:
    """The map from points to sketches.

    middle: c, (d,) float64. basis: B, (k, d) float64, or None for the identity. defect: ε ≥ ‖BBᵀ - I‖.
    """

    middle: FloatArray
    basis: FloatArray | None
    defect: float

    @classmethod
    def fit(cls, sample: Centre) -> Sketcher:
        """Directions in which the sample varies most. sample: (m, d) float32, m ≥ 1."""
        # The median, not the mean: one input far out must not make all others look far from the middle, and their
        # sketches coarse.
        middle = np.median(sample.astype(np.float64), axis=0)
        if sample.shape[1] <= DIRECTIONS:
            return cls(middle, None, 0.0)
        deviations = sample - middle
        basis = _principal_directions(deviations, DIRECTIONS)
        if _share_shown(deviations, basis) < 0.5 and sample.shape[1] > MORE_DIRECTIONS:
            basis = _principal_directions(deviations, MORE_DIRECTIONS)
        return cls(middle, basis, _defect(basis))

    @property
    def width(self) -> int:
        return len(self.middle) if self.basis is None else len(self.basis) + 1

    @property
    def error(self) -> float:
        """τ: a sketch in single precision is within τ‖x-c‖ + 2^-120 of one that never exceeds distances.

        Let z = x-c. Computing it in float64 moves it by at most u‖z‖, u = 2^-53. For the identity the sketch is that,
        rounded to float32: 2^-24‖z‖ more.

        Otherwise let Q = (BBᵀ)^-½ B, orthonormal with the same rows' span, for which the bound holds exactly. As
        ‖BBᵀ - I‖ ≤ ε: ‖Bz - Qz‖ ≤ ε‖z‖ and |‖Bz‖² - ‖Qz‖²| ≤ ε‖z‖². The computed Bz errs by at most
        √k γ(1+ε)‖z‖, γ = γ_{d}, whatever the order of summation (Higham 2002, section 3.1), so ‖Bz‖² by at most
        (2√k γ + γ_{k+2})(1+ε)²‖z‖², and ‖z‖² by γ_{d+2}‖z‖². The rest's square is a difference of those, so it errs by
        at most ω‖z‖² with ω as below, more than twice the sum of all these; and |√a - √b| ≤ √|a-b|. In 2√ω there is
        room for ε + √kγ + u ≤ ω ≤ √ω, and in 2^-23 for the rounding to float32, since ‖v‖ ≤ (1+√ω)‖z‖.
        """
        if self.basis is None:
            return 2.0**-23
        k, d = self.basis.shape
        gamma = (d + k + 8) * _DOUBLE / (1.0 - (d + k + 8) * _DOUBLE)
        omega = 4.0 * (self.defect + (2.0 * math.sqrt(k) + 3.0) * gamma)
        return 2.0**-23 + 2.0 * math.sqrt(omega)

    def sketch(self, points: Centre) -> tuple[NDArray[np.float32], FloatArray]:
        """Sketches and how far each may be from the exact one; that is inf where nothing is known.

        points: (n, d) float32. Returns (n, width) float32 and (n,) float64.
        """
        out = np.empty((len(points), self.width), dtype=np.float32)
        errors = np.empty(len(points))
        rows = max(1, _CELLS_AT_ONCE // points.shape[1])
        for start in range(0, len(points), rows):
            part = slice(start, start + rows)
            out[part], errors[part] = self._sketch(points[part])
        return out, errors

    def _sketch(self, points: Centre) -> tuple[FloatArray, FloatArray]:
        z = points - self.middle
        squares = np.einsum("ij,ij->i", z, z)
        lengths = np.sqrt(squares)
        vectors = z
        if self.basis is not None:
            coordinates = z @ self.basis.T
            rest = squares - np.einsum("ij,ij->i", coordinates, coordinates)
            vectors = np.column_stack((coordinates, np.sqrt(np.maximum(rest, 0.0))))
        known = (lengths <= _LONGEST) & (self.defect <= _LARGEST_DEFECT)
        errors = np.where(known, self.error * lengths + LEAST, np.inf)
        return np.where(known[:, None], vectors, 0.0), errors


def _share_shown(deviations: FloatArray, basis: FloatArray) -> float:
    """How much of the squares of the deviations lies in these directions."""
    whole = float(np.square(deviations).sum())
    return float(np.square(deviations @ basis.T).sum()) / whole if whole > 0 else 1.0


def _principal_directions(deviations: FloatArray, most: int) -> FloatArray:
    """(k, d), orthonormal as far as rounding lets it be, 1 ≤ k ≤ most. deviations: (m, d) from the middle.

    A few steps of subspace iteration with the m by m matrix of products, m being smaller than d as a rule. That the
    directions are the very best is not needed.
    """
    largest = np.abs(deviations).max(initial=0.0)
    scaled = deviations / largest if largest > 0 else deviations
    products = scaled @ scaled.T
    start = np.random.default_rng(0).standard_normal((len(scaled), min(most, len(scaled))))
    subspace = _orthonormal(start)
    for _ in range(_ITERATIONS):
        subspace = _orthonormal(products @ subspace)
    # Twice: the first time leaves an error that grows with how much the lengths of the columns differ.
    directions = _orthonormal(_orthonormal(scaled.T @ subspace))
    return np.ascontiguousarray(directions.T)


def _orthonormal(columns: FloatArray) -> FloatArray:
    """An orthonormal basis of the span of the columns, without what is lost in rounding; at least one column."""
    squares, vectors = np.linalg.eigh(columns.T @ columns)
    kept = squares > 1e-12 * squares[-1]
    if not kept.any():
        return np.eye(len(columns), 1)
    basis: FloatArray = columns @ (vectors[:, kept] / np.sqrt(squares[kept]))
    return basis


def _defect(basis: FloatArray) -> float:
    """ε ≥ ‖BBᵀ - I‖₂: the Frobenius norm of what is computed, and of what computing it can have hidden.

    Each product of two rows errs by at most γ_d‖b_i‖‖b_j‖ (Higham 2002, section 3.1); rows of a basis that passes are
    shorter than 1.01, so the Frobenius norm of all errors is below 1.03 k γ_d. The factor covers the rounding of the
    norm itself. Whatever is not a number is taken for infinite.
    """
    k, d = basis.shape
    seen = float(np.linalg.norm(basis @ basis.T - np.eye(k)))
    hidden = 1.1 * k * (d + 2) * _DOUBLE
    defect = (seen + hidden) * 1.01
    return defect if math.isfinite(defect) else math.inf


class BallIndex:
    """All balls of a memory, without their centres. Ball i is the claim at position i+1."""

    def __init__(self, sketcher: Sketcher | None = None) -> None:
        """Without a sketcher every bound is zero."""
        self._count = 0
        self._sketcher = sketcher
        self._labels = np.empty(0, dtype=np.int64)
        self._radii = np.empty(0)
        self._vectors = np.empty((0, 0 if sketcher is None else sketcher.width), dtype=np.float32)
        self._lowered = np.empty(0, dtype=np.float32)
        self._errors = np.empty(0)

    def __len__(self) -> int:
        return self._count

    @property
    def labels(self) -> IntArray:
        return self._labels[: self._count]

    @property
    def radii(self) -> FloatArray:
        return self._radii[: self._count]

    @property
    def vectors(self) -> NDArray[np.float32]:
        """(n, width): the sketches."""
        return self._vectors[: self._count]

    @property
    def errors(self) -> FloatArray:
        """How far each sketch may be from the exact one; inf where nothing is known."""
        return self._errors[: self._count]

    def add(self, centres: Centre, labels: IntArray, radii: FloatArray) -> None:
        """centres: (n, d) float32; labels, radii: (n,)."""
        stop = self._count + len(labels)
        self._reserve(stop)
        part = slice(self._count, stop)
        self._labels[part], self._radii[part] = labels, radii
        if self._sketcher is None:
            self._errors[part] = np.inf
        else:
            vectors, self._errors[part] = self._sketcher.sketch(centres)
            self._vectors[part] = vectors
            self._lowered[part] = self._lowered_squares(vectors)
        self._count = stop

    def _reserve(self, size: int) -> None:
        if size <= len(self._labels):
            return
        room = max(size, len(self._labels) * 3 // 2, 256)
        for name in ("_labels", "_radii", "_vectors", "_lowered", "_errors"):
            old = getattr(self, name)
            new = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
            new[: self._count] = old[: self._count]
            setattr(self, name, new)

    @property
    def _relative_error(self) -> float:
        """η: the computed ‖v‖² - 2v·w + ‖w‖² of two sketches is within η(‖v‖²+‖w‖²) of the true one.

        A product of m terms errs by at most γ_m Σ|v_i w_i| ≤ γ_m(‖v‖²+‖w‖²)/2, u = 2^-24, in whatever order the library
        adds; the two additions by at most 2u(1+u)(‖v‖²+‖w‖²) each, rounding the squares by u each. 16u is more than
        twice that. What underflows is in LEAST; nothing overflows, because ‖v‖ ≤ 1.1e15.
        """
        width = self._vectors.shape[1]
        return width * SINGLE / (1.0 - width * SINGLE) + 16.0 * SINGLE

    def _lowered_squares(self, vectors: NDArray[np.float32]) -> FloatArray:
        squares: FloatArray = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        return (1.0 - self._relative_error) * squares

    def distances_from_below(self, point: Centre) -> FloatArray:
        """A number ≤ the true distance, ℓ2 and so also ℓ1, and ≥ 0, for every ball's centre. point: (d,) float32."""
        if self._sketcher is None:
            return np.zeros(self._count)
        query, error = self._sketcher.sketch(point[None])
        if not math.isfinite(error[0]):
            return np.zeros(self._count)
        squares = self._vectors[: self._count] @ (-2.0 * query[0])
        squares += self._lowered[: self._count]
        squares += np.float32(self._lowered_squares(query)[0])
        # Twice the room for underflow: in the products and in the squares.
        lengths: FloatArray = np.subtract(squares, 2.0 * LEAST, dtype=np.float64)
        np.sqrt(np.maximum(lengths, 0.0, out=lengths), out=lengths)
        # The errors are summed and taken off in float64; the factors are far more than the roundings of that.
        lengths *= 1.0 - 2.0**-40
        lengths -= (self._errors[: self._count] + error[0]) * (1.0 + 2.0**-40)
        return np.maximum(lengths, 0.0, out=lengths)


def sample_size(*, claims: int, dimension: int) -> int:
    """How many centres to fit directions to, so that they fit into memory."""
    return max(1, min(claims, SAMPLE, _SAMPLE_CELLS // dimension))


def gaps_from_below(distances: FloatArray, radii: FloatArray) -> FloatArray:
    """Numbers ≤ d - r for distances known from below: the subtraction errs by at most 2^-53 of the larger term."""
    gaps = distances - radii
    gaps -= 2.0**-51 * np.maximum(distances, radii)
    return gaps
