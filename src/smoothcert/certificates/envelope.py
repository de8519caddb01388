"""A σ that varies with the input: the tight ℓ2 radius for every σ-function with a proven envelope.

Súkeník, Kuvshinov and Günnemann (2022), Theorems 2, 3, 6 and 7, here for any envelope, any dimension, and with a bound
on the other classes. Let σ₀ = σ(x₀), and let x₁ at distance a use σ₁. ξ(a, σ₁; p) is the largest probability that a
region of probability p at x₀ can have at x₁; see `worst_regions.py`. Base classifiers with values in [0, 1] (soft
votes) are covered: the Neyman–Pearson lemma holds for randomised tests.

A radius is found by root finding and then proved at the returned point: a region with *at least* the allowed
probability at x₀ (with room for the evaluation error) is shown to have less than ½ at x₁. By Theorem 6 and because ξ
grows with a, this covers all smaller distances and everything between the ends of the envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.certificates.certificate import (
    SCORE_FORMS,
    VOTE_FORMS,
    FormulaCertificate,
    certificates_of,
    known_dimension,
)
from smoothcert.certificates.gaussian import gaussian_radius, gaussian_two_class_radius
from smoothcert.certificates.positive import only_positive
from smoothcert.certificates.worst_regions import (
    LOG_HALF,
    SIGMA_RANGE,
    Points,
    bound_chance,
    find_worst,
    half_space_boundary,
)
from smoothcert.errors import InputError
from smoothcert.numerics.ball import RELATIVE_ERROR
from smoothcert.numerics.normal import one_minus_up
from smoothcert.numerics.roots import step_down_each_until
from smoothcert.records import ConstantSigma, Envelope, FloatArray, Quantity, Smoothing
from smoothcert.records.envelopes import check_encloses

_STEP_BACK = 1e-10
"""First step down from a root, in units of σ₀: the cost of the room for errors."""
_MOST_STEPS = 60
_CONVERGED = 1e-13
_NO_LEAD = 1e-11
"""A lead, in standard deviations, that counts as 0: the room for errors is larger."""
_CELLS = (16, 128)
"""Numbers of intervals into which an envelope is cut if its inside must be checked; more where fewer prove nothing."""
_SMALLEST_RATIO = 1e-100
"""Smaller ratios σ₁/σ₀ certify nothing."""
_LARGEST_RATIO = 1e8
"""Larger ratios σ₁/σ₀ certify nothing: nearly all of N(x₁, σ₁²I) lies outside the region that holds x₀'s mass."""


def envelope_radius(p_a: ArrayLike, *, sigma: ArrayLike, dimension: int, envelope: Envelope) -> FloatArray:
    """The largest R such that every x₁ closer than R is certified for every σ(x₁) that the envelope allows (Theorem 7).

    p_a: lower bounds on the probability (or mean score) of the class at x₀, in [0, 1); sigma: σ(x₀), 1e-100 … 1e100;
    shapes broadcast. dimension: of an input, at least 1. Cohen's σΦ⁻¹(p_a) where the envelope is constant, and never
    more than that. Rounded down, by about 1e-10 σ; 0 where p_a ≤ ½, where σ may jump too far at once, or where an
    argument is out of range.
    """
    return _radius(p_a, None, sigma=sigma, dimension=dimension, envelope=envelope)


def envelope_two_class_radius(
    p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike, dimension: int, envelope: Envelope
) -> FloatArray:
    """The radius with a separate bound p_b on every other class: sup{a : ξ(a,σ₁;1-p_a) + ξ(a,σ₁;p_b) < 1 for all σ₁}.

    p_a lower, p_b upper bounds that hold at once; p_b is replaced by 1 - p_a where that is smaller. ξ is not monotone
    in σ₁ below ½, so the ends of the envelope do not suffice: each ξ, being the largest of functions of log σ₁ whose
    second derivative is at least -(2N+1), lies below its chord plus a parabola on every interval, and this sum is
    shown to stay below 1. Distances that cannot be proved on 128 intervals are lost: a negligible part for p_b above
    1e-5. Never below the radius for q = (1+p_a-p_b)/2 by Theorem 7, nor that for p_a alone. Cohen's two-class radius
    where the envelope is constant. Rounded down; 0 where nothing is certified.
    """
    return _radius(p_a, p_b, sigma=sigma, dimension=dimension, envelope=envelope)


def _radius(
    p_a: ArrayLike, p_b: ArrayLike | None, *, sigma: ArrayLike, dimension: int, envelope: Envelope
) -> FloatArray:
    if not dimension >= 1:
        raise InputError(f"dimension {dimension} must be at least 1: the number of coordinates of an input")
    top, scale = np.asarray(p_a, dtype=np.float64), np.asarray(sigma, dtype=np.float64)
    other = one_minus_up(top) if p_b is None else np.asarray(p_b, dtype=np.float64)
    top, other, scale = np.broadcast_arrays(top, other, scale)
    constant = gaussian_radius(top, sigma=scale)
    if p_b is not None:
        constant = gaussian_two_class_radius(top, other, sigma=scale)
    if isinstance(envelope, ConstantSigma):
        return constant
    flat = np.ravel(constant)
    out = np.zeros(flat.size)
    at = np.flatnonzero((flat > 0) & (np.ravel(scale) >= SIGMA_RANGE[0]) & (np.ravel(scale) <= SIGMA_RANGE[1]))
    if at.size:
        out[at] = _varying(np.ravel(top)[at], np.ravel(other)[at], np.ravel(scale)[at], flat[at], dimension, envelope)
    return only_positive(np.minimum(out, flat)).reshape(constant.shape)


def _varying(
    p_a: FloatArray, p_b: FloatArray, sigma: FloatArray, most: FloatArray, dimension: int, envelope: Envelope
) -> FloatArray:
    """Radii for a varying σ. most: the radius for constant σ, which is never exceeded (Theorem 15). All (m,)."""
    n = np.full(p_a.size, float(dimension))
    implied = one_minus_up(p_a)
    separate = p_b < implied
    # With p_b, the middle of the two bounds is tried first: q = (1 + p_a - p_b)/2, 1 - q = (1 - p_a + p_b)/2.
    middle = np.where(separate, np.nextafter(0.5 * (implied + p_b), 1.0), implied)
    radius = np.zeros(p_a.size)
    some = np.flatnonzero(middle < 0.5)
    points = Points(n[some], sigma[some], np.log(middle[some]))
    radius[some] = _reach(_OneBound(points, envelope), np.minimum(most[some], half_space_boundary(points)))
    two = np.flatnonzero(separate)
    if two.size:
        mine = Points(n[two], sigma[two], np.log(implied[two]))
        theirs = Points(n[two], sigma[two], np.log(np.minimum(p_b[two], implied[two])))
        radius[two] = np.maximum(radius[two], _reach(_TwoBounds(mine, theirs, envelope), most[two]))
    check_encloses(envelope, sigma, radius)
    return radius


class _OneEnd:
    """One bound p on all that is not the class, and one end of the envelope: x₁ is certified where ξ < ½."""

    def __init__(self, points: Points, end: Callable[[FloatArray, FloatArray], FloatArray]) -> None:
        self.sigma = points.sigma
        self._points = points
        self._end = end
        self._boundary = half_space_boundary(points)

    def lead(self, a: FloatArray, at: NDArray[np.intp]) -> FloatArray:
        points = self._points.take(at)
        worst = find_worst(points, a, self._end(points.sigma, a), self._boundary[at])
        self._boundary[at] = worst.boundary
        return worst.lead

    def is_proved(self, a: FloatArray, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        self.lead(a, at)  # the boundary moves with the distance
        # NaN proves nothing: the comparison is false.
        return bound_chance(self._points.take(at), a, self._end(self.sigma[at], a), self._boundary[at]) < LOG_HALF


class _OneBound:
    """One bound p on all that is not the class: both ends of the envelope must be certified (Theorem 6)."""

    def __init__(self, points: Points, envelope: Envelope) -> None:
        self.sigma = points.sigma
        self.ends = [_OneEnd(points, end) for end in _ends(envelope)]

    def lead(self, a: FloatArray, at: NDArray[np.intp]) -> FloatArray:
        return np.minimum(*(end.lead(a, at) for end in self.ends))

    def is_proved(self, a: FloatArray, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        return np.logical_and(*(end.is_proved(a, at) for end in self.ends))


class _TwoBounds:
    """A bound p on all that is not the class and another on every single class: ξ(·; p) + ξ(·; p_b) < 1 for all σ₁."""

    def __init__(self, mine: Points, theirs: Points, envelope: Envelope) -> None:
        self.sigma = mine.sigma
        self._both = (mine, theirs)
        self._envelope = envelope
        self._boundary = np.stack([half_space_boundary(points) for points in self._both])[:, None, :].repeat(3, axis=1)

    def lead(self, a: FloatArray, at: NDArray[np.intp]) -> FloatArray:
        """At the ends of the envelope and at σ₀, where the sum is nearly always largest; `is_proved` checks all."""
        sigma = self.sigma[at]
        low, high = (end(sigma, a) for end in _ends(self._envelope))
        least = np.full(a.size, np.inf)
        for row, s1 in enumerate((low, sigma, high)):
            total = np.zeros(a.size)
            for which, points in enumerate(self._both):
                worst = find_worst(points.take(at), a, s1, self._boundary[which, row, at])
                self._boundary[which, row, at] = worst.boundary
                total += worst.lead
            least = np.minimum(least, 0.5 * total)
        return least

    def is_proved(self, a: FloatArray, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        proved = np.zeros(at.size, dtype=np.bool_)
        for cells in _CELLS:
            left = np.flatnonzero(~proved)
            if left.size:
                proved[left] = self._below_one(a[left], at[left], cells)
        return proved

    def _below_one(self, a: FloatArray, at: NDArray[np.intp], cells: int) -> NDArray[np.bool_]:
        """Whether the sum stays below 1 on the whole envelope, cut into this many intervals of log σ₁."""
        low, high = (end(self.sigma[at], a) for end in _ends(self._envelope))
        width = np.log(high / low) / cells
        levels = low * np.exp(np.arange(cells + 1)[:, None] * width)
        levels[-1] = high
        sums = self._largest_sums(at, np.broadcast_to(a, levels.shape), levels)
        # Each ξ is bent down by at most 2N+1 in log σ₁; a little more covers the rounding of `width`.
        bend = 2.0 * (2.0 * self._both[0].n[at] + 1.0) * np.square(width * (1.0 + 1e-9))
        below: NDArray[np.bool_] = np.max(_peak(sums[:-1], sums[1:], bend), axis=0) < 1.0 - RELATIVE_ERROR
        return below

    def _largest_sums(self, at: NDArray[np.intp], a: FloatArray, levels: FloatArray) -> FloatArray:
        """Upper bounds on ξ(·; p) + ξ(·; p_b). at: (m,), a and levels: (rows, m)."""
        everywhere = np.tile(at, len(levels))
        total = np.zeros(levels.size)
        for points in self._both:
            several = points.take(everywhere)
            near = find_worst(several, a.ravel(), levels.ravel(), None).boundary
            total += np.exp(bound_chance(several, a.ravel(), levels.ravel(), near))
        return total.reshape(levels.shape)


def _peak(left: FloatArray, right: FloatArray, bend: FloatArray) -> FloatArray:
    """An upper bound of a function on an interval, from its values at the ends and h²f'' ≥ -bend, h the length.

    The function lies below the chord plus bend·t(1-t)/2, which peaks inside if the chord is flat enough.
    """
    rise = np.abs(right - left)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = 0.5 * (left + right) + bend / 8.0 + np.square(rise) / (2.0 * bend)
    return np.where(rise < 0.5 * bend, inside, np.maximum(left, right))


def _ends(envelope: Envelope) -> tuple[Callable[[FloatArray, FloatArray], FloatArray], ...]:
    """The two ends of an envelope; NaN, which certifies nothing, where a level is out of range."""

    def low(sigma: FloatArray, a: FloatArray) -> FloatArray:
        level = np.asarray(envelope.low(sigma, a), dtype=np.float64)
        return np.where((level >= _SMALLEST_RATIO * sigma) & (level <= sigma), level, np.nan)

    def high(sigma: FloatArray, a: FloatArray) -> FloatArray:
        level = np.asarray(envelope.high(sigma, a), dtype=np.float64)
        return np.where((level >= sigma) & (level <= _LARGEST_RATIO * sigma), level, np.nan)

    return low, high


class _Problem(Protocol):
    """Certifies distances. sigma: (m,)."""

    sigma: FloatArray

    def lead(self, a: FloatArray, at: NDArray[np.intp], /) -> FloatArray:
        """A decreasing function of the distance that is positive where it is certified, for the elements `at`."""

    def is_proved(self, a: FloatArray, at: NDArray[np.intp], /) -> NDArray[np.bool_]:
        """Whether the distance is certified, with room for the evaluation error."""


def _reach(problem: _Problem, most: FloatArray) -> FloatArray:
    """The largest distance up to `most` that is proved to be certified."""
    near = _root(problem, most)
    return step_down_each_until(near, problem.is_proved, floor=0.0, step=_STEP_BACK * problem.sigma)


def _root(problem: _Problem, most: FloatArray) -> FloatArray:
    """Where the lead falls to 0 on [0, most], by inverse quadratic interpolation in a bracket (Chandrupatla 1997)."""
    root = np.zeros(most.size)
    everyone = np.arange(most.size)
    # At 0 the worst region is the half-space if the envelope starts at σ₀. If it does not, the proof fails.
    at_zero, at_most = most / problem.sigma, _clip_lead(problem.lead(most, everyone))
    root[at_most > 0] = most[at_most > 0]
    at = np.flatnonzero(at_most <= 0)
    x1, f1, x2, f2 = np.zeros(at.size), at_zero[at], most[at], at_most[at]
    fraction = f1 / (f1 - f2)
    for _ in range(_MOST_STEPS):
        if not at.size:
            break
        x = x1 + fraction * (x2 - x1)
        f = _clip_lead(problem.lead(x, at))
        same = (f > 0) == (f1 > 0)
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(same, x2, x1), np.where(same, f2, f1)
        x1, f1 = x, f
        root[at] = x
        width = np.abs(x2 - x1)
        going = (np.abs(f1) > _NO_LEAD) & (width > _CONVERGED * (np.abs(x) + problem.sigma[at]))
        at = at[going]
        x1, f1, x2, f2, x3, f3, width = (v[going] for v in (x1, f1, x2, f2, x3, f3, width))
        fraction = _next_fraction(x1, f1, x2, f2, x3, f3, _CONVERGED * (np.abs(x1) + problem.sigma[at]) / width)
    return root


def _next_fraction(
    x1: FloatArray, f1: FloatArray, x2: FloatArray, f2: FloatArray, x3: FloatArray, f3: FloatArray, least: FloatArray
) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        smooth = (np.square(phi) < xi) & (np.square(1.0 - phi) < 1.0 - xi)
        quadratic = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
    return np.clip(np.where(smooth & np.isfinite(quadratic), quadratic, 0.5), least, 1.0 - least)


def _clip_lead(lead: FloatArray) -> FloatArray:
    """Clip infinite leads; a lead that could not be computed counts as negative."""
    return np.clip(np.where(np.isnan(lead), -1e8, lead), -1e8, 1e8)


class EnvelopeCertificate(FormulaCertificate):
    """Theorem 7 for the envelope and the dimension of the smoothing."""

    __slots__ = ()

    def check_suits(self, smoothing: Smoothing, /) -> None:
        known_dimension(self.name, smoothing)

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        dimension = known_dimension(self.name, smoothing)
        values = (quantities[quantity] for quantity in self.needs)
        return self.formula(*values, sigma=sigma, dimension=dimension, envelope=smoothing.envelope)


ENVELOPE = certificates_of(
    "envelope",
    (*VOTE_FORMS, *SCORE_FORMS),
    envelope_radius,
    envelope_two_class_radius,
    kind=EnvelopeCertificate,
    varying_sigma=True,
)
