"""Probability of a ball in N dimensions under a Gaussian, and the worst regions for a noise level that varies.

In units of the standard deviation let κ be the distance from the mean to the centre of a ball of radius R. Split the
Gaussian into its part along the axis through the centre and the length t of the rest, which follows the χ law with
N-1 degrees of freedom. Given t = R sin θ, the axis meets the ball between κ - R cos θ and κ + R cos θ. So

    P(inside) = ∫ f(R sin θ) (Φ(κ + R cos θ) - Φ(κ - R cos θ)) R cos θ dθ,   0 ≤ θ ≤ π/2,

an entire function of θ, integrated by Gauss–Legendre rules with proven errors (`acb.integral`). The χ law is that of
the length of a Gaussian vector, which is 1-Lipschitz: it is further than u from its mean, on either side, with
probability at most e^{-u²/2}, and the mean lies between sqrt(n-½) and sqrt(n), n = N-1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from flint import acb, arb, ctx

from smoothcert_verify.arithmetic import ball, lower_tail, point_of_upper_tail, upper_tail

_REACH = 12.0
_REACH_PROVED = 11.5
_POWER_UP_TO = 200
"""Degrees of freedom up to which the density is evaluated as a power of t; beyond, t stays away from 0."""
_BITS = 72
_RELATIVE = 2.0**-52
_ABSOLUTE = 1e-26
_STEPS = 60
_FAR_OUT = 11.0
"""Normal score of what is left out, or less."""
_CLOSE = 2.0**-44
_LARGER_BY = 2.0**-40
_MOST_LARGER = 14


def ball_chances(*, dimension: int, centre: arb, radius: arb, inside: bool) -> arb:
    """P(inside) or P(outside) of a ball at distance `centre` with this radius, in standard deviations."""
    if not radius > 0:
        return arb(0) if inside else arb(1)
    if dimension == 1:
        return _segment(centre, radius, inside=inside)
    n = dimension - 1
    left_out = arb(-_REACH_PROVED * _REACH_PROVED / 2.0).exp()
    start, stop = math.sqrt(n - 0.5) - _REACH, math.sqrt(n) + _REACH
    reach = float(radius.mid())
    if not arb(stop) < radius:
        stop = reach
    if start >= reach:
        # All but the left-out part of the rest is longer than the radius.
        return arb(0).union(left_out) if inside else arb(1).union(1 - left_out)
    low = acb(math.asin(max(start, 0.0) / reach))
    high = acb(math.asin(stop / reach)) if stop < reach else acb.pi() / 2
    integrand = _Integrand.of(n, centre, radius, inside=inside)
    found = acb.integral(integrand, low, high, rel_tol=arb(_RELATIVE), abs_tol=arb(_ABSOLUTE)).real
    # What was left out at either end counts fully, or not at all; beyond R everything is outside.
    if stop < reach or inside:
        return found + arb(0).union(2 * left_out)
    return found + _chi_beyond(n, radius) + arb(0).union(left_out)


def _segment(centre: arb, radius: arb, *, inside: bool) -> arb:
    if inside:
        return upper_tail(centre - radius) - upper_tail(centre + radius)
    return upper_tail(radius - centre) + upper_tail(radius + centre)


def _chi_beyond(n: int, t: arb) -> arb:
    """P(t' > t) for the χ law with n degrees of freedom."""
    return (t * t / 2).gamma_upper(arb(n) / 2, regularized=1)


@dataclass(frozen=True, slots=True)
class _Integrand:
    """scale: log of the constant in the density of χ. middle: where the density peaks."""

    n: int
    centre: arb
    radius: arb
    inside: bool
    scale: arb
    middle: arb

    @classmethod
    def of(cls, n: int, centre: arb, radius: arb, *, inside: bool) -> _Integrand:
        half = arb(n) / 2
        scale = -(half - 1) * arb(2).log() - half.lgamma()
        middle = arb(max(n - 1, 1)).sqrt()
        if n > _POWER_UP_TO:
            scale += (n - 1) * middle.log() - arb(n - 1) / 2
        return cls(n, centre, radius, inside, scale, middle)

    def __call__(self, theta: acb, analytic: bool) -> acb:
        sine, cosine = theta.sin_cos()
        along = self.radius * cosine
        root = acb(2).sqrt()
        near, far = (self.centre - along) / root, (self.centre + along) / root
        chance = near.erfc() - far.erfc() if self.inside else (-near).erfc() + far.erfc()
        return self._density(self.radius * sine, analytic) * chance * along / 2

    def _density(self, t: acb, analytic: bool) -> acb:
        """t^{n-1} e^{-t²/2} and the constant."""
        if self.n <= _POWER_UP_TO:
            return t ** (self.n - 1) * (self.scale - t * t / 2).exp()
        # With w = t/middle the exponent is (n-1)(log w - (w²-1)/2). Around the midpoint of a wide ball, in the form of
        # the mean value theorem: its terms cancel, and balls do not see that.
        w = t / self.middle
        if not w.real > 0:
            return acb("nan")
        centre = acb(w.real.mid(), w.imag.mid())
        value = centre.log() - (centre * centre - 1) / 2
        bent = value + (1 / w - w) * (w - centre)
        return ((self.n - 1) * bent + self.scale).exp()


@dataclass(frozen=True, slots=True)
class Worst:
    """The family of worst regions at distance a for the levels σ₀ at x₀ and σ₁ ≠ σ₀ at x₁ (Neyman and Pearson).

    The likelihood ratio is constant on spheres around a point of the axis: with D = |σ₀²-σ₁²|, at σ₀²a/D from x₀ and
    σ₁²a/D from x₁, beyond x₁ if σ₁ < σ₀ and beyond x₀ otherwise. The worst region is the ball in the first case, and
    what is outside of it in the second. A region is named by where its boundary meets the axis between, b from x₀.
    """

    dimension: int
    sigma: Fraction
    other: Fraction
    distance: Fraction

    def chance(self, b: Fraction, *, at_x1: bool) -> arb:
        inside = self.other < self.sigma
        difference = abs(self.sigma**2 - self.other**2)
        centre = self.sigma**2 * self.distance / difference
        radius = centre - b if inside else centre + b
        level = self.other if at_x1 else self.sigma
        return ball_chances(
            dimension=self.dimension,
            centre=ball(level * self.distance / difference),
            radius=ball(radius / level),
            inside=inside,
        )

    def bits(self) -> int:
        """What is needed where the centre is far away."""
        difference = abs(self.sigma**2 - self.other**2)
        far = float(self.sigma * self.distance / difference)
        return _BITS + 2 * max(0, math.frexp(max(far, 1.0))[1])


def chance_at_most(
    dimension: int, *, sigma: Fraction, other: Fraction, distance: Fraction, allowed: Fraction
) -> arb | None:
    """An upper bound on the probability at x₁ of every region with at most `allowed` at x₀; None if none was found.

    A region of the worst family is looked for that is seen to have at least `allowed` at x₀, but hardly more: by the
    secant method in normal scores, in which everything is nearly straight; then a little larger.
    """
    if other == sigma or distance == 0:
        return _half_space(sigma, other, distance, allowed)
    worst = Worst(dimension, sigma, other, distance)
    with ctx.workprec(worst.bits()):
        b = _find_boundary(worst, allowed)
        step = Fraction(_LARGER_BY) * sigma
        for _ in range(_MOST_LARGER):
            candidate = b - step
            if worst.chance(candidate, at_x1=False) >= ball(allowed):
                return worst.chance(candidate, at_x1=True)
            step *= 4
    return None


def _half_space(sigma: Fraction, other: Fraction, distance: Fraction, allowed: Fraction) -> arb | None:
    if other != sigma:
        return None
    return lower_tail(ball(distance / sigma) - point_of_upper_tail(ball(allowed)))


def _find_boundary(worst: Worst, allowed: Fraction) -> Fraction:
    """About where the boundary of the region with this probability at x₀ is."""
    sigma = float(worst.sigma)
    goal = float(point_of_upper_tail(ball(allowed)).mid())
    x, slope = _guess_boundary(worst, goal)
    low, high = -math.inf, math.inf
    fx = _score(worst, x * sigma)
    for _ in range(_STEPS):
        low, high = (x, high) if fx < goal else (low, x)
        change = (goal - fx) / slope
        if abs(change) < _CLOSE * (1.0 + abs(x)):
            break
        following = x + change
        if not low < following < high:
            following = 0.5 * (low + high)
        if not low < following < high:
            break
        f_next = _score(worst, following * sigma)
        if abs(f_next) < _FAR_OUT and abs(fx) < _FAR_OUT and (f_next - fx) * (following - x) > 0:
            slope = (f_next - fx) / (following - x)
        x, fx = following, f_next
    return Fraction(x * sigma)


def _score(worst: Worst, b: float) -> float:
    """The normal score of the probability at x₀, which grows with b; far out where it is no more than 0 or 1."""
    chance = worst.chance(Fraction(b), at_x1=False).mid()
    if not chance > arb(_ABSOLUTE):
        return _FAR_OUT
    return float(point_of_upper_tail(chance).mid()) if 1 - chance > arb(_ABSOLUTE) else -_FAR_OUT


def _guess_boundary(worst: Worst, goal: float) -> tuple[float, float]:
    """A boundary in units of σ₀, and by how much the score grows with it: the cube root of the squared distance to the
    centre is nearly normal (Abdel-Aty 1954)."""
    n, difference = float(worst.dimension), abs(worst.sigma**2 - worst.other**2)
    centre = float(worst.sigma * worst.distance / difference)
    inside = worst.other < worst.sigma
    total, spread = n + centre**2, 2.0 * (n + 2.0 * centre**2)
    share = spread / (9.0 * total**2)
    root = 1.0 - share + (-goal if inside else goal) * math.sqrt(share)
    radius = math.sqrt(total * max(root, 1e-3) ** 3)
    return (centre - radius if inside else radius - centre), 2.0 * radius / math.sqrt(spread)
