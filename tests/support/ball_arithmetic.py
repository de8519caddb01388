"""Probabilities of balls under a Gaussian, enclosed by interval arithmetic: an oracle that shares no method with src.

With the centre of the ball at κ on the first axis and its radius R = κ-τ, the other N-1 coordinates have a length
t = R sin θ of the chi law, and given it the first one lies within R cos θ of κ:

    P(inside) = ∫ f(R sin θ) · [Φ(κ + R cos θ) - Φ(κ - R cos θ)] · R cos θ dθ,  0 ≤ θ ≤ π/2.

The integrand is entire in θ, so `acb.integral` encloses the integral without a branch to watch. The error it may make
is a fraction of Chernoff's bound on the result, which costs nothing if it is off: the answer is an enclosure anyway.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flint import acb, arb, ctx

from ball_probabilities import boundary_of_inside, boundary_of_outside

Number = float | int | arb

_BITS = 192
_ACCURACY = 64
"""Bits of a result, at least."""


def ball_inside(dimension: int, centre: Number, boundary: Number) -> arb:
    return _enclosed(dimension, centre, boundary, _inside)


def ball_outside(dimension: int, centre: Number, boundary: Number) -> arb:
    return _enclosed(dimension, centre, boundary, _outside)


def normal_below(z: Number) -> arb:
    with ctx.workprec(_BITS):
        return _normal_below(arb(z))


def contradicts(value: float, truth: arb, relative_error: float) -> bool:
    """Whether the value is certainly further from the truth than that."""
    with ctx.workprec(_BITS):
        return bool(abs(arb(value) - truth) > arb(relative_error) * abs(truth))


def error_of(value: float, truth: arb) -> float:
    """Relative error, an upper bound."""
    with ctx.workprec(_BITS):
        return float((abs(arb(value) - truth) / abs(truth)).upper())


def region_chances(
    *, sigma: Number, other_sigma: Number, distance: Number, dimension: int, crossing: Number
) -> tuple[arb, arb]:
    """Chance at x₀ and at x₁ of the region of Theorem 2 whose boundary crosses the line from x₀ to x₁ at `crossing`."""
    with ctx.workprec(_BITS):
        s0, s1, a, b = arb(sigma), arb(other_sigma), arb(distance), arb(crossing)
        if s1 < s0:
            spread = (s0 - s1) * (s0 + s1)
            at_x0 = ball_inside(dimension, s0 * a / spread, b / s0)
            return at_x0, ball_inside(dimension, s1 * a / spread, (b - a) / s1)
        if s1 > s0:
            spread = (s1 - s0) * (s0 + s1)
            at_x0 = ball_outside(dimension, s0 * a / spread, -b / s0)
            return at_x0, ball_outside(dimension, s1 * a / spread, (a - b) / s1)
        if s1.overlaps(s0) and not (s1.is_exact() and s0.is_exact()):
            raise ArithmeticError("the two levels cannot be told apart")
        return _normal_below(-b / s0), _normal_below((a - b) / s0)


def most_at_x1(p: Number, *, sigma: Number, other_sigma: Number, distance: Number, dimension: int) -> arb:
    """An upper bound on ξ for a class of probability p at x₀, by a region shown to have more than p there."""
    return _compared(p, sigma, other_sigma, distance, dimension, larger=True).upper()


def least_at_x1(p: Number, *, sigma: Number, other_sigma: Number, distance: Number, dimension: int) -> arb:
    """A lower bound on ξ, by a region shown to have less than p at x₀."""
    return _compared(p, sigma, other_sigma, distance, dimension, larger=False).lower()


def _compared(p: Number, sigma: Number, other_sigma: Number, distance: Number, dimension: int, *, larger: bool) -> arb:
    """The chance at x₁ of a region a little larger or smaller than the worst one. Where to look for it is a hint."""
    with ctx.workprec(_BITS):
        hint = _crossing(arb(p), arb(sigma), arb(other_sigma), arb(distance), dimension)
    sign, scale = -1.0 if larger else 1.0, max(abs(hint), float(sigma))
    for step in (5e-14, 1e-12, 1e-10, 1e-8, 1e-6):
        crossing = hint + sign * step * scale
        at_x0, at_x1 = region_chances(
            sigma=sigma, other_sigma=other_sigma, distance=distance, dimension=dimension, crossing=crossing
        )
        if at_x0 >= p if larger else at_x0 <= p:
            return at_x1
    raise ArithmeticError("the hint is no boundary of the worst region")


def _crossing(p: arb, s0: arb, s1: arb, a: arb, dimension: int) -> float:
    if s1 == s0:
        return float(s0 * arb(2).sqrt() * (1 - 2 * p).erfinv())
    centre = float(s0 * a / abs((s0 - s1) * (s0 + s1)))
    if s1 < s0:
        return float(s0) * float(boundary_of_inside(float(p), dimension=dimension, centre=centre))
    return -float(s0) * float(boundary_of_outside(float(p), dimension=dimension, centre=centre))


def _enclosed(dimension: int, centre: Number, boundary: Number, method: Callable[[int, arb, arb, arb], arb]) -> arb:
    bits = _BITS
    while True:
        with ctx.workprec(bits):
            kappa, tau = arb(centre), arb(boundary)
            result = method(dimension, kappa, tau, _magnitude(dimension, kappa, tau, inside=method is _inside))
        if result.rel_accuracy_bits() >= _ACCURACY or bits > 20 * _BITS:
            return result
        bits *= 2


def _magnitude(dimension: int, kappa: arb, tau: arb, *, inside: bool) -> arb:
    """Chernoff's bound on the tail, or 1 where it is no tail: exp(K(s) - s x) at the saddle point."""
    x = (kappa - tau) ** 2
    if not x > 0:
        return arb(1)
    g = ((dimension + (dimension**2 + 4 * kappa**2 * x).sqrt()) / (2 * x)).mid()  # 1 - 2s
    if (g < 1) is inside or not g > 0:
        return arb(1)
    s = (1 - g) / 2
    return (s * (kappa**2 / g - x) - arb(dimension) / 2 * g.log()).exp().mid()


def _inside(dimension: int, kappa: arb, tau: arb, magnitude: arb) -> arb:
    if dimension == 1:
        return _normal_below(-tau) - _normal_below(tau - 2 * kappa)
    return _over_angles(dimension, kappa, tau, magnitude, inside=True)


def _outside(dimension: int, kappa: arb, tau: arb, magnitude: arb) -> arb:
    if dimension == 1:
        return _normal_below(tau) + _normal_below(tau - 2 * kappa)
    beside = ((kappa - tau) ** 2 / 2).gamma_upper(arb(dimension - 1) / 2, regularized=1)  # no first coordinate helps
    return beside + _over_angles(dimension, kappa, tau, magnitude, inside=False)


def _over_angles(dimension: int, kappa: arb, tau: arb, magnitude: arb, *, inside: bool) -> arb:
    radius, freedom = kappa - tau, dimension - 1
    log_unit = (1 - arb(freedom) / 2) * arb(2).log() - (arb(freedom) / 2).lgamma()
    root = arb(2).sqrt()

    def law_of_length(theta: acb, sine: acb, cosine: acb) -> acb:
        """f(t) dt/dθ. By the mean value theorem around the middle, so that N log t - t²/2 is not blown up by N."""
        t, middle = radius * sine, acb(theta.real.mid(), theta.imag.mid())
        t_middle = radius * middle.sin()
        slope = cosine / sine * (freedom - t * t)
        exponent = log_unit + freedom * t_middle.log() - t_middle * t_middle / 2 + slope * (theta - middle)
        value = exponent.exp() * cosine / sine
        return value if value.is_finite() else (log_unit - t * t / 2).exp() * t ** (freedom - 1) * radius * cosine

    def integrand(theta: acb, _: bool) -> acb:
        sine, cosine, half = theta.sin(), theta.cos(), (theta / 2).sin()
        near, far = tau + 2 * radius * half * half, kappa + radius * cosine  # where the ball begins and ends
        if inside:
            chance = ((near / root).erfc() - (far / root).erfc()) / 2
        else:
            chance = ((-near / root).erfc() + (far / root).erfc()) / 2
        return law_of_length(theta, sine, cosine) * chance

    tolerance = magnitude * arb(2) ** (-_ACCURACY - 16)
    return acb.integral(integrand, 0, arb.pi() / 2, rel_tol=arb(2) ** (-_ACCURACY - 4), abs_tol=tolerance).real


def _normal_below(z: arb) -> arb:
    return (-z / arb(2).sqrt()).erfc() / 2


def log_uniform(generator: np.random.Generator, low: float, high: float, size: int) -> np.ndarray:
    return np.exp(generator.uniform(np.log(low), np.log(high), size))
