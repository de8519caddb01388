"""Lower bounds on the distances from a point to all stored centres, computed from short sketches of the centres.

The sketch of a centre x is v(x) = (B(x-c), ‖(x-c) - BᵀB(x-c)‖): its coordinates in a few directions and the length of
the rest. For an orthonormal B, ‖x-y‖² ≥ ‖B(x-y)‖² + (rest_x - rest_y)², because the rest of x-y is at least as long as
the difference of the lengths of the rests. And ‖x-y‖₁ ≥ ‖x-y‖₂. So a ball is far from a point if their sketches are far
from each other. Rounding errors are bounded and subtracted: a bound never exceeds the true distance, and is zero if
nothing is known.

Each process computes the sketches for itself. They make searches faster and change no result.
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
"""For inputs like white noise, where DIRECTIONS capture less than half of the variance."""
SAMPLE = 1024
"""Number of centres the directions are fitted to."""

SINGLE = 2.0**-24
_DOUBLE = 2.0**-53
_LONGEST = 1e15
"""Centres farther than this from the middle have no sketch: their squares exceed the range of float32."""
LEAST = 2.0**-120
"""More than underflow in float32 can remove from a sum of a few hundred terms."""
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
        """Fit the directions in which the sample varies most. sample: (m, d) float32, m ≥ 1."""
        # The median, not the mean: one outlier must not move the middle away from all other centres.
        middle = np.median(sample.astype(np.float64), axis=0)
        if sample.shape[1] <= DIRECTIONS:
            return cls(middle, None, 0.0)
        deviations = sample - middle
        basis = _find_directions(deviations, DIRECTIONS)
        if _captured_share(deviations, basis) < 0.5 and sample.shape[1] > MORE_DIRECTIONS:
            basis = _find_directions(deviations, MORE_DIRECTIONS)
        return cls(middle, basis, _bound_defect(basis))

    @property
    def width(self) -> int:
        return len(self.middle) if self.basis is None else len(self.basis) + 1

    @property
    def error(self) -> float:
        """τ: a float32 sketch is within τ‖x-c‖ + 2^-120 of an exact sketch whose distances never exceed the true ones.

        Let z = x-c. Computing it in float64 moves it by at most u‖z‖, u = 2^-53. Without a basis the sketch is z
        rounded to float32, which adds 2^-24‖z‖.

        Otherwise let Q = (BBᵀ)^-½ B, orthonormal with the same row span; for Q the bound holds exactly. As
        ‖BBᵀ - I‖ ≤ ε: ‖Bz - Qz‖ ≤ ε‖z‖ and |‖Bz‖² - ‖Qz‖²| ≤ ε‖z‖². The computed Bz has an error of at most
        √k γ(1+ε)‖z‖, γ = γ_{d}, in any order of summation (Higham 2002, section 3.1); so ‖Bz‖² has one of at most
        (2√k γ + γ_{k+2})(1+ε)²‖z‖², and ‖z‖² one of γ_{d+2}‖z‖². The square of the rest is the difference of those two,
        with an error of at most ω‖z‖²; ω below is more than twice the sum. Also |√a - √b| ≤ √|a-b|. The term 2√ω
        covers ε + √kγ + u ≤ ω ≤ √ω, and 2^-23 the rounding to float32, since ‖v‖ ≤ (1+√ω)‖z‖.
        """
        if self.basis is None:
            return 2.0**-23
        k, d = self.basis.shape
        gamma = (d + k + 8) * _DOUBLE / (1.0 - (d + k + 8) * _DOUBLE)
        omega = 4.0 * (self.defect + (2.0 * math.sqrt(k) + 3.0) * gamma)
        return 2.0**-23 + 2.0 * math.sqrt(omega)

    def sketch(self, points: Centre) -> tuple[NDArray[np.float32], FloatArray]:
        """Return sketches, (n, width) float32, and bounds on their errors, (n,) float64; inf if nothing is known.

        points: (n, d) float32.
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


def _captured_share(deviations: FloatArray, basis: FloatArray) -> float:
    """The share of the sum of squares of the deviations that lies in these directions."""
    whole = float(np.square(deviations).sum())
    return float(np.square(deviations @ basis.T).sum()) / whole if whole > 0 else 1.0


def _find_directions(deviations: FloatArray, most: int) -> FloatArray:
    """Approximate principal directions, (k, d), orthonormal up to rounding, 1 ≤ k ≤ most. deviations: (m, d).

    A few steps of subspace iteration with the m by m matrix of products; m is usually smaller than d.
    """
    largest = np.abs(deviations).max(initial=0.0)
    scaled = deviations / largest if largest > 0 else deviations
    products = scaled @ scaled.T
    start = np.random.default_rng(0).standard_normal((len(scaled), min(most, len(scaled))))
    subspace = _orthonormalise(start)
    for _ in range(_ITERATIONS):
        subspace = _orthonormalise(products @ subspace)
    # Twice: the error of the first pass grows with the differences between the lengths of the columns.
    directions = _orthonormalise(_orthonormalise(scaled.T @ subspace))
    return np.ascontiguousarray(directions.T)


def _orthonormalise(columns: FloatArray) -> FloatArray:
    """An orthonormal basis of the span of the columns, up to rounding, with at least one column."""
    squares, vectors = np.linalg.eigh(columns.T @ columns)
    kept = squares > 1e-12 * squares[-1]
    if not kept.any():
        return np.eye(len(columns), 1)
    basis: FloatArray = columns @ (vectors[:, kept] / np.sqrt(squares[kept]))
    return basis


def _bound_defect(basis: FloatArray) -> float:
    """ε ≥ ‖BBᵀ - I‖₂: the computed Frobenius norm plus a bound on its rounding error; inf if it is not finite.

    Each product of two rows has an error of at most γ_d‖b_i‖‖b_j‖ (Higham 2002, section 3.1). Rows of an accepted basis
    are shorter than 1.01, so the Frobenius norm of all errors is below 1.03 k γ_d. The factor covers the rounding of
    the norm itself.
    """
    k, d = basis.shape
    computed = float(np.linalg.norm(basis @ basis.T - np.eye(k)))
    rounding = 1.1 * k * (d + 2) * _DOUBLE
    defect = (computed + rounding) * 1.01
    return defect if math.isfinite(defect) else math.inf


class BallIndex:
    """All balls of a memory, without their centres."""

    def __init__(self, sketcher: Sketcher | None = None) -> None:
        """Without a sketcher all bounds on distances are zero."""
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
        """The sketches, (n, width)."""
        return self._vectors[: self._count]

    @property
    def errors(self) -> FloatArray:
        """Bounds on the errors of the sketches, (n,); inf if nothing is known."""
        return self._errors[: self._count]

    def add(self, centres: Centre, labels: IntArray, radii: FloatArray) -> None:
        """Append balls. centres: (n, d) float32; labels, radii: (n,)."""
        stop = self._count + len(labels)
        self._reserve(stop)
        part = slice(self._count, stop)
        self._labels[part], self._radii[part] = labels, radii
        if self._sketcher is None:
            self._errors[part] = np.inf
        else:
            vectors, self._errors[part] = self._sketcher.sketch(centres)
            self._vectors[part] = vectors
            self._lowered[part] = self._lower_squares(vectors)
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

        Let u = 2^-24. A product of m terms has an error of at most γ_m Σ|v_i w_i| ≤ γ_m(‖v‖²+‖w‖²)/2 in any order of
        summation, the two additions at most 2u(1+u)(‖v‖²+‖w‖²) each, rounding the squares u each. 16u is more than
        twice that. LEAST covers underflow; nothing overflows, because ‖v‖ ≤ 1.1e15.
        """
        width = self._vectors.shape[1]
        return width * SINGLE / (1.0 - width * SINGLE) + 16.0 * SINGLE

    def _lower_squares(self, vectors: NDArray[np.float32]) -> FloatArray:
        squares: FloatArray = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        return (1.0 - self._relative_error) * squares

    def bound_gaps(self, point: Centre) -> FloatArray:
        """Lower bounds on the gaps d - r of all balls, (n,). point: (d,) float32."""
        distances = self.bound_distances(point)
        # The subtraction has an error of at most 2^-53 of the larger term.
        gaps = distances - self.radii
        gaps -= 2.0**-51 * np.maximum(distances, self.radii)
        return gaps

    def bound_distances(self, point: Centre) -> FloatArray:
        """Lower bounds ≥ 0 on the distances to all centres, (n,), in ℓ2 and so also in ℓ1. point: (d,) float32."""
        if self._sketcher is None:
            return np.zeros(self._count)
        query, error = self._sketcher.sketch(point[None])
        if not math.isfinite(error[0]):
            return np.zeros(self._count)
        squares = self._vectors[: self._count] @ (-2.0 * query[0])
        squares += self._lowered[: self._count]
        squares += np.float32(self._lower_squares(query)[0])
        # Underflow may happen twice: in the products and in the squares.
        lengths: FloatArray = np.subtract(squares, 2.0 * LEAST, dtype=np.float64)
        np.sqrt(np.maximum(lengths, 0.0, out=lengths), out=lengths)
        # The errors are summed and subtracted in float64; the factors cover the rounding of that.
        lengths *= 1.0 - 2.0**-40
        lengths -= (self._errors[: self._count] + error[0]) * (1.0 + 2.0**-40)
        return np.maximum(lengths, 0.0, out=lengths)


def draw_sample(*, claims: int, dimension: int, seed: int) -> IntArray:
    """Draw the positions of the claims to fit directions to, in order, so that their centres fit into memory."""
    size = max(1, min(claims, SAMPLE, _SAMPLE_CELLS // dimension))
    return np.sort(np.random.default_rng(seed).choice(claims, size=size, replace=False)) + 1
