"""Upper bounds on ‖μ‖, μ = E[z 1[vote = c]] for standard normal z: σ times the norm of the gradient of P(vote = c)."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from flint import arb, ctx

from smoothcert_verify.arithmetic import PRECISIONS, ball, lower_tail, point_of_upper_tail, upper_limit, upper_tail
from smoothcert_verify.findings import refuse
from smoothcert_verify.samples import IntArray, NoiseSums, Samples

UNIT = Fraction(1, 2**20)
"""Noise is added up in multiples of this, a coordinate rounded by half of it …"""
_TABLE_ROOM = UNIT / 1000
"""… and, where it is looked up in a table of means over the cells of a grid, off by less than this before that."""
_MOST_COORDINATES = 10**6
"""So that errors of the table move μ by less than UNIT, and ‖μ‖² ≤ φ(0)² by less than UNIT."""

_RATES = tuple(0.3 + 0.05 * step for step in range(15))


def pair_products_norm(
    samples: Samples, gradients: NoiseSums, label: int, *, alpha: Fraction, on_grid: bool = False, units: int = 1
) -> arb:
    """From V = z·z' 1[both votes are the label], E V = ‖μ‖² (Levine et al. 2021, Theorem 2).

    units: how much room is left for rounding. One is enough for products that were rounded to multiples of the unit;
    on a grid, where there is a table too, it is two.
    """
    pairs = samples.draws // 2
    dimension = gradients.sums.shape[2]
    if on_grid and dimension > _MOST_COORDINATES:
        raise refuse("too-many-coordinates", dimension=dimension, most=_MOST_COORDINATES)
    with ctx.workprec(PRECISIONS[1]):
        log_term = -ball(alpha).log()
        margin = 4 * (dimension * log_term / pairs).sqrt()
        if not 2 * log_term <= dimension * pairs:
            margin = margin.max(4 * arb(2).sqrt() * log_term / pairs)
        mean = ball(gradients.products[_own(gradients, label)] * UNIT / pairs + max(units, 1 + on_grid) * UNIT)
        return (mean + margin).nonnegative_part().sqrt()


def halves_norm(
    samples: Samples, gradients: NoiseSums, label: int, *, rare: bool, alpha: Fraction, on_grid: bool = False
) -> arb:
    """From the sums of z over two independent halves. rare: whether the class is the rare side, or all that is not it.

    For X = s z with E X = ±μ and |s| ≤ 1, any unit vector u that does not depend on the samples, and any λ > 0, the
    mean of k copies of X·u is below μ·u - τ, τ = (D(λ) + ln(1/η)/k)/λ, with probability at most η, if D(λ) is at least
    E[e^{-y} - 1 + y], y = λ X·u. Once with u along the mean Ȳ of the second half, once along μ: ‖μ‖² - τ‖μ‖ ≤ X̄·Ȳ +
    τ‖Ȳ‖. Two choices of s, half of α each: ±½ by the side; or 1 on the rare side, whose probability is at most q.

    The functions whose means are bounded are convex in z. So E[z | cell] in place of z, where the noise is on a grid
    whose cells no vote cuts, makes them no larger.
    """
    half = samples.draws // 2
    votes = (*samples.votes, samples.invalid)[label]
    q = upper_limit(votes if rare else samples.draws - votes, 2 * half, alpha / 10)
    inside = gradients.sums[:, _own(gradients, label)]
    outside = _exact_total(gradients.sums) - inside
    few, many = (inside, outside) if rare else (outside, inside)
    with ctx.workprec(PRECISIONS[0]):
        rounding = ball(UNIT / 2 + (_TABLE_ROOM if on_grid else 0)) * arb(inside.shape[1]).sqrt()
        scale = UNIT / half
        by_signs = _two_halves(few - many, scale / 2, _signs_margin(half, alpha / 4) + rounding)
        by_rare = _two_halves(few, scale, _rare_margin(half, q, alpha / 5) + rounding)
        return by_signs.min(by_rare)


def _own(gradients: NoiseSums, label: int) -> int:
    group = gradients.own_group(label)
    if group is None:
        raise refuse("shared-group", label=label)
    return group


def _exact_total(sums: IntArray) -> IntArray:
    """Over all groups. Sums that could overflow 64 bits are refused: no noise adds up to them."""
    if int(np.abs(sums).max(initial=0)) >= 2**61 // sums.shape[1]:
        raise refuse("sums-too-large")
    total: IntArray = sums.sum(axis=1)
    return total


def _two_halves(sums: IntArray, scale: Fraction, margin: arb) -> arb:
    """‖μ‖ from ‖μ‖² - τ‖μ‖ ≤ X̄·Ȳ + τ‖Ȳ‖, with the halves' sums in whole numbers."""
    first, second = sums.tolist()
    product = ball(sum(map(int.__mul__, first, second)) * scale**2)
    length = ball(sum(map(int.__mul__, second, second)) * scale**2).sqrt()
    root = (margin * margin + 4 * (product + margin * length)).nonnegative_part().sqrt()
    return (margin + root) / 2


def _signs_margin(half: int, alpha: Fraction) -> arb:
    """D(λ) = 2 e^{λ²/8} Φ(λ/2) - 1 - λ/√(2π): |X·u| ≤ |g|/2 for a standard normal g."""
    log_term = -ball(alpha).log() / half
    rate = arb(math.sqrt(8.0 * float(log_term.mid())))
    exponent = 2 * (rate * rate / 8).exp() * lower_tail(rate / 2) - 1 - rate / (2 * arb.pi()).sqrt()
    return (exponent + log_term) / rate


def _rare_margin(half: int, q: Fraction, alpha: Fraction) -> arb:
    """D(λ) = e^{λ²/2} (Φ(λ-a) + Φ(-λ-a)) - q + q (sinh(λa) - λa), a = Φ⁻¹(1 - q/2); the best of some λ."""
    log_term = -ball(alpha).log() / half
    a = point_of_upper_tail(ball(q) / 2) if q < 1 else arb(0)
    middle = float(a.mid())
    variance = float(q) + 2.0 * middle * NormalDist().pdf(middle)
    largest = math.sqrt(2.0 * float(log_term.mid()) / variance)
    margins = []
    for share in _RATES:
        rate = arb(share * largest)
        tails = upper_tail(a - rate) + upper_tail(a + rate)
        exponent = (rate * rate / 2).exp() * tails - ball(q) + ball(q) * ((rate * a).sinh() - rate * a)
        margins.append((exponent + log_term) / rate)
    best = margins[0]
    for margin in margins[1:]:
        best = best.min(margin)
    return best
