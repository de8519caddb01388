"""The worst regions for two Gaussians of different width: half-spaces, balls and outsides of balls.

Let σ₀ = σ(x₀), and let x₁ at distance a use σ₁. By the Neyman–Pearson lemma the worst region for a class of probability
p at x₀ is a ball (σ₁ < σ₀), the outside of a ball (σ₁ > σ₀) or a half-space (σ₁ = σ₀), centred on the line through x₀
and x₁ (Súkeník, Kuvshinov and Günnemann 2022, Theorem 3). With D = |σ₀² - σ₁²| its centre is at distance σ₀ a/D from x₀
in units of σ₀, and σ₁ a/D from x₁ in units of σ₁. Its boundary crosses the line between the points at x₀ + b.
ξ(a, σ₁; p) is its probability at x₁. The region becomes the half-space as σ₁ → σ₀, and the representation by b loses no
digits on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.numerics.ball import RELATIVE_ERROR, ball_tails, solve_boundary
from smoothcert.numerics.roots import step_down_each_until
from smoothcert.records import FloatArray

LOG_HALF = float(np.log(0.5))
SIGMA_RANGE = (1e-100, 1e100)
"""Between these levels the squares of σ neither overflow nor lose digits."""

_ROOM = 3.0 * RELATIVE_ERROR
"""Relative room given to a probability at x₀, so that one evaluation can show that it is large enough."""


def worst_case_probability(
    p_a: ArrayLike, *, sigma: ArrayLike, other_sigma: ArrayLike, distance: ArrayLike, dimension: ArrayLike
) -> FloatArray:
    """ξ(a, σ₁): the largest probability that any class but A can have at x₁, given P₀(A) = p_a at x₀ (Theorem 3).

    p_a in (0, 1); sigma, other_sigma: the levels at x₀ and x₁, 1e-100 … 1e100; distance a ≥ 0; dimension N ≥ 1; shapes
    broadcast. x₁ is certified where this is below ½. For inspection: not rounded to a side; the relative error is about
    1e-11. NaN where an argument is out of range.
    """
    given = np.broadcast_arrays(
        *(np.asarray(v, dtype=np.float64) for v in (p_a, sigma, other_sigma, distance, dimension))
    )
    p, s0, s1, a, n = (np.ravel(v) for v in given)
    valid = (p > 0) & (p < 1) & (a >= 0) & (n >= 1) & np.isfinite(a) & np.isfinite(n)
    for level in (s0, s1):
        valid &= (level >= SIGMA_RANGE[0]) & (level <= SIGMA_RANGE[1])
    out = np.full(p.size, np.nan)
    for side in _SIDES:
        at = np.flatnonzero(valid & side.holds(s0, s1))
        points = Points(n[at], s0[at], np.log1p(-p[at]))
        out[at] = np.exp(side.worst(points, a[at], s1[at], None).log_chance)
    return out.reshape(given[0].shape)


@dataclass(frozen=True, slots=True)
class Points:
    """Inputs x₀: dimension, σ₀, and the log of the probability p that a region may have there. All (m,)."""

    n: FloatArray
    sigma: FloatArray
    log_tail: FloatArray

    def take(self, at: NDArray[np.intp]) -> Points:
        return Points(self.n[at], self.sigma[at], self.log_tail[at])


@dataclass(frozen=True, slots=True)
class WorstRegion:
    """The worst region for each input: its boundary b, and the logs of ξ and 1 - ξ at x₁."""

    boundary: FloatArray
    log_chance: FloatArray
    log_rest: FloatArray

    @property
    def lead(self) -> FloatArray:
        """-Φ⁻¹(ξ), in standard deviations: positive where ξ < ½; linear in a for a half-space."""
        less = self.log_chance < LOG_HALF
        tail = special.ndtri_exp(np.where(less, self.log_chance, self.log_rest))
        lead: FloatArray = np.where(less, -tail, tail)
        return lead


class _RegionFamily(Protocol):
    """The family of worst regions for one order of σ₀ and σ₁; a larger b is a smaller region."""

    def holds(self, s0: FloatArray, s1: FloatArray, /) -> NDArray[np.bool_]:
        """The pairs (σ₀, σ₁) that this family is for."""

    def worst(self, points: Points, a: FloatArray, s1: FloatArray, start: FloatArray | None, /) -> WorstRegion:
        """The region with probability p at x₀. start: a boundary close to its own, if known."""

    def at(self, points: Points, a: FloatArray, s1: FloatArray, b: FloatArray, /) -> WorstRegion:
        """The region with boundary b, seen from x₁."""

    def chance_at_x0(self, points: Points, a: FloatArray, s1: FloatArray, b: FloatArray, /) -> FloatArray:
        """log of the probability at x₀ of the region with boundary b."""


class _HalfSpace:
    """σ₁ = σ₀."""

    def holds(self, s0: FloatArray, s1: FloatArray) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = s1 == s0
        return same

    def worst(self, points: Points, a: FloatArray, s1: FloatArray, start: FloatArray | None) -> WorstRegion:
        return self.at(points, a, s1, half_space_boundary(points))

    def at(self, points: Points, a: FloatArray, s1: FloatArray, b: FloatArray) -> WorstRegion:
        z = (a - b) / s1
        return WorstRegion(b, special.log_ndtr(z), special.log_ndtr(-z))

    def chance_at_x0(self, points: Points, a: FloatArray, s1: FloatArray, b: FloatArray) -> FloatArray:
        chance: FloatArray = special.log_ndtr(-b / points.sigma)
        return chance


@dataclass(frozen=True, slots=True)
class _Ball:
    """σ₁ < σ₀: the inside of a ball beyond x₁. σ₁ > σ₀: the outside of a ball that lies on the other side of x₀."""

    inside: bool

    def holds(self, s0: FloatArray, s1: FloatArray) -> NDArray[np.bool_]:
        return s1 < s0 if self.inside else s1 > s0

    def worst(self, points: Points, a: FloatArray, s1: FloatArray, start: FloatArray | None) -> WorstRegion:
        s0 = points.sigma
        centre = s0 * a / _difference(s0, s1)
        sign = 1.0 if self.inside else -1.0
        tau = solve_boundary(
            points.log_tail, points.n, centre, inside=self.inside, start=None if start is None else sign * start / s0
        )
        return self.at(points, a, s1, sign * tau * s0)

    def at(self, points: Points, a: FloatArray, s1: FloatArray, b: FloatArray) -> WorstRegion:
        sign = 1.0 if self.inside else -1.0
        tails = ball_tails(
            dimension=points.n, centre=s1 * a / _difference(points.sigma, s1), boundary=sign * (b - a) / s1
        )
        if self.inside:
            return WorstRegion(b, tails.log_inside, tails.log_outside)
        return WorstRegion(b, tails.log_outside, tails.log_inside)

    def chance_at_x0(self, points: Points, a: FloatArray, s1: FloatArray, b: FloatArray) -> FloatArray:
        s0 = points.sigma
        sign = 1.0 if self.inside else -1.0
        tails = ball_tails(dimension=points.n, centre=s0 * a / _difference(s0, s1), boundary=sign * b / s0)
        return tails.log_inside if self.inside else tails.log_outside


def _difference(s0: FloatArray, s1: FloatArray) -> FloatArray:
    return np.abs(s0 - s1) * (s0 + s1)


_SIDES: tuple[_RegionFamily, ...] = (_Ball(inside=True), _Ball(inside=False), _HalfSpace())


def find_worst(points: Points, a: FloatArray, s1: FloatArray, start: FloatArray | None) -> WorstRegion:
    """The worst region for each input, of the family for its σ₀ and σ₁."""
    found = np.full((3, a.size), np.nan)
    for side in _SIDES:
        at = np.flatnonzero(side.holds(points.sigma, s1))
        if at.size:
            one = side.worst(points.take(at), a[at], s1[at], None if start is None else start[at])
            found[:, at] = one.boundary, one.log_chance, one.log_rest
    return WorstRegion(*found)


def bound_chance(points: Points, a: FloatArray, s1: FloatArray, near: FloatArray) -> FloatArray:
    """An upper bound on log ξ(a, σ₁): the probability at x₁ of a region with more than p at x₀.

    near: boundaries close to that of the worst region. They are lowered, which makes the region larger, until its
    probability at x₀ is shown to suffice. NaN where an argument is out of range.
    """
    out = np.full(a.size, np.nan)
    for side in _SIDES:
        at = np.flatnonzero(side.holds(points.sigma, s1) & np.isfinite(near))
        if at.size:
            out[at] = _chance_of_larger(side, points.take(at), a[at], s1[at], near[at])
    return out


def _chance_of_larger(
    side: _RegionFamily, points: Points, a: FloatArray, s1: FloatArray, near: FloatArray
) -> FloatArray:
    needed = points.log_tail + RELATIVE_ERROR

    def suffices(b: FloatArray, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        return side.chance_at_x0(points.take(at), a[at], s1[at], b) >= needed[at]

    b = step_down_each_until(near, suffices, floor=-np.inf, step=_ROOM * points.sigma)
    return side.at(points, a, s1, b).log_chance + RELATIVE_ERROR


def half_space_boundary(points: Points) -> FloatArray:
    boundary: FloatArray = -special.ndtri_exp(points.log_tail) * points.sigma
    return boundary
