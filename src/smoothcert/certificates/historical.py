"""Older ℓ2 radii for Gaussian noise, as baselines: Lecuyer et al. (2019), Li et al. (2019), and Li's for a σ that
varies with the input (Súkeník et al. 2022, Theorem 14).

All are suprema of a bound over a free parameter. Every parameter value gives a valid radius, so a numerical search
that misses the supremum is still sound; the radius is only slightly smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.certificates.certificate import VOTE_FORMS, FormulaCertificate, certificates_of, known_dimension
from smoothcert.certificates.gaussian import gaussian_two_class_radius
from smoothcert.certificates.positive import only_positive
from smoothcert.numerics.logarithm import log1p_minus
from smoothcert.numerics.normal import one_minus_up
from smoothcert.records import Envelope, FloatArray, Quantity, Smoothing
from smoothcert.records.envelopes import check_encloses

# Forward evaluation of either formula is good to better than this, relatively.
_FORMULA_MARGIN = 1e-11
_GRID = 257
_REFINEMENTS = 4
_LI_ORDERS = (1e-3, 1e3)
_DIVERGENCE_MARGIN = 1e-14
"""Relative rounding error of the terms of the divergence between two noise levels."""
_HALVINGS = 32
"""Bisections of the interval of the radius for an envelope: its end is found to 2e-10 of Li's radius."""
_GRID_FOR_ENVELOPES = 33
_LARGEST_RATIO = 1e6
"""Noise levels with a larger ratio certify nothing."""


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
    return _limit_to_tight(scale * best * (1.0 - _FORMULA_MARGIN), a, b, scale, valid)


def li_radius(p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """Radius from the Rényi divergence (Li et al. 2019, as restated in Cohen et al. 2019, Appendix I).

    sup over orders a > 0 of σ sqrt(-(2/a) log(1 - p_A - p_B + 2 M)), M = (½(p_A^{1-a} + p_B^{1-a}))^{1/(1-a)}, the
    power mean of order 1-a. With m = ½ log(p_A p_B) and h = ½ log(p_A/p_B), log M = m + log cosh((1-a)h)/(1-a), which
    is smooth through a = 1; and 1 - p_A - p_B + 2M = 1 - (p_A+p_B)(1 - M/M₁) with M₁ the arithmetic mean, which does
    not cancel as a → 0. Orders are searched in [1e-3, 1e3]. Shapes broadcast with sigma. Rounded down; 0 where p_a ≤
    p_b or an argument is out of range.
    """
    a, b, scale, valid = _prepare(p_a, p_b, sigma)
    threshold = _li_threshold(a, b)

    def value(log_order: FloatArray) -> FloatArray:
        order = np.exp(log_order)
        return np.sqrt(np.maximum(2.0 / order * threshold(order), 0.0))

    low, high = np.log(_LI_ORDERS)
    best = _maximise(value, low=np.full_like(a, low), high=np.full_like(a, high))
    return _limit_to_tight(scale * best * (1.0 - _FORMULA_MARGIN), a, b, scale, valid)


def renyi_radius(
    p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike, other_sigma: ArrayLike, dimension: ArrayLike
) -> FloatArray:
    """Distance within which every point that uses `other_sigma` is certified from one that uses `sigma`.

    Súkeník et al. (2022), Theorem 14, derived again here because the printed version has errors. With σ₀ = sigma, σ₁ =
    other_sigma, N = dimension and σ_a² = (1-a)σ₁² + aσ₀², the Rényi divergence of order a of N(x₁, σ₁²)
    from N(x₀, σ₀²) is a‖x₀-x₁‖²/(2σ_a²) + T_a, T_a = N/(1-a) log(σ_a / (σ₁^{1-a} σ₀^a)). The class keeps its lead where
    that is at most Li's threshold, so R² = sup over orders a with σ_a² > 0 of (2σ_a²/a)(threshold_a - T_a). With ρ =
    σ₁²/σ₀² - 1 and g(u) = log(1+u) - u, T_a = N/2 (g((1-a)ρ)/(1-a) - g(ρ)), smooth through a = 1 and σ₁ = σ₀, where
    the radius is that of `li_radius`.

    It is about two levels only, as if σ₁ were used everywhere except at x₀; for a σ that varies, see
    `renyi_envelope_radius`. p_a, p_b as for `li_radius`; orders are searched in [1e-3, 1e3]; shapes broadcast. Rounded
    down; 0 where no order certifies anything or an argument is out of range.
    """
    *known, other, given = np.broadcast_arrays(p_a, p_b, sigma, other_sigma, dimension)
    a, b, scale, valid = _prepare(*known)
    excess, usable = _variance_excess(other, sigma=scale, dimension=given)
    size = np.where(usable, given, 1.0)
    threshold = _li_threshold(a, b)

    def value(log_order: FloatArray) -> FloatArray:
        order = np.exp(log_order)
        return _renyi_squared(order, threshold(order), excess=excess[..., None], dimension=size[..., None])

    low, high = np.log(_LI_ORDERS)
    best = _maximise(value, low=np.full_like(a, low), high=np.full_like(a, high))
    return _limit_to_tight(scale * np.sqrt(best) * (1.0 - _FORMULA_MARGIN), a, b, scale, valid & usable)


def renyi_envelope_radius(
    p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike, dimension: int, envelope: Envelope
) -> FloatArray:
    """Radius within which the class keeps its lead for every σ₁ that the envelope allows.

    The largest distance d for which some order certifies σ_low(d) together with σ₀, and some order σ_high(d) together
    with σ₀. That covers all levels between, because at a fixed order a and distance d the divergence D falls and then
    grows with v = σ₁²/σ₀², so that it is largest at an end of an interval: with s = 1-a, the sign of dD/dv is that of
    N h(v) - s d²/σ₀², h(v) = (v-1)(sv+a)/v = sv + (a-s) - a/v. For a ≤ 1, h grows. For a > 1, h grows up to v =
    sqrt(a/(a-1)) > 1 and is positive from v = 1 to the end of its range, v = a/(a-1), while -s d² is positive. In both
    cases the sign changes once. Two ends certified at *different* orders would not suffice without σ₀, which joins
    them. Since the envelope at d holds for every point nearer than d, all of those are certified too.

    Arguments as for `li_radius`, dimension of an input, envelope around an input. Rounded down to within 2e-10 of Li's
    radius; 0 where nothing is certified or an argument is out of range.
    """
    a, b, scale, valid = _prepare(p_a, p_b, sigma)
    size = np.full_like(a, dimension)
    threshold = _li_threshold(a, b)
    low, high = np.log(_LI_ORDERS)
    reaches = [
        _maximise(
            partial(_reach, threshold=threshold, sigma=scale[..., None], dimension=size[..., None], edge=edge),
            low=np.full_like(a, low),
            high=np.full_like(a, high),
            grid=_GRID_FOR_ENVELOPES,
        )
        for edge in (envelope.low, envelope.high)
    ]
    radius = only_positive(np.minimum(*reaches), where=valid)
    check_encloses(envelope, scale[radius > 0], radius[radius > 0])
    return radius


def _reach(
    log_order: FloatArray,
    *,
    threshold: Callable[[FloatArray], FloatArray],
    sigma: FloatArray,
    dimension: FloatArray,
    edge: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    """The largest distance one order certifies for σ₀ and for the level at this edge of the envelope.

    log_order: (…, k); sigma and dimension: (…, 1); threshold by order. Returns (…, k), rounded down.
    """
    order = np.exp(log_order)
    limit = threshold(order)
    scale, size = np.broadcast_arrays(sigma, dimension, order)[:2]
    certified = np.zeros_like(order)
    refused = scale * np.sqrt(2.0 / order * limit) * (1.0 - _FORMULA_MARGIN)  # what the order certifies for σ₀
    for _ in range(_HALVINGS):
        distance = 0.5 * (certified + refused)
        excess, usable = _variance_excess(edge(scale, distance), sigma=scale, dimension=size)
        most = _renyi_squared(order, limit, excess=excess, dimension=size)
        reaches = usable & (distance**2 <= scale**2 * most)
        certified, refused = np.where(reaches, distance, certified), np.where(reaches, refused, distance)
    return certified


def _renyi_squared(
    order: FloatArray, threshold: FloatArray, *, excess: FloatArray, dimension: FloatArray
) -> FloatArray:
    """(2/a)(σ_a/σ₀)²(threshold - T_a), the squared distance in units of σ₀ that one order certifies, rounded down.

    Where it certifies nothing, the (negative) distance from doing so, which leads a search to better orders.
    excess: σ₁²/σ₀² - 1. Shapes broadcast.
    """
    s = 1.0 - order
    u = s * excess
    admissible = u > -1.0
    u = np.where(admissible, u, 0.0)
    own = log1p_minus(excess)
    mixed = np.where(s == 0.0, 0.0, log1p_minus(u) / np.where(s == 0.0, 1.0, s))
    # A relative error in σ₁/σ₀ changes either term by u times the slope of g at u, which is -u/(1+u).
    blur = np.abs(own) + np.abs(mixed) + np.abs(excess) * (np.abs(excess) / (1.0 + excess) + np.abs(u) / (1.0 + u))
    apart = 0.5 * dimension * (mixed - own + _DIVERGENCE_MARGIN * blur)
    gap = threshold * (1.0 - _FORMULA_MARGIN) - apart
    squared = 2.0 / order * (1.0 + u) * gap * (1.0 - _FORMULA_MARGIN)
    return np.where(admissible, np.where(gap > 0, squared, gap), -np.inf)


def _variance_excess(
    other_sigma: ArrayLike, *, sigma: FloatArray, dimension: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """σ₁²/σ₀² - 1 without cancellation, and where all three can be used; 0 elsewhere. Shapes broadcast, sigma > 0."""
    other = np.asarray(other_sigma, dtype=np.float64)
    usable = (other <= _LARGEST_RATIO * sigma) & (other >= sigma / _LARGEST_RATIO)
    usable &= (dimension >= 1) & np.isfinite(dimension) & np.isfinite(other)
    known = np.where(usable, other, sigma)
    return (known - sigma) / sigma * (1.0 + known / sigma), usable


def _li_threshold(p_a: FloatArray, p_b: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """-log(1 - p_A - p_B + 2M) as a function of the order. Shapes: probabilities (…), orders (…, k)."""
    half_log_ratio = 0.5 * np.log(p_a / p_b)[..., None]
    total = (p_a + p_b)[..., None]
    log_mean = _log_cosh(half_log_ratio)

    def threshold(order: FloatArray) -> FloatArray:
        s = 1.0 - order
        near_geometric = np.abs(s) < 1e-8
        power = np.where(near_geometric, 0.0, _log_cosh(s * half_log_ratio) / np.where(near_geometric, 1.0, s))
        drop = -np.expm1(power - log_mean)
        return -np.log1p(-np.minimum(total * drop, 1.0 - 1e-16))

    return threshold


def _prepare(
    p_a: ArrayLike, p_b: ArrayLike, sigma: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]:
    """Broadcast, and replace values out of range by harmless ones that are masked out at the end."""
    a, b, scale = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (p_a, p_b, sigma)))
    valid = (b > 0) & (b < a) & (a < 1) & (b <= 1.0 - a + 1e-12) & (scale > 0) & np.isfinite(scale)
    return np.where(valid, a, 0.75), np.where(valid, b, 0.25), np.where(valid, scale, 1.0), valid


def _limit_to_tight(
    radius: FloatArray, p_a: FloatArray, p_b: FloatArray, scale: FloatArray, valid: NDArray[np.bool_]
) -> FloatArray:
    """The radius, but not above the tight one, which no valid radius exceeds: a guard against rounding near ties."""
    return only_positive(np.minimum(radius, gaussian_two_class_radius(p_a, p_b, sigma=scale)), where=valid)


def _log_cosh(x: FloatArray) -> FloatArray:
    """log cosh x, without overflow for large x and without cancellation for small."""
    size = np.abs(x)
    small = np.log1p(2.0 * np.sinh(0.5 * np.minimum(size, 1.0)) ** 2)
    large = size + np.log1p(np.exp(-2.0 * size)) - math.log(2.0)
    return np.where(size < 1.0, small, large)


def _maximise(
    value: Callable[[FloatArray], FloatArray], *, low: FloatArray, high: FloatArray, grid: int = _GRID
) -> FloatArray:
    """The largest value found on [low, high] by a grid refined around its best point. Shapes: (…) → (…)."""
    fractions = np.linspace(0.0, 1.0, grid)
    best = np.zeros_like(low)
    for _ in range(_REFINEMENTS):
        width = high - low
        points = low[..., None] + width[..., None] * fractions
        values = value(points)
        at = np.argmax(values, axis=-1)
        best = np.maximum(best, np.take_along_axis(values, at[..., None], axis=-1)[..., 0])
        centre = low + width * fractions[at]
        step = width / (grid - 1)
        low, high = np.maximum(low, centre - step), np.minimum(high, centre + step)
    return best


class RenyiCertificate(FormulaCertificate):
    """The Rényi radius for an envelope, in its two-class or its binary form; Li's radius where σ is constant."""

    __slots__ = ()

    def check_suits(self, smoothing: Smoothing, /) -> None:
        if smoothing.varying:
            known_dimension(self.name, smoothing)

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        values = [quantities[quantity] for quantity in self.needs]
        if not smoothing.varying:
            return self.formula(*values, sigma=sigma)
        dimension = known_dimension(self.name, smoothing)
        varying = _with_implied_bound(renyi_envelope_radius)
        return varying(*values, sigma=sigma, dimension=dimension, envelope=smoothing.envelope)


def _with_implied_bound(two_class_radius: Callable[..., FloatArray]) -> Callable[..., FloatArray]:
    """The radius with p_B replaced by 1 - p_A where p_B is not given or larger."""

    def radius(p_a: ArrayLike, p_b: ArrayLike = np.inf, **settings: Any) -> FloatArray:
        top = np.asarray(p_a, dtype=np.float64)
        implied = one_minus_up(np.where(np.isfinite(top), top, 1.0))
        return two_class_radius(top, np.minimum(p_b, implied), **settings)

    return radius


_LECUYER, _LI = _with_implied_bound(lecuyer_radius), _with_implied_bound(li_radius)

HISTORICAL = (
    *certificates_of("lecuyer", VOTE_FORMS, _LECUYER, _LECUYER),
    *certificates_of("li", VOTE_FORMS, _LI, _LI),
    *certificates_of("renyi", VOTE_FORMS, _LI, _LI, kind=RenyiCertificate, varying_sigma=True),
)
