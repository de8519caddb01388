"""Older ℓ2 radii for Gaussian noise, kept as baselines: Lecuyer et al. (2019) and Li et al. (2019).

Both are suprema of a bound over a free parameter. Every parameter value gives a valid radius, so a numerical search
that misses the supremum is still sound; it only gives away a little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.certificates.gaussian import gaussian_two_class_radius
from smoothcert.certificates.positive import only_positive
from smoothcert.numerics.normal import one_minus_up
from smoothcert.records import FloatArray, Norm, Proof, Quantity, Smoothing

# Forward evaluation of either formula is good to better than this, relatively.
_FORMULA_MARGIN = 1e-11
_GRID = 257
_REFINEMENTS = 4
_LI_ORDERS = (1e-3, 1e3)


def lecuyer_radius(p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """Radius from differential privacy (Lecuyer et al. 2019, as restated in Cohen et al. 2019, Appendix I).

    sup over 0 < β ≤ min(1, ½ log(p_A/p_B)) of σβ / sqrt(2 log(1.25 (1+e^β) / (p_A - e^{2β} p_B))). p_a lower, p_b
    upper bound on every other class; shapes broadcast with sigma. Rounded down; 0 where p_a ≤ p_b or an argument is
    out of range.
    """
    a, b, scale, valid = _prepare(p_a, p_b, sigma)
    largest = np.minimum(1.0, 0.5 * np.log(a / b))

    def value(fraction: FloatArray) -> FloatArray:
        beta = fraction * largest[..., None]
        gap = a[..., None] - np.exp(2.0 * beta) * b[..., None]
        positive = gap > 0
        ratio = 1.25 * (1.0 + np.exp(beta)) / np.where(positive, gap, 1.0)
        return np.where(positive, beta / np.sqrt(2.0 * np.log(ratio)), 0.0)

    best = _maximise(value, low=np.zeros_like(a), high=np.ones_like(a))
    return _at_most_tight(scale * best * (1.0 - _FORMULA_MARGIN), a, b, scale, valid)


def li_radius(p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """Radius from the Rényi divergence (Li et al. 2019, as restated in Cohen et al. 2019, Appendix I).

    sup over orders a > 0 of σ sqrt(-(2/a) log(1 - p_A - p_B + 2 M)), M = (½(p_A^{1-a} + p_B^{1-a}))^{1/(1-a)}, the
    power mean of order 1-a. With m = ½ log(p_A p_B) and h = ½ log(p_A/p_B), log M = m + log cosh((1-a)h)/(1-a), which
    is smooth through a = 1; and 1 - p_A - p_B + 2M = 1 - (p_A+p_B)(1 - M/M₁) with M₁ the arithmetic mean, which does
    not cancel as a → 0. Orders are searched in [1e-3, 1e3]. Shapes broadcast with sigma. Rounded down; 0 where p_a ≤
    p_b or an argument is out of range.
    """
    a, b, scale, valid = _prepare(p_a, p_b, sigma)
    half_log_ratio = 0.5 * np.log(a / b)[..., None]
    total = (a + b)[..., None]
    log_mean = _log_cosh(half_log_ratio)

    def value(log_order: FloatArray) -> FloatArray:
        order = np.exp(log_order)
        s = 1.0 - order
        near_geometric = np.abs(s) < 1e-8
        power = np.where(near_geometric, 0.0, _log_cosh(s * half_log_ratio) / np.where(near_geometric, 1.0, s))
        drop = -np.expm1(power - log_mean)
        argument = np.log1p(-np.minimum(total * drop, 1.0 - 1e-16))
        return np.sqrt(np.maximum(-2.0 / order * argument, 0.0))

    low, high = np.log(_LI_ORDERS)
    best = _maximise(value, low=np.full_like(a, low), high=np.full_like(a, high))
    return _at_most_tight(scale * best * (1.0 - _FORMULA_MARGIN), a, b, scale, valid)


def _prepare(
    p_a: ArrayLike, p_b: ArrayLike, sigma: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]:
    """Broadcast, and replace what is out of range by harmless values that are masked out at the end."""
    a, b, scale = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (p_a, p_b, sigma)))
    valid = (b > 0) & (b < a) & (a < 1) & (b <= 1.0 - a + 1e-12) & (scale > 0) & np.isfinite(scale)
    return np.where(valid, a, 0.75), np.where(valid, b, 0.25), np.where(valid, scale, 1.0), valid


def _at_most_tight(
    radius: FloatArray, p_a: FloatArray, p_b: FloatArray, scale: FloatArray, valid: NDArray[np.bool_]
) -> FloatArray:
    """Never above the tight radius, which is the supremum of what is true: a guard against rounding near ties."""
    return only_positive(np.minimum(radius, gaussian_two_class_radius(p_a, p_b, sigma=scale)), where=valid)


def _log_cosh(x: FloatArray) -> FloatArray:
    """log cosh x, without overflow for large x and without cancellation for small."""
    size = np.abs(x)
    small = np.log1p(2.0 * np.sinh(0.5 * np.minimum(size, 1.0)) ** 2)
    large = size + np.log1p(np.exp(-2.0 * size)) - math.log(2.0)
    return np.where(size < 1.0, small, large)


def _maximise(value: Callable[[FloatArray], FloatArray], *, low: FloatArray, high: FloatArray) -> FloatArray:
    """Largest value found on [low, high] by a grid that closes in on its best point. Shapes: (…) → (…)."""
    fractions = np.linspace(0.0, 1.0, _GRID)
    best = np.zeros_like(low)
    for _ in range(_REFINEMENTS):
        width = high - low
        points = low[..., None] + width[..., None] * fractions
        values = value(points)
        at = np.argmax(values, axis=-1)
        best = np.maximum(best, np.take_along_axis(values, at[..., None], axis=-1)[..., 0])
        centre = low + width * fractions[at]
        step = width / (_GRID - 1)
        low, high = np.maximum(low, centre - step), np.minimum(high, centre + step)
    return best


@dataclass(frozen=True, slots=True)
class HistoricalCertificate:
    """A baseline radius in its two-class form, or in the binary form that takes 1 - p_A for p_B."""

    name: str
    family: str
    formula: Callable[..., FloatArray]
    needs: tuple[Quantity, ...]
    proofs: tuple[Proof, ...]
    norm: Norm = Norm.L2
    varying_sigma: bool = False

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        p_a = np.asarray(quantities[Quantity.TOP_LOWER], dtype=np.float64)
        p_b = quantities.get(Quantity.RUNNER_UP_UPPER)
        implied = one_minus_up(np.where(np.isfinite(p_a), p_a, 1.0))
        other = implied if p_b is None else np.minimum(p_b, implied)
        return self.formula(p_a, other, sigma=sigma)


_BINARY = ((Quantity.TOP_LOWER,), (Proof.TOP,))
_TWO_CLASS = ((Quantity.TOP_LOWER, Quantity.RUNNER_UP_UPPER), (Proof.TOP, Proof.RUNNER_UP))

HISTORICAL: tuple[HistoricalCertificate, ...] = (
    HistoricalCertificate("lecuyer", "lecuyer", lecuyer_radius, *_BINARY),
    HistoricalCertificate("lecuyer-two-class", "lecuyer", lecuyer_radius, *_TWO_CLASS),
    HistoricalCertificate("li", "li", li_radius, *_BINARY),
    HistoricalCertificate("li-two-class", "li", li_radius, *_TWO_CLASS),
)
