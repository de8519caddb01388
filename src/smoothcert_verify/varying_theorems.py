"""Theorems for a noise level that may vary: what is assumed of σ, and whether bounds then certify a radius.

Also the Gaussian theorem for one level, which the others extend.
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
    is_proved,
    point_of_upper_tail,
    upper_tail,
)
from smoothcert_verify.ball_regions import chance_at_most
from smoothcert_verify.findings import refuse
from smoothcert_verify.json_values import OBJECT, read_fraction

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
_NEWTON_STEPS = 100
_HALVINGS = 8
_LARGEST_DIMENSION = 10**8


@dataclass(frozen=True, slots=True)
class SigmaEnvelope:
    """How far σ may move within a distance, before `slacks` are added.

    rate: of a semi-elastic σ; lipschitz and floor: of a Lipschitz one; neither: constant. known: False for a Python
    function of the user, which a document cannot carry. shift: how much further apart than the two points those may be
    that σ was computed for.
    """

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
                raise refuse("envelope-without-ends", sigma=sigma, distance=distance)
            if low.is_exact() and high.is_exact():
                return exactly(low), exactly(high)
            return exactly(low.lower()), exactly(high.upper())


def shift_to_grid(envelope: SigmaEnvelope, *, dimension: int) -> SigmaEnvelope:
    """For inputs on a grid: distances are those of k/(L-1), and σ is that of the nearest float32 numbers, each up to
    2^-25 away, at the input that is certified and at the one that is asked about. Rounded up."""
    return replace(envelope, shift=envelope.shift + 2 * Fraction(math.isqrt(dimension << 80) + 1, 2 ** (40 + 25)))


def read_envelope(document: Any, *, remembered: bool) -> SigmaEnvelope:
    """What "smoothing.envelope" says, with the room that every σ but a constant one is given."""
    if document is None or remembered:
        return SigmaEnvelope()
    slacks: list[Fraction] = []
    shift = Fraction(0)
    OBJECT(document, "envelope")
    while document.get("kind") == "widened":
        slacks.append(_read_slope(document, "slack"))
        shift += _read_slope(document, "shift")
        if slacks[-1] >= 1 or len(slacks) > _MOST_LAYERS:
            raise refuse("invalid-value", field="envelope.slack", value=slacks[-1], expected="a number below 1")
        document = document.get("inner")
        OBJECT(document, "envelope.inner")
    room = (*slacks, SIGMA_SLACK)
    match document.get("kind"):
        case "constant":
            return SigmaEnvelope(slacks=room if slacks else ())
        case "semi-elastic":
            return SigmaEnvelope(rate=_read_slope(document, "rate"), slacks=room, shift=shift)
        case "lipschitz":
            constant, floor = _read_slope(document, "constant"), _read_slope(document, "floor")
            if floor == 0:
                raise refuse("invalid-value", field="envelope.floor", value=0, expected="a positive number")
            return SigmaEnvelope(lipschitz=constant, floor=floor, slacks=room, shift=shift)
        case "user":
            return SigmaEnvelope(slacks=room, known=False)
        case kind:
            expected = "constant, semi-elastic, lipschitz, widened or user"
            raise refuse("invalid-value", field="envelope.kind", value=kind, expected=expected)


def _read_slope(entry: Mapping[str, Any], name: str) -> Fraction:
    value = read_fraction(entry, name)
    if value < 0:
        raise refuse("invalid-value", field=f"envelope.{name}", value=entry[name], expected="0 or more")
    return value


@dataclass(frozen=True, slots=True)
class Setting:
    """What a theorem needs besides the bounds. levels: of the grid of the inputs, if they are on one."""

    sigma: Fraction
    dimension: int
    num_classes: int
    envelope: SigmaEnvelope
    levels: int | None = None


def strongest_other(values: Values) -> Fraction:
    """p_B, or what p_A leaves, whichever is smaller."""
    left = 1 - values["p-a"]
    return min(values.get("p-b", left), left)


def gaussian_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Cohen et al. 2019, Theorem 1: Φ(R/σ) ≤ p_A, or Φ(z - 2R/σ) ≥ p_B where Φ(z) = p_A."""
    miss, other, distance = 1 - values["p-a"], strongest_other(values), radius / setting.sigma
    if other == miss:
        return is_proved(lambda: (ball(miss), upper_tail(ball(distance))))
    return is_proved(
        lambda: (
            (ball(other), upper_tail(ball(2 * distance) - point_of_upper_tail(ball(miss))))
            if other > 0
            else (arb(1), arb(0))
        )
    )


def lipschitz_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
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
    other = strongest_other(values)
    top, rival = ((1 - setting.num_classes * P_MIN) * score + P_MIN for score in (values["p-a"], other))
    factor = _factor(setting.dimension)

    def sides() -> tuple[arb, arb]:
        apart = slope * envelope.shift  # by so much σ may differ beyond what the distance allows
        moved = -8 * factor * ball(kept).log() + 4 * factor * ball(apart) / ball(floor)
        constant = (1 + 2 * ball(slope) * factor) / ball(floor)
        gap = point_of_upper_tail(ball(rival)) - point_of_upper_tail(ball(top))
        return 2 * ball(radius) * constant + moved, gap

    return is_proved(sides)


@functools.lru_cache(maxsize=64)
def _factor(dimension: int) -> arb:
    """ε f(ε)/φ(Φ⁻¹(p)) at a p just below P_MIN, ε the point with P(χ² > ε) = p: it grows as p falls.

    Newton's method in log ε; then ε is raised until its tail is seen to be at most P_MIN.
    """
    if not 1 <= dimension <= _LARGEST_DIMENSION:
        raise refuse("too-many-coordinates", dimension=dimension, most=_LARGEST_DIMENSION)
    with ctx.workprec(PRECISIONS[1]):
        half = arb(dimension) / 2
        # Wilson and Hilferty.
        z = float(point_of_upper_tail(ball(P_MIN)).mid())
        spread = 2.0 / (9.0 * dimension)
        point = arb(dimension * (1.0 - spread + z * math.sqrt(spread)) ** 3)
        for _ in range(_NEWTON_STEPS):
            tail = (point / 2).gamma_upper(half, regularized=1)
            change = ((tail.log() - ball(P_MIN).log()) * tail / _weighted_density(point, half)).mid()
            point = (point * change.exp()).mid()
            if abs(change) < arb(2) ** -90:
                break
        point = (point * (1 + arb(2) ** -80)).mid()
        tail = (point / 2).gamma_upper(half, regularized=1)
        if not tail <= ball(P_MIN):
            raise refuse("chi-square-not-evaluated", dimension=dimension)
        return _weighted_density(point, half) / density(point_of_upper_tail(tail))


def _weighted_density(point: arb, half: arb) -> arb:
    """ε f(ε) of the χ² law."""
    return (half * (point / 2).log() - point / 2 - half.lgamma()).exp()


def _li_threshold(top: Fraction, other: Fraction, order: arb) -> arb:
    """-log(1 - p_A - p_B + 2M), M the mean of p_A and p_B of the power 1 - order."""
    power = 1 - order
    mean = (((power * ball(top).log()).exp() + (power * ball(other).log()).exp()) / 2).log() / power
    return -(ball(1 - top - other) + 2 * mean.exp()).log()


def renyi_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Li et al. 2019, and Súkeník et al. 2022, Theorem 14, for both ends of the envelope.

    For some order the Rényi divergence between the noises at x₁ and x₀ stays below Li's threshold at σ₁ and at σ₀. At
    a fixed order it falls and then grows with σ₁, so all between these two are covered.
    """
    top, other, sigma = values["p-a"], strongest_other(values), setting.sigma
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

        best = find_peak(height, math.log(_ORDERS[0]), math.log(_ORDERS[1]))
        if not is_proved(functools.partial(_room_sides, room, best, level)):
            return False
    return True


def _room_sides(room: Callable[[float, Fraction], arb], log_order: float, level: Fraction) -> tuple[arb, arb]:
    return arb(0), room(log_order, level)


def li_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Li et al. 2019, for one level."""
    constant = Setting(setting.sigma, setting.dimension, setting.num_classes, SigmaEnvelope())
    return renyi_holds(values, radius, constant)


def find_peak(height: Callable[[float], float], low: float, high: float) -> float:
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


def envelope_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Súkeník et al. 2022, Theorem 7: at both ends of the envelope the worst region has less than ½ at x₁."""
    if setting.envelope.constant:
        return gaussian_holds(values, radius, setting)
    if not gaussian_holds(values, radius, setting):
        return False
    miss, other = 1 - values["p-a"], strongest_other(values)
    if other < miss and _two_bounds_hold(miss, other, radius, setting):
        return True
    # The score (1 + 1[A] - 1[B])/2 has a mean of at least (1 + p_A - p_B)/2.
    return _one_bound_holds((miss + other) / 2, radius, setting)


def _one_bound_holds(miss: Fraction, radius: Fraction, setting: Setting) -> bool:
    if miss * 2 >= 1:
        return False
    for level in setting.envelope.ends(setting.sigma, radius):
        chance = chance_at_most(setting.dimension, sigma=setting.sigma, other=level, distance=radius, allowed=miss)
        if chance is None or not chance <= ball(Fraction(1, 2)):
            return False
    return True


def _two_bounds_hold(miss: Fraction, other: Fraction, radius: Fraction, setting: Setting) -> bool:
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
    return _stays_below_one(total, *ends, bend=bend, halvings=_HALVINGS)


def _stays_below_one(
    total: Callable[[Fraction], arb | None], low: Fraction, high: Fraction, *, bend: int, halvings: int
) -> bool:
    """Whether the sum stays below 1 between two levels, which are cut in half until that can be seen."""
    left, right = total(low), total(high)
    if left is None or right is None or not (left <= arb(1) and right <= arb(1)):
        return False
    width = (ball(high) / ball(low)).log()
    if _highest_between(left, right, bend * width * width) <= arb(1):
        return True
    middle = Fraction(math.sqrt(float(low) * float(high)))
    if not (halvings and low < middle < high):
        return False
    return all(
        _stays_below_one(total, *part, bend=bend, halvings=halvings - 1) for part in ((low, middle), (middle, high))
    )


def _highest_between(left: arb, right: arb, bend: arb) -> arb:
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
