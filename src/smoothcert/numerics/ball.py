"""Probability of a ball in N dimensions under an isotropic Gaussian, and its inverse.

Everything is in units of the standard deviation. A ball is given by the distance κ ≥ 0 of its centre from the mean of
the Gaussian, and by its boundary τ = κ - R: the signed distance from the mean to the nearest point of the ball,
negative where the mean lies inside. As κ → ∞ the ball becomes the half-space beyond τ, and nothing here loses digits on
the way. In the language of the noncentral chi-square law with N degrees of freedom and noncentrality κ², the ball is
the event that the variable is at most x = (κ-τ)².

Method. With the cumulant function K(s) = κ² s/(1-2s) - (N/2) log(1-2s), either tail is
(1/2πi) ∫ exp(K(s) - s x) ds/|s| along a line through a point c < 0 (inside) or 0 < c < ½ (outside). The line is bent
into the parabola 1 - 2s = (1-2c)(1+iw)², on which the integrand falls like a Gaussian in w for every N, κ and x, and c
is the saddle point, so that the factor exp(K(c) - c x) carries the size of the tail: there is no cancellation however
small the tail is. On such an integrand the trapezoidal rule converges exponentially; 14 to 90 nodes give all digits.
The pole at s = 0 may lie close to the parabola (it does where the probability is near ½): its part in the error of the
trapezoidal rule is known in closed form and taken off.

Range: N from 1 to 200000 and beyond, κ² from 0 to 1e13 and far beyond, tails down to 1e-300 and, in logarithms, below.
The relative error of a tail is a few 1e-16 times the size of the terms of the exponent, which is about z√N/2 for a
boundary z standard deviations out: below 4e-13 where certificates use it, below 3e-12 at 1e-300.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.records import FloatArray

RELATIVE_ERROR = 1e-11
"""More than the relative error of any tail from here, down to 1e-300."""

_DECAY = 35.0
"""Natural logarithm of the neglected part, relative to the whole."""
_POLE_DISTANCE = 1.0
"""How near the parabola may pass by the pole, in standard deviations of the integrand."""
_CELLS = 1 << 14
"""Nodes of all elements computed at once: what stays in a core's cache."""
_MOST_STEPS = 200
_CONVERGED = 1e-7
"""Newton's method squares the error: after a step this small the boundary is exact."""
_RESOLUTION = 2.3e-16
_LONGEST_STEP = 5.0
_BEYOND = -1e4
_LEAST_SQUARE = 1e-250
"""A ball whose squared radius is below this counts as empty: its volume is negligible for every N."""


@dataclass(frozen=True, slots=True)
class BallTails:
    """Natural logarithms of the probability inside and outside, and of the density of x = (κ-τ)²; one shape."""

    log_inside: FloatArray
    log_outside: FloatArray
    log_density: FloatArray


def ball_tails(*, dimension: ArrayLike, centre: ArrayLike, boundary: ArrayLike) -> BallTails:
    """Logarithms of P(inside) and P(outside) of the ball, and of the density; each tail keeps its relative accuracy.

    dimension N ≥ 1, centre κ ≥ 0, boundary τ ≤ κ, finite; shapes broadcast. NaN where an argument is out of range, or
    for a small ball so far away (κ above 1e9) that floats no longer place it. Not rounded to a side: the relative error
    is below RELATIVE_ERROR.
    """
    given = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (dimension, centre, boundary)))
    n, kappa, tau = given
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(kappa), np.square(kappa - tau), tau * (2.0 * kappa - tau)
    return _tails(n, *squares, where=(tau <= kappa) & (kappa >= 0))


def _tails(
    n: FloatArray, lam: FloatArray, x: FloatArray, gap: FloatArray, *, where: NDArray[np.bool_] | bool = True
) -> BallTails:
    """lam = κ², gap = κ² - x, given apart because the difference would lose its digits."""
    flat = [np.ravel(v) for v in np.broadcast_arrays(n, lam, x, gap)]
    valid = np.isfinite(flat[0]) & (flat[0] >= 1) & np.isfinite(flat[1]) & (flat[1] >= 0)
    valid &= np.isfinite(flat[2]) & np.isfinite(flat[3]) & np.ravel(np.broadcast_to(where, x.shape))
    some = valid & (flat[2] > _LEAST_SQUARE)
    found = np.full((3, flat[0].size), np.nan)
    found[:, valid] = np.array([[-np.inf], [0.0], [-np.inf]])  # a ball without an inside
    places = np.flatnonzero(some)
    if places.size:
        # An overflow gives NaN, and NaN proves nothing.
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            found[:, places] = _in_pieces(*(v[places] for v in flat))
    return BallTails(*(row.reshape(x.shape) for row in found))


def _in_pieces(n: FloatArray, lam: FloatArray, x: FloatArray, gap: FloatArray) -> FloatArray:
    """(3, m): log inside, log outside, log density. Elements are computed in pieces that fit into the cache."""
    lower = -gap < n  # x is below the mean N + κ²: the inside is the smaller tail
    parabola = _Parabola.through_saddle(n, lam, x, gap, lower=lower)
    step, nodes = parabola.nodes()
    out = np.empty((3, n.size))
    # Few elements need many nodes; sorting keeps their cost from the others.
    order = np.argsort(nodes, kind="stable")
    at = 0
    while at < order.size:
        most = max(1, _CELLS // int(nodes[order[at]]))
        piece = order[at : at + most]
        count = int(nodes[piece[-1]])
        while piece.size > 1 and count * piece.size > 2 * _CELLS:
            piece = piece[: piece.size // 2]
            count = int(nodes[piece[-1]])
        log_tail, log_density = parabola.take(piece).integrate(step[piece], nodes[piece])
        small, large = log_tail, np.log1p(-np.exp(np.minimum(log_tail, 0.0)))
        below = lower[piece]
        out[0, piece] = np.where(below, small, large)
        out[1, piece] = np.where(below, large, small)
        out[2, piece] = log_density
        at += piece.size
    return out


@dataclass(frozen=True, slots=True)
class _Parabola:
    """The path 1 - 2s = g(1+iw)², g = 1 - 2c, for one tail of each element. All arrays (m,)."""

    n: FloatArray
    lam: FloatArray
    x: FloatArray
    gap: FloatArray
    lower: NDArray[np.bool_]
    c: FloatArray
    g: FloatArray

    @classmethod
    def through_saddle(
        cls, n: FloatArray, lam: FloatArray, x: FloatArray, gap: FloatArray, *, lower: NDArray[np.bool_]
    ) -> _Parabola:
        """c solves K'(c) = x, in a form that cancels neither near c = 0 nor for small x; but it keeps off the pole."""
        root = np.sqrt(n * n + 4.0 * x * lam)
        saddle = (-gap - n) / (2.0 * x * (1.0 + 2.0 * lam / (n + root)))
        spread = np.sqrt(x + 3.0 * lam + n)
        distance = np.minimum(_POLE_DISTANCE / spread, 0.5)
        nearest = -0.5 * np.expm1(-2.0 * np.log1p(np.where(lower, -distance, distance)))
        clear = (saddle < nearest) == lower
        c = np.where(clear, saddle, nearest)
        return cls(n, lam, x, gap, lower, c, np.where(clear, (n + root) / (2.0 * x), 1.0 - 2.0 * c))

    def take(self, piece: NDArray[np.intp]) -> _Parabola:
        return _Parabola(*(getattr(self, name)[piece] for name in self.__slots__))

    def nodes(self) -> tuple[FloatArray, NDArray[np.int64]]:
        """The step in w, and how many steps reach to where the integrand is negligible.

        The trapezoidal rule with step h errs by exp(growth(y) - 2πy/h) for every y up to which the integrand can be
        continued to Im w = ±y, which is 1 on the side of the branch point s = ½.
        """
        stiffness, pull = self.x * self.g, self.lam / self.g
        curvature = stiffness + 3.0 * pull + self.n
        y = math.sqrt(2.0 * _DECAY) / np.sqrt(curvature)
        towards = y / (1.0 + y)
        step = np.minimum(
            2.0 * math.pi * towards / (self._growth(stiffness, pull, -towards) + _DECAY),
            2.0 * math.pi * y / (self._growth(stiffness, pull, y) + _DECAY),
        )
        reach = math.sqrt(2.0 * _DECAY) / np.sqrt(curvature)
        for _ in range(4):
            square = np.square(reach)
            fallen = 0.5 * (
                stiffness * square
                + self.n * np.log1p(square)
                + pull * square * (3.0 + square) / np.square(1.0 + square)
            )
            reach = reach * np.sqrt(np.maximum(_DECAY / fallen, 1.0))
        count = np.ceil(1.02 * reach / step)
        fine = np.isfinite(count) & (count >= 1)
        return np.where(fine, step, np.nan), np.where(fine, count, 1.0).astype(np.int64)

    def _growth(self, stiffness: FloatArray, pull: FloatArray, y: FloatArray) -> FloatArray:
        """By how much the exponent is larger at w = -iy than at w = 0."""
        u = y * (2.0 + y)
        # stiffness - pull, without cancellation where c is small and both are large.
        tilt = np.where(
            np.abs(self.c) > 0.25, stiffness - pull, (-self.gap - 4.0 * self.c * (1.0 - self.c) * self.x) / self.g
        )
        return 0.5 * (tilt * u + pull * u * u / (1.0 + u) - 2.0 * self.n * np.log1p(y))

    def integrate(self, step: FloatArray, nodes: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """log of the tail and log of the density, from the nodes w = 0, h, …, nodes·h; the other half is conjugate.

        Sums run over a multiple of eight places, with zeros where an element has fewer nodes: numpy then adds every
        element's terms in the same order whatever the others need, so no result depends on the other elements.
        """
        c, g, n, lam, x, gap = (v[:, None] for v in (self.c, self.g, self.n, self.lam, self.x, self.gap))
        places = np.arange(-(-(int(nodes.max()) + 1) // 8) * 8)
        w = step[:, None] * places
        square = w * w
        s_re, s_im = c + 0.5 * g * square, -g * w
        # The exponent is s a - (N/2) log(1-2s), where a = κ²/(1-2s) - x = gap + 2 s κ²/(1-2s): the second form for a
        # large κ, where s is small; the first for a small ball, where s is large.
        inverse = lam / (g * np.square(1.0 + square))
        q_re, q_im = (1.0 - square) * inverse, -2.0 * w * inverse
        a_re = np.where(np.abs(c) > 0.25, q_re - x, gap + 2.0 * (s_re * q_re - s_im * q_im))
        a_im = q_im
        log_size = s_re * a_re - s_im * a_im - 0.5 * n * (self._log_g()[:, None] + np.log1p(square))
        angle = s_re * a_im + s_im * a_re - n * np.arctan(w)
        first = log_size[:, 0]
        size = np.exp(log_size - first[:, None])
        size[:, 0] *= 0.5
        size[places > nodes[:, None]] = 0.0
        e_re, e_im = size * np.cos(angle), size * np.sin(angle)
        norm = s_re * s_re + s_im * s_im
        v_re, v_im = (s_re + w * s_im) / norm, (w * s_re - s_im) / norm
        scale = step * g[:, 0] / math.pi
        tail = np.where(self.lower, -1.0, 1.0) * scale * np.sum(e_re * v_re - e_im * v_im, axis=1)
        density = scale * np.sum(e_re - e_im * w, axis=1)
        tail -= self._pole(step, first)
        # Far below the smallest float, only the size of the integrand is known.
        tail, density = (np.where(first < _BEYOND, 1.0, value) for value in (tail, density))
        tiny = np.finfo(np.float64).tiny
        return first + np.log(np.maximum(tail, tiny)), first + np.log(np.maximum(density, tiny))

    def _log_g(self) -> FloatArray:
        return np.where(np.abs(self.c) < 0.25, np.log1p(-2.0 * np.minimum(self.c, 0.25)), np.log(self.g))

    def _pole(self, step: FloatArray, first: FloatArray) -> FloatArray:
        """What the pole at s = 0 adds to the trapezoidal sum, 1/(exp(2πd/h) - 1), d its distance from the path in w.

        In units of exp(first). Only where it lies inside the strip that `nodes` relied on; it is below 1 there.
        """
        distance = np.abs(np.expm1(-0.5 * self._log_g()))
        y = math.sqrt(2.0 * _DECAY) / np.sqrt(self.x * self.g + 3.0 * self.lam / self.g + self.n)
        within = distance < np.where(self.lower, y / (1.0 + y), y)
        exponent = 2.0 * math.pi * distance / step
        return np.where(within, np.exp(np.minimum(-first - exponent, 700.0)) / -np.expm1(-exponent), 0.0)


def solve_boundary(
    log_probability: FloatArray,
    n: FloatArray,
    kappa: FloatArray,
    *,
    inside: bool,
    start: FloatArray | None = None,
) -> FloatArray:
    """τ at which the log of the probability inside (or outside) has this value; arrays (m,), values in range.

    Newton's method on the logarithm, which is concave in the boundary, inside a shrinking bracket.
    start: an approximate boundary, if known.
    """
    tau = _first_guess(log_probability, n, kappa, inside=inside)
    if start is not None:
        tau = np.where((np.abs(start - tau) < _LONGEST_STEP) & (start < kappa), start, tau)
    low, high = np.full(tau.shape, -np.inf), kappa.copy()
    active = np.arange(tau.size)
    for _ in range(_MOST_STEPS):
        t, k = tau[active], kappa[active]
        tails = ball_tails(dimension=n[active], centre=k, boundary=t)
        log_tail = tails.log_inside if inside else tails.log_outside
        excess = log_tail - log_probability[active]
        # d log(tail)/dτ = ∓ 2(κ-τ) density/tail: the inside shrinks as τ grows, the outside grows.
        with np.errstate(over="ignore", invalid="ignore"):
            slope = (-2.0 if inside else 2.0) * (k - t) * np.exp(tails.log_density - log_tail)
        too_low = (excess > 0) if inside else (excess < 0)
        low[active] = np.where(too_low, np.maximum(t, low[active]), low[active])
        high[active] = np.where(too_low, high[active], np.minimum(t, high[active]))
        small = (k - t < 1.0) & inside
        following = _keep_in_bracket(_newton(t, k - t, excess, slope, small=small), t, low[active], high[active])
        moved = np.abs(following - t)
        tau[active] = following
        # Relative to the size of a small ball, but never below the resolution of a boundary.
        size = np.minimum(1.0, k - following)
        active = active[moved > np.maximum(_CONVERGED * size, _RESOLUTION * np.abs(following))]
        if not active.size:
            break
    return tau


def _newton(
    tau: FloatArray, radius: FloatArray, excess: FloatArray, slope: FloatArray, *, small: NDArray[np.bool_]
) -> FloatArray:
    """One step, in the boundary, or in the logarithm of the radius for the inside of a small ball, a power of it.

    The chance changes within a few units of τ whatever N and κ are, so a longer step comes from a flat spot.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        step = np.clip(excess / slope, -_LONGEST_STEP, _LONGEST_STEP)
        growth = np.clip(excess / (radius * slope), -40.0, 2.0)
        proposed = np.where(small, tau - radius * np.expm1(growth), tau - step)
    return np.where(np.isfinite(proposed), proposed, tau)


def _keep_in_bracket(proposed: FloatArray, now: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """A step that leaves the bracket goes half way to its end instead, or doubles where there is none yet."""
    beyond_low = np.where(np.isfinite(low), 0.5 * (now + low), proposed)
    inside = np.where(proposed <= low, beyond_low, proposed)
    return np.where(inside >= high, 0.5 * (now + high), inside)


def _first_guess(log_probability: FloatArray, n: FloatArray, kappa: FloatArray, *, inside: bool) -> FloatArray:
    """Normal approximation of the third root of X/(N+κ²) (Abdel-Aty 1954), as a boundary."""
    z = special.ndtri_exp(log_probability)
    z = z if inside else -z
    lam = np.square(kappa)
    mean = n + lam
    variance = 2.0 * (n + 2.0 * lam) / (9.0 * np.square(mean))
    root = np.maximum(1.0 - variance + z * np.sqrt(variance), 0.05)
    x = mean * root**3
    # κ - sqrt(x) without cancellation: (κ² - x)/(κ + sqrt(x)), and κ² - x = -N - mean (root³ - 1).
    rise = (root - 1.0) * (root * root + root + 1.0)
    guess: FloatArray = (-n - mean * rise) / (kappa + np.sqrt(x))
    return guess
