"""The ratios of two noise levels beyond which nothing can be certified between the points that use them.

One point has level σ₀ and class probability p_A, another point, at any distance, has level σ₁. Below the smallest or
above the largest ratio σ₁/σ₀ computed here the worst classifier changes its answer at distance 0, so no radius exists
(Súkeník et al. 2022, section 2: the curse of dimensionality). These are impossibility results, for planning a
σ-function; between the two ratios a certificate may exist or not.

All functions take p_a in [½, 1) and dimension ≥ 1, of shapes that broadcast, and return float64 of that shape. The
smallest ratios are rounded down and the largest up, so "nothing is certified" holds beyond them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import InputError
from smoothcert.numerics.logarithm import log1p_minus
from smoothcert.records import FloatArray

_MAX_STEPS = 100
_CONVERGED = 1e-9
"""Newton's method squares the error: after a step this small the next is below the rounding error."""
_MARGIN = 4e-15
_QUANTILE_MARGIN = 1e-12
"""A generous bound on the relative error of scipy's quantiles of the gamma law."""


def smallest_ratio(p_a: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """Theorem 4, first part: if σ₁/σ₀ is smaller than this, nothing is certified.

    The root below 1 of log q + 1 - q = 2 log(1-p_A)/N, q = (σ₁/σ₀)². Rounded down.
    """
    tail, size = _tail_and_size(p_a, dimension)
    deviation = -2.0 * np.log(tail) / size
    return _ratio_down(_root(deviation, start=-np.sqrt(2.0 * deviation) - deviation))


def largest_ratio(p_a: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """Theorem 4, second part: if σ₁/σ₀ is larger than this, nothing is certified.

    The root above 1 of log z + 1 - z = 2 log(1-p_A)/N, z = (σ₁/σ₀)² (N-1)/N. The proof needs z > 1, so the result is
    infinite for N = 1. Rounded up.
    """
    tail, size = _tail_and_size(p_a, dimension)
    deviation = -2.0 * np.log(tail) / size
    log_z = _root(deviation, start=np.log1p(np.sqrt(2.0 * deviation) + deviation))
    alone = size < 2
    rest = np.where(alone, np.inf, -np.log1p(-1.0 / np.where(alone, 2.0, size)))
    return _ratio_up(log_z + rest)


def simple_smallest_ratio(p_a: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """Corollary 5, in closed form and a little smaller: sqrt(1 - 2 sqrt(-log(1-p_A)/N)).

    0 where the root is not real and the corollary does not apply. Rounded down.
    """
    tail, size = _tail_and_size(p_a, dimension)
    squared = 1.0 - 2.0 * np.sqrt(-np.log(tail) / size) * (1.0 + _MARGIN)
    return np.sqrt(np.maximum(squared, 0.0)) * (1.0 - _MARGIN)


def practical_smallest_ratio(p_a: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """The σ₁/σ₀ < 1 at which the worst classifier has probability ½ at distance 0; Theorem 4 bounds it from below.

    sqrt(F⁻¹(1-p_A)/F⁻¹(½)), F the χ² law with N degrees of freedom. The "practical threshold" of the paper's figure 3.
    Rounded down.
    """
    tail, size = _tail_and_size(p_a, dimension)
    half = 0.5 * size
    ratio = np.sqrt(special.gammaincinv(half, tail) / special.gammaincinv(half, 0.5))
    return np.asarray(ratio * (1.0 - _QUANTILE_MARGIN))


def practical_largest_ratio(p_a: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """The σ₁/σ₀ > 1 at which the worst classifier has probability ½ at distance 0; Theorem 4 bounds it from above.

    sqrt(F⁻¹(p_A)/F⁻¹(½)), F the χ² law with N degrees of freedom. Rounded up.
    """
    tail, size = _tail_and_size(p_a, dimension)
    half = 0.5 * size
    ratio = np.sqrt(special.gammainccinv(half, tail) / special.gammaincinv(half, 0.5))
    return np.asarray(ratio * (1.0 + _QUANTILE_MARGIN))


def _tail_and_size(p_a: ArrayLike, dimension: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """1 - p_A, which is exact in float64 for p_A ≥ ½, and the dimension."""
    probability, size = np.broadcast_arrays(np.asarray(p_a, dtype=np.float64), np.asarray(dimension, dtype=np.float64))
    if not np.all((probability >= 0.5) & (probability < 1.0)):
        raise InputError(f"p_a {p_a!r} must lie in [0.5, 1): below one half nothing is certified at any noise level")
    if not np.all((size >= 1) & np.isfinite(size)):
        raise InputError(f"dimension {dimension!r} must be a whole number of at least 1 (784 for MNIST)")
    return 1.0 - probability, size


def _root(deviation: FloatArray, *, start: FloatArray) -> FloatArray:
    """t = log q with log q + 1 - q = -deviation, on the side of 0 of `start`, which must be beyond the root.

    The function t + 1 - e^t is concave, so Newton's method approaches the root from `start` in every step.
    """
    t = start
    for _ in range(_MAX_STEPS):
        u = np.expm1(t)
        near = np.abs(t) < 0.5
        value = np.where(near, log1p_minus(np.where(near, u, 0.0)), t - u) + deviation
        step = value / u
        t = t + step
        if np.all(np.abs(step) <= _CONVERGED * np.abs(t)):
            break
    return t


def _ratio_down(log_squared: FloatArray) -> FloatArray:
    return np.exp(0.5 * log_squared) * (1.0 - _MARGIN * (1.0 + np.abs(log_squared)))


def _ratio_up(log_squared: FloatArray) -> FloatArray:
    finite = np.where(np.isfinite(log_squared), log_squared, 0.0)
    ratio = np.exp(0.5 * finite) * (1.0 + _MARGIN * (1.0 + np.abs(finite)))
    return np.where(np.isfinite(log_squared), ratio, np.inf)
