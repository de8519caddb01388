"""A σ that varies with the input: the tight ℓ2 radius for every σ-function with a proven envelope.

Súkeník, Kuvshinov and Günnemann (2022), Theorems 2, 3, 6 and 7, here for any envelope, any dimension, and with a bound
on the other classes. Let σ₀ = σ(x₀), and let x₁ at distance a use σ₁. By the Neyman-Pearson lemma the worst region for
a class of probability p at x₀ is a ball (σ₁ < σ₀), the outside of a ball (σ₁ > σ₀) or a half-space (σ₁ = σ₀), centred
on the line through x₀ and x₁. With D = |σ₀² - σ₁²| its centre is at distance σ₀ a/D from x₀ in units of σ₀, and σ₁ a/D
from x₁ in units of σ₁. Its boundary crosses the line between the points at x₀ + b. ξ(a, σ₁; p) is its probability at
x₁.

The region becomes the half-space as σ₁ → σ₀, and the representation by b loses nothing on the way. Base classifiers
with values in [0, 1] (soft votes) are covered: the lemma holds for randomised tests.

A radius is found by root finding and then proved at the point returned: a region with *at least* the allowed
probability at x₀ (with room for the error of evaluation) is seen to have less than ½ at x₁. By Theorem 6 and because ξ
grows with a, this covers all smaller distances and everything between the ends of the envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.certificates.base import known_dimension
from smoothcert.certificates.gaussian import gaussian_radius, gaussian_two_class_radius
from smoothcert.certificates.positive import only_positive
from smoothcert.errors import InputError
from smoothcert.numerics.ball import RELATIVE_ERROR, ball_tails, solve_boundary
from smoothcert.numerics.normal import one_minus_up
from smoothcert.numerics.roots import step_down_each_until
from smoothcert.records import ConstantSigma, Envelope, FloatArray, Noise, Norm, Proof, Quantity, Smoothing
from smoothcert.records.envelopes import check_encloses

_ROOM = 3.0 * RELATIVE_ERROR
"""Relative room given to a probability at x₀, so that one evaluation can show that it is large enough."""
_STEP_BACK = 1e-10
"""First step down from a root, in units of σ₀: what the room costs."""
_MOST_STEPS = 60
_CONVERGED = 1e-13
_NO_LEAD = 1e-11
"""A lead, in standard deviations, that is as good as 0: the room for errors is larger."""
_CELLS = (16, 128)
"""Into how many intervals an envelope is cut where its inside has to be looked at; more where fewer prove nothing."""
_SIGMAS = (1e-100, 1e100)
"""Between which squares of σ neither overflow nor lose digits."""
_SMALLEST_RATIO = 1e-100
"""σ₁/σ₀ below which we do not look."""
_LARGEST_RATIO = 1e8
"""σ₁/σ₀ beyond which nothing is ever certified: nearly all of N(x₁, σ₁²I) lies outside of what holds x₀'s mass."""
_LOG_HALF = float(np.log(0.5))


def worst_case_probability(
    p_a: ArrayLike, *, sigma: ArrayLike, other_sigma: ArrayLike, distance: ArrayLike, dimension: ArrayLike
) -> FloatArray:
    """ξ(a, σ₁): the largest probability that any class but A can have at x₁, given P₀(A) = p_a at x₀ (Theorem 3).

    p_a in (0, 1); sigma, other_sigma: the levels at x₀ and x₁, 1e-100 … 1e100; distance a ≥ 0; dimension N ≥ 1; shapes
    broadcast. x₁ is certified where this is below ½. For looking at, not rounded to a side: the relative error is about
    1e-11. NaN where an argument is out of range.
    """
    given = np.broadcast_arrays(
        *(np.asarray(v, dtype=np.float64) for v in (p_a, sigma, other_sigma, distance, dimension))
    )
    p, s0, s1, a, n = (np.ravel(v) for v in given)
    valid = (p > 0) & (p < 1) & (a >= 0) & (n >= 1) & np.isfinite(a) & np.isfinite(n)
    for level in (s0, s1):
        valid &= (level >= _SIGMAS[0]) & (level <= _SIGMAS[1])
    out = np.full(p.size, np.nan)
    for side in _SIDES:
        at = np.flatnonzero(valid & side.holds(s0, s1))
        points = _Points(n[at], s0[at], np.log1p(-p[at]))
        out[at] = np.exp(side.worst(points, a[at], s1[at], None).log_chance)
    return out.reshape(given[0].shape)


def envelope_radius(p_a: ArrayLike, *, sigma: ArrayLike, dimension: int, envelope: Envelope) -> FloatArray:
    """The largest R such that every x₁ closer than R is certified, whatever σ(x₁) the envelope allows (Theorem 7).

    p_a: lower bounds on the probability (or mean score) of the class at x₀, in [0, 1); sigma: σ(x₀), 1e-100 … 1e100;
    shapes broadcast. dimension: of an input, from 1 on. Cohen's σΦ⁻¹(p_a) where the envelope is constant, and never
    more than that. Rounded down, by about 1e-10 σ; 0 where p_a ≤ ½, where σ may jump too far at once, or where an
    argument is out of range.
    """
    return _radius(p_a, None, sigma=sigma, dimension=dimension, envelope=envelope)


def envelope_two_class_radius(
    p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike, dimension: int, envelope: Envelope
) -> FloatArray:
    """The same with a separate bound p_b on every other class: R = sup{a : ξ(a,σ₁;1-p_a) + ξ(a,σ₁;p_b) < 1 for all σ₁}.

    p_a lower, p_b upper bounds that hold at once; p_b is replaced by 1 - p_a where that is smaller. ξ is not monotone
    in σ₁ below ½, so the ends of the envelope do not suffice: each ξ, being the largest of functions of log σ₁ whose
    second derivative is at least -(2N+1), lies below its chord plus a parabola on every interval, and that is what is
    shown to stay below 1. What cannot be shown on 128 intervals is given away: nothing to speak of for p_b above 1e-5.
    Never below the radius for q = (1+p_a-p_b)/2 by Theorem 7, nor that for p_a alone. Cohen's
    two-class radius where the envelope is constant. Rounded down; 0 where nothing is certified.
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
    at = np.flatnonzero((flat > 0) & (np.ravel(scale) >= _SIGMAS[0]) & (np.ravel(scale) <= _SIGMAS[1]))
    if at.size:
        out[at] = _varying(np.ravel(top)[at], np.ravel(other)[at], np.ravel(scale)[at], flat[at], dimension, envelope)
    return only_positive(np.minimum(out, flat)).reshape(constant.shape)


def _varying(
    p_a: FloatArray, p_b: FloatArray, sigma: FloatArray, most: FloatArray, dimension: int, envelope: Envelope
) -> FloatArray:
    """most: the radius for constant σ, which is never exceeded (Theorem 15). All (m,)."""
    n = np.full(p_a.size, float(dimension))
    implied = one_minus_up(p_a)
    separate = p_b < implied
    # With p_b the middle of the two bounds goes first: q = (1 + p_a - p_b)/2, 1 - q = (1 - p_a + p_b)/2.
    middle = np.where(separate, np.nextafter(0.5 * (implied + p_b), 1.0), implied)
    radius = np.zeros(p_a.size)
    some = np.flatnonzero(middle < 0.5)
    points = _Points(n[some], sigma[some], np.log(middle[some]))
    radius[some] = _reach(_OneBound(points, envelope), np.minimum(most[some], _half_space_boundary(points)))
    two = np.flatnonzero(separate)
    if two.size:
        mine = _Points(n[two], sigma[two], np.log(implied[two]))
        theirs = _Points(n[two], sigma[two], np.log(np.minimum(p_b[two], implied[two])))
        radius[two] = np.maximum(radius[two], _reach(_TwoBounds(mine, theirs, envelope), most[two]))
    check_encloses(envelope, sigma, radius)
    return radius


@dataclass(frozen=True, slots=True)
class _Points:
    """Inputs x₀: dimension, σ₀, and the log of the probability p that a region may have there. All (m,)."""

    n: FloatArray
    sigma: FloatArray
    log_tail: FloatArray

    def take(self, at: NDArray[np.intp]) -> _Points:
        return _Points(self.n[at], self.sigma[at], self.log_tail[at])


@dataclass(frozen=True, slots=True)
class _Worst:
    """The worst region for each input: its boundary b, and the logs of ξ and 1 - ξ at x₁."""

    boundary: FloatArray
    log_chance: FloatArray
    log_rest: FloatArray

    @property
    def lead(self) -> FloatArray:
        """-Φ⁻¹(ξ): how far the point is from being lost, in standard deviations; linear in a for a half-space."""
        less = self.log_chance < _LOG_HALF
        tail = special.ndtri_exp(np.where(less, self.log_chance, self.log_rest))
        lead: FloatArray = np.where(less, -tail, tail)
        return lead


class _Shape(Protocol):
    """The family of worst regions for one order of σ₀ and σ₁; a larger b is a smaller region."""

    def holds(self, s0: FloatArray, s1: FloatArray, /) -> NDArray[np.bool_]:
        """For which pairs it is the one."""

    def worst(self, points: _Points, a: FloatArray, s1: FloatArray, start: FloatArray | None, /) -> _Worst:
        """The region with probability p at x₀. start: a boundary close to it, where one is known."""

    def at(self, points: _Points, a: FloatArray, s1: FloatArray, b: FloatArray, /) -> _Worst:
        """The region with boundary b, seen from x₁."""

    def chance_at_x0(self, points: _Points, a: FloatArray, s1: FloatArray, b: FloatArray, /) -> FloatArray:
        """log of the probability at x₀ of the region with boundary b."""


class _HalfSpace:
    """σ₁ = σ₀."""

    def holds(self, s0: FloatArray, s1: FloatArray) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = s1 == s0
        return same

    def worst(self, points: _Points, a: FloatArray, s1: FloatArray, start: FloatArray | None) -> _Worst:
        return self.at(points, a, s1, _half_space_boundary(points))

    def at(self, points: _Points, a: FloatArray, s1: FloatArray, b: FloatArray) -> _Worst:
        z = (a - b) / s1
        return _Worst(b, special.log_ndtr(z), special.log_ndtr(-z))

    def chance_at_x0(self, points: _Points, a: FloatArray, s1: FloatArray, b: FloatArray) -> FloatArray:
        chance: FloatArray = special.log_ndtr(-b / points.sigma)
        return chance


@dataclass(frozen=True, slots=True)
class _Ball:
    """σ₁ < σ₀: the inside of a ball beyond x₁. σ₁ > σ₀: the outside of a ball that lies on the other side of x₀."""

    inside: bool

    def holds(self, s0: FloatArray, s1: FloatArray) -> NDArray[np.bool_]:
        return s1 < s0 if self.inside else s1 > s0

    def worst(self, points: _Points, a: FloatArray, s1: FloatArray, start: FloatArray | None) -> _Worst:
        s0 = points.sigma
        centre = s0 * a / _difference(s0, s1)
        sign = 1.0 if self.inside else -1.0
        tau = solve_boundary(
            points.log_tail, points.n, centre, inside=self.inside, start=None if start is None else sign * start / s0
        )
        return self.at(points, a, s1, sign * tau * s0)

    def at(self, points: _Points, a: FloatArray, s1: FloatArray, b: FloatArray) -> _Worst:
        sign = 1.0 if self.inside else -1.0
        tails = ball_tails(
            dimension=points.n, centre=s1 * a / _difference(points.sigma, s1), boundary=sign * (b - a) / s1
        )
        if self.inside:
            return _Worst(b, tails.log_inside, tails.log_outside)
        return _Worst(b, tails.log_outside, tails.log_inside)

    def chance_at_x0(self, points: _Points, a: FloatArray, s1: FloatArray, b: FloatArray) -> FloatArray:
        s0 = points.sigma
        sign = 1.0 if self.inside else -1.0
        tails = ball_tails(dimension=points.n, centre=s0 * a / _difference(s0, s1), boundary=sign * b / s0)
        return tails.log_inside if self.inside else tails.log_outside


def _difference(s0: FloatArray, s1: FloatArray) -> FloatArray:
    return np.abs(s0 - s1) * (s0 + s1)


_SIDES: tuple[_Shape, ...] = (_Ball(inside=True), _Ball(inside=False), _HalfSpace())


def _worst(points: _Points, a: FloatArray, s1: FloatArray, start: FloatArray | None) -> _Worst:
    """The worst region for each input, of whichever shape."""
    found = np.full((3, a.size), np.nan)
    for side in _SIDES:
        at = np.flatnonzero(side.holds(points.sigma, s1))
        if at.size:
            one = side.worst(points.take(at), a[at], s1[at], None if start is None else start[at])
            found[:, at] = one.boundary, one.log_chance, one.log_rest
    return _Worst(*found)


def _chance_up(points: _Points, a: FloatArray, s1: FloatArray, near: FloatArray) -> FloatArray:
    """An upper bound on log ξ(a, σ₁): the chance at x₁ of a region that was seen to have more than p at x₀.

    near: boundaries close to that of the worst region. They are lowered, which makes the region larger, until its
    chance at x₀ is seen to suffice. NaN where something is out of range.
    """
    out = np.full(a.size, np.nan)
    for side in _SIDES:
        at = np.flatnonzero(side.holds(points.sigma, s1) & np.isfinite(near))
        if at.size:
            out[at] = _chance_of_larger(side, points.take(at), a[at], s1[at], near[at])
    return out


def _chance_of_larger(side: _Shape, points: _Points, a: FloatArray, s1: FloatArray, near: FloatArray) -> FloatArray:
    needed = points.log_tail + RELATIVE_ERROR

    def suffices(b: FloatArray, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        return side.chance_at_x0(points.take(at), a[at], s1[at], b) >= needed[at]

    b = step_down_each_until(near, suffices, floor=-np.inf, step=_ROOM * points.sigma)
    return side.at(points, a, s1, b).log_chance + RELATIVE_ERROR


class _OneEnd:
    """One bound p on all that is not the class, and one end of the envelope: x₁ is certified where ξ < ½."""

    def __init__(self, points: _Points, end: Callable[[FloatArray, FloatArray], FloatArray]) -> None:
        self.sigma = points.sigma
        self._points = points
        self._end = end
        self._boundary = _half_space_boundary(points)

    def lead(self, a: FloatArray, at: NDArray[np.intp]) -> FloatArray:
        points = self._points.take(at)
        worst = _worst(points, a, self._end(points.sigma, a), self._boundary[at])
        self._boundary[at] = worst.boundary
        return worst.lead

    def proved(self, a: FloatArray, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        self.lead(a, at)  # the boundary moves with the distance
        # NaN proves nothing: the comparison fails.
        return _chance_up(self._points.take(at), a, self._end(self.sigma[at], a), self._boundary[at]) < _LOG_HALF


class _OneBound:
    """One bound p on all that is not the class: both ends of the envelope must be certified (Theorem 6)."""

    def __init__(self, points: _Points, envelope: Envelope) -> None:
        self.sigma = points.sigma
        self.ends = [_OneEnd(points, end) for end in _ends(envelope)]

    def lead(self, a: FloatArray, at: NDArray[np.intp]) -> FloatArray:
        return np.minimum(*(end.lead(a, at) for end in self.ends))

    def proved(self, a: FloatArray, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        return np.logical_and(*(end.proved(a, at) for end in self.ends))


class _TwoBounds:
    """A bound p on all that is not the class and another on every single class: ξ(·; p) + ξ(·; p_b) < 1 for all σ₁."""

    def __init__(self, mine: _Points, theirs: _Points, envelope: Envelope) -> None:
        self.sigma = mine.sigma
        self._both = (mine, theirs)
        self._envelope = envelope
        self._boundary = np.stack([_half_space_boundary(points) for points in self._both])[:, None, :].repeat(3, axis=1)

    def lead(self, a: FloatArray, at: NDArray[np.intp]) -> FloatArray:
        """At the ends of the envelope and at σ₀, where the largest sum nearly always is; `proved` looks between."""
        sigma = self.sigma[at]
        low, high = (end(sigma, a) for end in _ends(self._envelope))
        least = np.full(a.size, np.inf)
        for row, s1 in enumerate((low, sigma, high)):
            total = np.zeros(a.size)
            for which, points in enumerate(self._both):
                worst = _worst(points.take(at), a, s1, self._boundary[which, row, at])
                self._boundary[which, row, at] = worst.boundary
                total += worst.lead
            least = np.minimum(least, 0.5 * total)
        return least

    def proved(self, a: FloatArray, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        proved = np.zeros(at.size, dtype=np.bool_)
        for cells in _CELLS:
            left = np.flatnonzero(~proved)
            if left.size:
                proved[left] = self._below_one(a[left], at[left], cells)
        return proved

    def _below_one(self, a: FloatArray, at: NDArray[np.intp], cells: int) -> NDArray[np.bool_]:
        """Whether the sum is seen to stay below 1 on the whole envelope, cut into that many intervals of log σ₁."""
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
            near = _worst(several, a.ravel(), levels.ravel(), None).boundary
            total += np.exp(_chance_up(several, a.ravel(), levels.ravel(), near))
        return total.reshape(levels.shape)


def _peak(left: FloatArray, right: FloatArray, bend: FloatArray) -> FloatArray:
    """Most a function can reach on an interval, given its values at the ends and h²f'' ≥ -bend, h the length.

    It lies below the chord plus bend·t(1-t)/2, which peaks inside if the chord is flat enough.
    """
    rise = np.abs(right - left)
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = 0.5 * (left + right) + bend / 8.0 + np.square(rise) / (2.0 * bend)
    return np.where(rise < 0.5 * bend, inside, np.maximum(left, right))


def _half_space_boundary(points: _Points) -> FloatArray:
    boundary: FloatArray = -special.ndtri_exp(points.log_tail) * points.sigma
    return boundary


def _ends(envelope: Envelope) -> tuple[Callable[[FloatArray, FloatArray], FloatArray], ...]:
    """The two ends of an envelope; NaN, which certifies nothing, where they are not positive and finite."""

    def low(sigma: FloatArray, a: FloatArray) -> FloatArray:
        level = np.asarray(envelope.low(sigma, a), dtype=np.float64)
        return np.where((level >= _SMALLEST_RATIO * sigma) & (level <= sigma), level, np.nan)

    def high(sigma: FloatArray, a: FloatArray) -> FloatArray:
        level = np.asarray(envelope.high(sigma, a), dtype=np.float64)
        return np.where((level >= sigma) & (level <= _LARGEST_RATIO * sigma), level, np.nan)

    return low, high


class _Problem(Protocol):
    """What certifies a distance. sigma: (m,)."""

    sigma: FloatArray

    def lead(self, a: FloatArray, at: NDArray[np.intp], /) -> FloatArray:
        """A decreasing function of the distance that is positive where it is certified, for the elements `at`."""

    def proved(self, a: FloatArray, at: NDArray[np.intp], /) -> NDArray[np.bool_]:
        """Whether the distance is certified, beyond doubt by the error of evaluation."""


def _reach(problem: _Problem, most: FloatArray) -> FloatArray:
    """The largest distance up to `most` that is proved to be certified."""
    near = _root(problem, most)
    return step_down_each_until(near, problem.proved, floor=0.0, step=_STEP_BACK * problem.sigma)


def _root(problem: _Problem, most: FloatArray) -> FloatArray:
    """Where the lead falls to 0 on [0, most], by inverse quadratic interpolation in a bracket (Chandrupatla 1997)."""
    root = np.zeros(most.size)
    everyone = np.arange(most.size)
    # At 0 the worst region is the half-space, if the envelope starts at σ₀. Should it not, the proof will tell.
    at_zero, at_most = most / problem.sigma, _finite(problem.lead(most, everyone))
    root[at_most > 0] = most[at_most > 0]
    at = np.flatnonzero(at_most <= 0)
    x1, f1, x2, f2 = np.zeros(at.size), at_zero[at], most[at], at_most[at]
    fraction = f1 / (f1 - f2)
    for _ in range(_MOST_STEPS):
        if not at.size:
            break
        x = x1 + fraction * (x2 - x1)
        f = _finite(problem.lead(x, at))
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


def _finite(lead: FloatArray) -> FloatArray:
    """Infinite leads made finite; what could not be computed is no lead at all."""
    return np.clip(np.where(np.isnan(lead), -1e8, lead), -1e8, 1e8)


@dataclass(frozen=True, slots=True)
class EnvelopeCertificate:
    """Theorem 7 for the envelope and the dimension of the smoothing at hand."""

    name: str
    needs: tuple[Quantity, ...]
    proofs: tuple[Proof, ...]
    formula: Callable[..., FloatArray]
    family: str = "envelope"
    norm: Norm = Norm.L2
    noise: Noise = Noise.GAUSSIAN
    varying_sigma: bool = True

    def check_suits(self, smoothing: Smoothing, /) -> None:
        known_dimension(self.name, smoothing)

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        dimension = known_dimension(self.name, smoothing)
        values = (quantities[quantity] for quantity in self.needs)
        return self.formula(*values, sigma=sigma, dimension=dimension, envelope=smoothing.envelope)


_TOP = (Quantity.TOP_LOWER,)
_TWO = (Quantity.TOP_LOWER, Quantity.RUNNER_UP_UPPER)

ENVELOPE = (
    EnvelopeCertificate("envelope", _TOP, (Proof.TOP,), envelope_radius),
    EnvelopeCertificate("envelope-two-class", _TWO, (Proof.TOP, Proof.RUNNER_UP), envelope_two_class_radius),
    # The same for the mean score instead of the majority of votes.
    EnvelopeCertificate("envelope-soft", _TOP, (Proof.SCORE_TOP,), envelope_radius),
    EnvelopeCertificate(
        "envelope-soft-two-class", _TWO, (Proof.SCORE_TOP, Proof.SCORE_OTHER), envelope_two_class_radius
    ),
    EnvelopeCertificate("envelope-soft-bernstein", _TOP, (Proof.SCORE_TOP_BERNSTEIN,), envelope_radius),
    EnvelopeCertificate(
        "envelope-soft-two-class-bernstein",
        _TWO,
        (Proof.SCORE_TOP_BERNSTEIN, Proof.SCORE_OTHER_BERNSTEIN),
        envelope_two_class_radius,
    ),
)
