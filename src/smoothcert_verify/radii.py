"""Whether bounds certify a radius: each theorem is used forward, at the radius that is claimed.

In all of them the class is safe at smaller distances too, so that one distance is enough.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from flint import arb, ctx

from smoothcert_verify.arithmetic import (
    PRECISIONS,
    ball,
    density,
    exactly,
    lower_tail,
    point_of_upper_tail,
    proved,
    upper_tail,
)
from smoothcert_verify.regions import chance_at_most
from smoothcert_verify.samples import UnreadableError, mapping, number, text

Values = Mapping[str, Fraction]

SIGMA_SLACK = Fraction(1, 2**22)
"""Relative room in every envelope for the error with which σ is computed and carried by float32 noise."""
P_MIN = Fraction(1e-7)
"""What scores are squeezed by in the Lipschitz certificate."""

_MOST_LAYERS = 20
_LARGEST_RATIO = 10**6
_ORDERS = (1e-3, 1e3)
_GRID = 96
_GOLDEN_STEPS = 44
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
_SLAB_STEPS = 100
_HALVINGS = 8
_LARGEST_DIMENSION = 10**8


@dataclass(frozen=True, slots=True)
class Envelope:
    """How far σ may move within a distance, before `slacks` are added. rate: semi-elastic; lipschitz and floor: the
    other kind; neither: constant. known: False for a function of the user's own, of which a document says nothing.
    shift: by how much further apart than the two points those may be that σ was computed for."""

    rate: Fraction | None = None
    lipschitz: Fraction | None = None
    floor: Fraction | None = None
    slacks: tuple[Fraction, ...] = ()
    known: bool = True
    shift: Fraction = Fraction(0)

    @property
    def constant(self) -> bool:
        return self.known and self.rate is None and self.lipschitz is None and not any(self.slacks)

    def ends(self, sigma: Fraction, distance: Fraction) -> tuple[Fraction, Fraction]:
        """Values between which σ may lie, rounded outward."""
        distance += self.shift
        with ctx.workprec(PRECISIONS[1]):
            low = high = ball(sigma)
            if self.rate is not None:
                growth = ball(self.rate * distance).exp()
                low, high = low / growth, high * growth
            if self.lipschitz is not None and self.floor is not None:
                low, high = (
                    ball(max(sigma - self.lipschitz * distance, self.floor)),
                    high + ball(self.lipschitz * distance),
                )
            for slack in self.slacks:
                low, high = low * ball(1 - slack), high * ball(1 + slack)
            if not (low > 0 and high.is_finite()):
                raise UnreadableError("the envelope of sigma leaves nothing above 0, or no end")
            if low.is_exact() and high.is_exact():
                return exactly(low), exactly(high)
            return exactly(low.lower()), exactly(high.upper())


def moved(envelope: Envelope, *, dimension: int) -> Envelope:
    """For inputs on a grid: distances are those of k/(L-1), and σ is that of the nearest float32 numbers, each up to
    2^-25 away, at the input that is certified and at the one that is asked about. Rounded up."""
    return replace(envelope, shift=2 * Fraction(math.isqrt(dimension << 80) + 1, 2 ** (40 + 25)))


def read_envelope(document: Any, *, remembered: bool) -> Envelope:
    """What "smoothing" says, with the room that every σ but a constant one is given."""
    if document is None or remembered:
        return Envelope()
    slacks: list[Fraction] = []
    entry = mapping(document, "envelope")
    while text(entry, "kind") == "widened":
        slack = Fraction(number(entry, "slack"))
        if not 0 <= slack < 1 or len(slacks) > _MOST_LAYERS:
            raise UnreadableError(f"an envelope cannot have the slack {float(slack)!r}")
        slacks.append(slack)
        entry = mapping(entry.get("inner"), "envelope")
    kind = text(entry, "kind")
    if kind == "constant" and not slacks:
        return Envelope()
    room = (*slacks, SIGMA_SLACK)
    if kind == "constant":
        return Envelope(slacks=room)
    if kind == "semi-elastic":
        return Envelope(rate=_slope(entry, "rate"), slacks=room)
    if kind == "lipschitz":
        floor = _slope(entry, "floor")
        if floor == 0:
            raise UnreadableError("the floor of an envelope must be positive")
        return Envelope(lipschitz=_slope(entry, "constant"), floor=floor, slacks=room)
    if kind == "user":
        return Envelope(slacks=room, known=False)
    raise UnreadableError(f"an envelope of the kind {kind!r} is not known")


def _slope(entry: Mapping[str, Any], name: str) -> Fraction:
    value = Fraction(number(entry, name))
    if value < 0:
        raise UnreadableError(f"{name} of an envelope must not be negative")
    return value


@dataclass(frozen=True, slots=True)
class Setting:
    """What a theorem has to know besides the bounds."""

    sigma: Fraction
    dimension: int
    num_classes: int
    envelope: Envelope


def certifies(theorem: str, values: Values, radius: Fraction, setting: Setting) -> bool:
    """Whether these bounds prove that the class is the answer at every point closer than the radius (> 0)."""
    top = values.get("p-a")
    if top is not None and not 0 < top < 1:
        return False
    return _THEOREMS[theorem](values, radius, setting)


def _strongest_other(values: Values) -> Fraction:
    """p_B, or what p_A leaves, whichever is smaller."""
    left = 1 - values["p-a"]
    return min(values.get("p-b", left), left)


def _gaussian(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Cohen et al. 2019, Theorem 1: Φ(R/σ) ≤ p_A, or Φ(z - 2R/σ) ≥ p_B where Φ(z) = p_A."""
    miss, other, distance = 1 - values["p-a"], _strongest_other(values), radius / setting.sigma
    if other == miss:
        return proved(lambda: (ball(miss), upper_tail(ball(distance))))
    return proved(
        lambda: (
            (ball(other), upper_tail(ball(2 * distance) - point_of_upper_tail(ball(miss))))
            if other > 0
            else (arb(1), arb(0))
        )
    )


def _uniform_l1(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Yang et al. 2020: no probability changes by more than ‖δ‖₁/2λ. In rational numbers."""
    return radius <= setting.sigma * (values["p-a"] - _strongest_other(values))


WorstCase = Callable[[arb], arb]
"""Distance in standard deviations → the least that the probability can be there, falling with the distance."""


def _against(mine: WorstCase, other: WorstCase | None, distance: Fraction) -> bool:
    """Levine et al. 2021: A keeps more than half, or more than c, of which "not c" keeps at least so much."""

    def sides() -> tuple[arb, arb]:
        left = mine(ball(distance))
        kept = left if other is None else left.max(other(ball(distance)))
        return arb(1), left + kept

    return proved(sides)


def _dipole(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Levine et al. 2021, Theorem 3."""
    names = [("both", "one-sided"), ("other-neither", "other-one-sided")]
    shapes = [_union(values[both], values[one]) for both, one in names if both in values]
    return _against(shapes[0], shapes[1] if len(shapes) > 1 else None, radius / setting.sigma)


def _union(both: Fraction, one_sided: Fraction) -> WorstCase:
    """A half-space of mass C_N and a slab of mass C_S around x."""
    if not (0 <= both < 1 and 0 <= one_sided < 1):
        raise UnreadableError("probabilities of pairs of votes must lie in [0, 1)")

    def mass(r: arb) -> arb:
        total = arb(0)
        if one_sided > 0:
            total += upper_tail(r + point_of_upper_tail(ball(one_sided)))
        if both > 0:
            wall = point_of_upper_tail(ball((1 - both) / 2))
            total += lower_tail(wall - r) - lower_tail(-wall - r)
        return total

    return mass


def _second_order(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Levine et al. 2021, Theorem 1."""
    sigma = setting.sigma
    mine = _slab(values["p-a"], values["gradient-norm"] * sigma)
    other = None
    if "other-p" in values:
        other = _slab(1 - values["other-p"], values["other-gradient-norm"] * sigma)
    return _against(mine, other, radius / sigma)


def _slab(p: Fraction, slope: Fraction) -> WorstCase:
    """The slab between ℓ and u is the worst case for its own mass and slope. It is one for p and the slope given if its
    mass Φ(u) - Φ(ℓ) is at most p and its slope φ(u) - φ(ℓ) at least that."""
    if not p > 0:
        return lambda _: arb(0)
    if p >= 1 or slope < 0:
        raise UnreadableError("a probability must be below 1, and a norm not negative")
    lower, upper = _slab_ends(p, slope)

    def mass(r: arb) -> arb:
        if lower is None:
            return lower_tail(ball(upper) - r)
        return lower_tail(ball(upper) - r) - lower_tail(ball(lower) - r)

    return mass


@functools.lru_cache(maxsize=1024)
def _slab_ends(p: Fraction, slope: Fraction) -> tuple[Fraction | None, Fraction]:
    """Ends of a slab that was seen to have at most the mass and at least the slope; the lower one is None for -∞."""
    miss = 1 - p
    with ctx.workprec(PRECISIONS[0] + 32):
        guess = _solved_lower_end(miss, slope)
        step = Fraction(1, 2**70)
        while guess is not None and step < 1:
            lower = guess - step
            above = ball(miss) - lower_tail(ball(lower))
            upper = exactly(point_of_upper_tail(above).lower()) - Fraction(1, 2**100)
            if _has(lower, upper, p, slope):
                return lower, upper
            step *= 4
        return None, exactly(point_of_upper_tail(ball(miss)).lower())


def _has(lower: Fraction, upper: Fraction, p: Fraction, slope: Fraction) -> bool:
    low, high = ball(lower), ball(upper)
    return bool(lower_tail(high) - lower_tail(low) <= ball(p) and density(high) - density(low) >= ball(slope))


def _solved_lower_end(miss: Fraction, slope: Fraction) -> Fraction | None:
    """The ℓ with φ(u) - φ(ℓ) = slope, where P(Z < ℓ or Z > u) = miss; None where no slab has so large a slope.

    The left side falls with ℓ, with the slope φ(ℓ)(ℓ-u), from φ(Φ⁻¹(miss)) to 0 in the symmetric slab.
    """
    whole = ball(miss)
    if not density(point_of_upper_tail(whole)) > ball(slope):
        return None
    high = -point_of_upper_tail(whole / 2).mid()
    low = high - 40
    x = high
    for _ in range(_SLAB_STEPS):
        u = point_of_upper_tail((whole - lower_tail(x)).mid())
        value = (density(u) - density(x) - ball(slope)).mid()
        low, high = (x, high) if value > 0 else (low, x)
        proposed = (x - value / (density(x) * (x - u))).mid()
        following = proposed if low < proposed < high else ((low + high) / 2).mid()
        if abs(following - x) < arb(2) ** -90:
            return exactly(following)
        x = following
    return exactly(low)


def _lipschitz(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Bergstrom et al., Theorem 3: Φ⁻¹ of a squeezed mean score changes by at most L for each unit of distance."""
    envelope, sigma = setting.envelope, setting.sigma
    if not envelope.known or envelope.rate is not None or setting.num_classes * P_MIN >= 1:
        return False
    kept = Fraction(1)
    for slack in envelope.slacks:
        kept *= 1 - slack
    slope, floor = envelope.lipschitz or Fraction(0), sigma if envelope.floor is None else envelope.floor
    if sigma < floor * kept:
        return False
    other = _strongest_other(values)
    top, rival = ((1 - setting.num_classes * P_MIN) * score + P_MIN for score in (values["p-a"], other))
    factor = _factor(setting.dimension)

    def sides() -> tuple[arb, arb]:
        apart = slope * envelope.shift  # by so much σ may differ beyond what the distance allows
        moved = -8 * factor * ball(kept).log() + 4 * factor * ball(apart) / ball(floor)
        constant = (1 + 2 * ball(slope) * factor) / ball(floor)
        gap = point_of_upper_tail(ball(rival)) - point_of_upper_tail(ball(top))
        return 2 * ball(radius) * constant + moved, gap

    return proved(sides)


@functools.lru_cache(maxsize=64)
def _factor(dimension: int) -> arb:
    """ε f(ε)/φ(Φ⁻¹(p)) at a p just below P_MIN, ε the point with P(χ² > ε) = p: it grows as p falls.

    Newton's method in log ε; then ε is raised until its tail is seen to be at most P_MIN.
    """
    if not 1 <= dimension <= _LARGEST_DIMENSION:
        raise UnreadableError(f"inputs of {dimension} coordinates are not to be found")
    with ctx.workprec(PRECISIONS[1]):
        half = arb(dimension) / 2
        # Wilson and Hilferty.
        z = float(point_of_upper_tail(ball(P_MIN)).mid())
        spread = 2.0 / (9.0 * dimension)
        point = arb(dimension * (1.0 - spread + z * math.sqrt(spread)) ** 3)
        for _ in range(_SLAB_STEPS):
            tail = (point / 2).gamma_upper(half, regularized=1)
            change = ((tail.log() - ball(P_MIN).log()) * tail / _weighted_density(point, half)).mid()
            point = (point * change.exp()).mid()
            if abs(change) < arb(2) ** -90:
                break
        point = (point * (1 + arb(2) ** -80)).mid()
        tail = (point / 2).gamma_upper(half, regularized=1)
        if not tail <= ball(P_MIN):
            raise UnreadableError(f"the chi-square law with {dimension} degrees of freedom could not be evaluated")
        return _weighted_density(point, half) / density(point_of_upper_tail(tail))


def _weighted_density(point: arb, half: arb) -> arb:
    """ε f(ε) of the χ² law."""
    return (half * (point / 2).log() - point / 2 - half.lgamma()).exp()


def _lecuyer(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Cohen et al. 2019, appendix I: σβ/sqrt(2 log(1.25(1+e^β)/(p_A - e^{2β}p_B))) for some 0 < β ≤ 1."""
    top, other = values["p-a"], _strongest_other(values)
    if not 0 < other < top:
        return False

    def reached(beta: float) -> arb:
        b = arb(beta)
        gap = ball(top) - (2 * b).exp() * ball(other)
        if not gap > 0:
            return arb(0)
        root = (2 * (ball(Fraction(5, 4)) * (1 + b.exp()) / gap).log()).sqrt()
        return ball(setting.sigma) * b / root

    most = min(1.0, 0.5 * math.log(float(top / other)))
    best = _best(lambda share: float(reached(share * most).mid()), 1e-6, 1.0)
    return proved(lambda: (ball(radius), reached(best * most)))


def _li_threshold(top: Fraction, other: Fraction, order: arb) -> arb:
    """-log(1 - p_A - p_B + 2M), M the mean of p_A and p_B of the power 1 - order."""
    power = 1 - order
    mean = (((power * ball(top).log()).exp() + (power * ball(other).log()).exp()) / 2).log() / power
    return -(ball(1 - top - other) + 2 * mean.exp()).log()


def _renyi(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Li et al. 2019, and Súkeník et al. 2022, Theorem 14, for both ends of the envelope.

    For some order the Rényi divergence between the noises at x₁ and x₀ stays below Li's threshold at σ₁ and at σ₀. At
    a fixed order it falls and then grows with σ₁, so all between these two are covered.
    """
    top, other, sigma = values["p-a"], _strongest_other(values), setting.sigma
    if not 0 < other < top:
        return False
    levels = {sigma} if setting.envelope.constant else set(setting.envelope.ends(sigma, radius))

    def room(log_order: float, level: Fraction) -> arb:
        order = arb(log_order).exp()
        threshold = _li_threshold(top, other, order)
        here = threshold - order * ball(radius**2 / (2 * sigma**2))
        if level == sigma:
            return here
        mixed = (1 - order) * ball(level**2) + order * ball(sigma**2)
        if not mixed > 0:
            return arb.neg_inf()
        apart = (mixed.log() / 2 - (1 - order) * ball(level).log() - order * ball(sigma).log()) / (1 - order)
        there = threshold - order * ball(radius**2) / (2 * mixed) - setting.dimension * apart
        return here.min(there)

    for level in levels:
        if not sigma / _LARGEST_RATIO <= level <= sigma * _LARGEST_RATIO:
            return False

        def height(log_order: float, level: Fraction = level) -> float:
            with ctx.workprec(PRECISIONS[1]):
                found = float(room(log_order, level).mid())
            # In the scale of a radius: rooms at large orders are larger for the same radius.
            return found / math.exp(log_order) if math.isfinite(found) else -math.inf

        best = _best(height, math.log(_ORDERS[0]), math.log(_ORDERS[1]))
        if not proved(functools.partial(_not_negative, room, best, level)):
            return False
    return True


def _not_negative(room: Callable[[float, Fraction], arb], log_order: float, level: Fraction) -> tuple[arb, arb]:
    return arb(0), room(log_order, level)


def _li(values: Values, radius: Fraction, setting: Setting) -> bool:
    constant = Setting(setting.sigma, setting.dimension, setting.num_classes, Envelope())
    return _renyi(values, radius, constant)


def _best(height: Callable[[float], float], low: float, high: float) -> float:
    """About where a function with one peak is largest; a grid, then the golden section."""
    step = (high - low) / _GRID
    points = [low + (i + 0.37) * step for i in range(_GRID)]
    middle = max(points, key=height)
    left, right = max(low, middle - step), min(high, middle + step)
    a, b = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
    at_a, at_b = height(a), height(b)
    for _ in range(_GOLDEN_STEPS):
        if at_a > at_b:
            right, b, at_b = b, a, at_a
            a = right - _GOLDEN * (right - left)
            at_a = height(a)
        else:
            left, a, at_a = a, b, at_b
            b = left + _GOLDEN * (right - left)
            at_b = height(b)
    return max((middle, a, b), key=height)


def _envelope(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Súkeník et al. 2022, Theorem 7: at both ends of the envelope the worst region has less than ½ at x₁."""
    if setting.envelope.constant:
        return _gaussian(values, radius, setting)
    if not _gaussian(values, radius, setting):
        return False
    miss, other = 1 - values["p-a"], _strongest_other(values)
    if other < miss and _two_bounds(miss, other, radius, setting):
        return True
    # The score (1 + 1[A] - 1[B])/2 has a mean of at least (1 + p_A - p_B)/2.
    return _one_bound((miss + other) / 2, radius, setting)


def _one_bound(miss: Fraction, radius: Fraction, setting: Setting) -> bool:
    if miss * 2 >= 1:
        return False
    for level in setting.envelope.ends(setting.sigma, radius):
        chance = chance_at_most(setting.dimension, sigma=setting.sigma, other=level, distance=radius, allowed=miss)
        if chance is None or not chance <= ball(Fraction(1, 2)):
            return False
    return True


def _two_bounds(miss: Fraction, other: Fraction, radius: Fraction, setting: Setting) -> bool:
    """Whether ξ(σ₁; 1-p_A) + ξ(σ₁; p_B) ≤ 1 for every σ₁ of the envelope.

    For a fixed region P₁ has, in s = log σ₁, the second derivative E[1_A((V-N)² - 2V)], V = |y-x₁|²/σ₁², which is at
    least -(2N+1). So does the largest of such functions: each ξ lies below its chord plus (2N+1)(s-s₁)(s₂-s)/2.
    """
    if other <= 0:
        return False

    @functools.cache
    def total(level: Fraction) -> arb | None:
        return _sum_of_chances(miss, other, radius, setting, level)

    ends = setting.envelope.ends(setting.sigma, radius)
    bend = 2 * (2 * setting.dimension + 1)
    return _below_one(total, *ends, bend=bend, halvings=_HALVINGS)


def _below_one(
    total: Callable[[Fraction], arb | None], low: Fraction, high: Fraction, *, bend: int, halvings: int
) -> bool:
    """Whether the sum stays below 1 between two levels, which are cut in half until that can be seen."""
    left, right = total(low), total(high)
    if left is None or right is None or not (left <= arb(1) and right <= arb(1)):
        return False
    width = (ball(high) / ball(low)).log()
    if _peak(left, right, bend * width * width) <= arb(1):
        return True
    middle = Fraction(math.sqrt(float(low) * float(high)))
    if not (halvings and low < middle < high):
        return False
    return all(_below_one(total, *part, bend=bend, halvings=halvings - 1) for part in ((low, middle), (middle, high)))


def _peak(left: arb, right: arb, bend: arb) -> arb:
    """The most a chord plus bend·t(1-t)/2 can be on [0, 1]."""
    rise = abs(right - left)
    if 2 * rise >= bend:
        return left.max(right)
    return (left + right) / 2 + bend / 8 + rise * rise / (2 * bend)


def _sum_of_chances(miss: Fraction, other: Fraction, radius: Fraction, setting: Setting, level: Fraction) -> arb | None:
    total = arb(0)
    for allowed in (miss, other):
        chance = chance_at_most(setting.dimension, sigma=setting.sigma, other=level, distance=radius, allowed=allowed)
        if chance is None:
            return None
        total += chance
    return total


_THEOREMS: Mapping[str, Callable[[Values, Fraction, Setting], bool]] = {
    "gaussian": _gaussian,
    "uniform-l1": _uniform_l1,
    "dipole": _dipole,
    "second-order": _second_order,
    "lipschitz": _lipschitz,
    "lecuyer": _lecuyer,
    "li": _li,
    "renyi": _renyi,
    "envelope": _envelope,
}
