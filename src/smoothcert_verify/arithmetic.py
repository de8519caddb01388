"""Ball arithmetic: numbers with a proven error, comparisons that are certain, and the few functions the checks need.

A comparison of two balls is true only if it is true of all their numbers. `is_proved` repeats it with more and more
digits until it is decided. What stays undecided is not proved.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from flint import acb, arb, ctx, fmpq

PRECISIONS = (80, 160, 320, 640, 1280)
"""Bits with which a comparison is tried."""

MOST_TRIALS = 10**12
"""The most samples of one input that are read."""

MOST_KEPT = 1 << 15
"""Results of one function that are kept, because many inputs of a run have the same votes."""

_GUARD_BITS = 32
_NEWTON_STEPS = 60
_CLOSE = 2.0**-66
_GUESSED = 1e-9
_MOST_GUESSED = 10**6
_NUDGE_BITS = 62


def is_proved(sides: Callable[[], tuple[arb, arb]]) -> bool:
    """Whether the first of the two sides is certainly at most the second.

    sides: computes both, at whatever precision is set when it is called.
    """
    for bits in PRECISIONS:
        with ctx.workprec(bits):
            left, right = sides()
            if left <= right:
                return True
            if left > right:
                return False
    return False


def ball(value: Fraction | float | int) -> arb:
    """A ball around the exact value of a finite number."""
    exact = value if type(value) is Fraction else Fraction(value)
    return arb(fmpq(exact.numerator, exact.denominator))


def exactly(value: arb) -> Fraction:
    """The midpoint of a finite ball."""
    mantissa, exponent = value.mid().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def upper_tail(z: arb) -> arb:
    """P(Z > z) for a standard normal Z."""
    return (z / arb(2).sqrt()).erfc() / 2


def lower_tail(z: arb) -> arb:
    """Φ(z) = P(Z ≤ z)."""
    return upper_tail(-z)


def density(z: arb) -> arb:
    """φ(z), the standard normal density."""
    return (-z * z / 2).exp() / (2 * arb.pi()).sqrt()


def point_of_upper_tail(tail: arb) -> arb:
    """The z with P(Z > z) = tail, for a ball inside (0, 1), as a ball that encloses it."""
    if tail > arb(0.5):
        return -point_of_upper_tail(1 - tail)
    return arb(2).sqrt() * (2 * tail).erfcinv()


def binomial_tail(successes: int, trials: int, p: Fraction) -> arb:
    """P(Bin(trials, p) ≥ successes), or a ball that reaches from ½ to 1 where p ≥ successes/trials.

    1 ≤ successes ≤ trials, 0 ≤ p ≤ 1. The probability of exactly that many times the sum of 1, r₀, r₀r₁, …, r_j =
    (n-k-j)/(k+1+j) · p/(1-p), in whole numbers. For p < k/n all r_j are below 1 and fall, so that what is left out is
    at most a geometric series. From p = k/n on, k is at most the median, and the tail at least ½.
    """
    if p <= 0:
        return arb(0)
    if p * trials >= successes:
        return arb(0.75, 0.25)
    return binomial_term(successes, trials, p) * _sum_of_ratios(successes, trials, p)


def binomial_term(successes: int, trials: int, p: Fraction) -> arb:
    """P(Bin(trials, p) = successes) for 0 < p < 1."""
    ways = arb(trials + 1).lgamma() - arb(successes + 1).lgamma() - arb(trials - successes + 1).lgamma()
    return (ways + successes * ball(p).log() + (trials - successes) * ball(1 - p).log()).exp()


def _sum_of_ratios(successes: int, trials: int, p: Fraction) -> arb:
    bits = ctx.prec + _GUARD_BITS
    odds_up, odds_down = p.numerator, p.denominator - p.numerator
    misses, next_hit = trials - successes, successes + 1
    term = total = 1 << bits
    negligible = 1 << _GUARD_BITS
    steps = 0
    while misses and term > negligible:
        term = term * (misses * odds_up) // (next_hit * odds_down)
        total += term
        misses, next_hit, steps = misses - 1, next_hit + 1, steps + 1
    # Each term was rounded down by less than one unit, and passed on what was missing before.
    lost = steps * (steps + 1)
    rest = 0
    if misses:
        up, down = misses * odds_up, next_hit * odds_down
        rest = (term + steps + 1) * up // (down - up) + 1
    scale = Fraction(1, 1 << bits)
    low, high = ball(total * scale), ball((total + lost + rest) * scale)
    return low.union(high)


def tail_at_most(successes: int, trials: int, p: Fraction, alpha: Fraction) -> bool:
    """Whether P(Bin(trials, p) ≥ successes) is proved to be at most α."""
    return is_proved(lambda: (binomial_tail(successes, trials, p), ball(alpha)))


def proves_lower(successes: int, trials: int, p: Fraction, alpha: Fraction) -> bool:
    """Whether P(Bin(trials, p) ≥ successes) ≤ α, which makes p a lower confidence bound; 0 always is one."""
    if p <= 0:
        return True
    if successes == 0 or p >= 1:
        return False
    return tail_at_most(successes, trials, p, alpha)


@functools.lru_cache(maxsize=4096)
def lower_limit(successes: int, trials: int, alpha: Fraction) -> Fraction:
    """A p with P(Bin(trials, p) ≥ successes) ≤ α, just below the largest (Clopper and Pearson); 0 if there is none.

    Newton's method in log p, in which the logarithm of the tail is concave; then a step to the safe side, and the tail
    is seen to be at most α there.
    """
    if successes == 0:
        return Fraction(0)
    with ctx.workprec(PRECISIONS[0] + _GUARD_BITS):
        p = _solve_tail(successes, trials, ball(alpha).log())
    step = min(p, 1 - p) / (1 << _NUDGE_BITS)
    for _ in range(_NUDGE_BITS):
        p = max(p - step, Fraction(0))
        if tail_at_most(successes, trials, p, alpha):
            return p
        step *= 2
    return Fraction(0)


def _solve_tail(successes: int, trials: int, goal: arb) -> Fraction:
    share = Fraction(successes, trials)
    p = min(_guess_limit(successes, trials, float(goal.mid())), share * (1 - Fraction(1, 4 * trials)))
    for _ in range(_NEWTON_STEPS):
        ratios = _sum_of_ratios(successes, trials, p)
        tail = (binomial_term(successes, trials, p) * ratios).log()
        # d log P / d log p = k / Σ ratios.
        change = float(((goal - tail) * ratios / successes).mid())
        following = Fraction(exactly(ball(p) * arb(change).exp()))
        p, last = min(following, (p + share) / 2), p
        if abs(p - last) <= Fraction(_CLOSE) * min(p, 1 - p):
            break
    return p


def _guess_limit(successes: int, trials: int, log_alpha: float) -> Fraction:
    """About the same in floating point, from Wilson's limit on."""
    square = -2.0 * log_alpha
    share, misses = successes / trials, trials - successes
    spread = math.sqrt(square * (share * (1.0 - share) + square / (4.0 * trials)) / trials)
    p = max((share + square / (2.0 * trials) - spread) / (1.0 + square / trials), 1e-3 * share)
    ways = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(misses + 1)
    later = np.arange(min(misses, int(40.0 * math.sqrt(trials * share * (1.0 - share))) + 40, _MOST_GUESSED))
    ratios = (misses - later) / (successes + 1.0 + later)
    for _ in range(_NEWTON_STEPS):
        if not 0.0 < p < share:
            break
        total = 1.0 + float(np.cumprod(ratios * (p / (1.0 - p))).sum())
        tail = ways + successes * math.log(p) + misses * math.log1p(-p) + math.log(total)
        change = (log_alpha - tail) * total / successes
        p *= math.exp(min(max(change, -50.0), 50.0))
        if abs(change) < _GUESSED:
            break
    return Fraction(p) if 0.0 < p < share else Fraction(share) * Fraction(1, 2)


def upper_limit(successes: int, trials: int, alpha: Fraction) -> Fraction:
    """A p with P(Bin(trials, p) ≤ successes) ≤ α, just above the smallest: one minus the limit of the failures."""
    return 1 - lower_limit(trials - successes, trials, alpha)


def share_of_beta_above(a: Fraction, b: Fraction, p: Fraction) -> arb:
    """P(Beta(a, b) > p), 0 < p < 1."""
    return acb(ball(1 - p)).beta_lower(acb(ball(b)), acb(ball(a)), regularized=True).real
