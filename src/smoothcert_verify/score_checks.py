"""Bounds on mean scores from their histograms: by betting, and by the empirical Bernstein inequality.

Every score is read as the end of its cell on the safe side, a sample without a finite answer as 0 for the class and as
1 for its opponent.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from smoothcert_verify.arithmetic import PRECISIONS, ball, is_proved
from smoothcert_verify.findings import refuse
from smoothcert_verify.samples import SCORE_CELLS, IntArray, Samples, ScoreCells

FloatArray = NDArray[np.float64]

SLACK = Fraction(1e-12)
"""By how much the scores of a sample may add up to more than 1. A lower bound is lower by this, so that one minus it
bounds the mean score of every other class."""

_INTERVALS = 2**14
_EDGE_ERROR = Fraction(1, 10**15)
"""Relative, of the ends of cells as they were computed in floating point when scores were counted."""
_LARGEST_STAKE = 0.75
_MOST_BETS = 10**8
_ORDERING = (1 << 8) | 4
"""Where in the counter of the generator the order of estimation samples is drawn from."""
_UNIT = 2.0**-53
_FACTOR_ERROR = 14 * 2.0**-53
"""Relative error of a factor and of multiplying it on. With u = 2^-53: the stake, the difference and their product have
one rounding each, the sum another; where the gain is negative, it is at most three times the factor, so these are at
most (1 + 3·3)u; the multiplication is one more, and the rest is room for their products."""
_BLOCK = 128
"""Factors lie between ¼ and 2^7 or so: so many of them neither overflow nor underflow."""


@dataclass(frozen=True, slots=True)
class Order:
    """Names the random order in which the scores of an input are bet on; it is drawn independently of them."""

    seed: int
    index: int

    def shuffle(self, values: FloatArray) -> FloatArray:
        generator = np.random.Generator(
            np.random.Philox(key=self.seed, counter=[0, values.size, self.index, _ORDERING])
        )
        generator.shuffle(values)
        return values


def lower_by_betting(samples: Samples, value: Fraction, alpha: Fraction, order: Order) -> bool:
    """Whether the game against a mean score of the label of `value` or less, and a slack, was won."""
    if value <= 0:
        return True
    values, hits = _own(samples)
    return _won(np.repeat(values, hits), value + SLACK, alpha=alpha, order=order)


def upper_by_betting(samples: Samples, value: Fraction, alpha: Fraction, order: Order) -> bool:
    """Whether the game against a mean of the largest other score of `value` or more was won."""
    if value >= 1:
        return True
    values, hits = _other(samples)
    # 1 - x, rounded down: a game against small means of what is smaller is harder to win.
    turned = np.maximum(np.nextafter(1.0 - values, -1.0), 0.0)
    return _won(np.repeat(turned, hits), 1 - value, alpha=alpha, order=order)


def _won(values: FloatArray, against: Fraction, *, alpha: Fraction, order: Order) -> bool:
    """Whether betting against the mean `against` ever made 1/α out of 1.

    Stakes are min(λ_t, ¾/m), λ_t = sqrt(2 ln(1/α)/(n v_t)), v_t the running variance of what was seen before, started
    at ¼ around ½. As floats they are stakes like any other: they look at the past alone, since running sums are added
    one by one. With such stakes no factor grows with m, so that all smaller means have lost as well.
    """
    n = values.size
    if not 1 <= n <= _MOST_BETS:
        raise refuse("too-many-scores", count=n, most=_MOST_BETS)
    if against >= 1:
        return False
    m = float(against)
    if Fraction(m) < against:
        m = math.nextafter(m, 2.0)
    order.shuffle(values)
    seen = np.arange(2.0, n + 2.0)
    means = (0.5 + np.cumsum(values)) / seen
    variances = (0.25 + np.cumsum((values - means) ** 2)) / seen
    before = np.concatenate([[0.25], variances[:-1]])
    stakes = np.minimum(np.sqrt(2.0 * -math.log(alpha) / (n * before)), _LARGEST_STAKE / m)
    factors = 1.0 + stakes * (values - m)
    if not (factors > 0.0).all():
        return False
    best = int(np.argmax(np.cumsum(np.log(factors)))) + 1
    return is_proved(lambda: (1 / ball(alpha), _product_down(factors[:best])))


def _product_down(factors: FloatArray) -> arb:
    """A lower bound on the exact product, of factors computed with a relative error below _FACTOR_ERROR."""
    padded = np.concatenate([factors, np.ones(-factors.size % _BLOCK)]).reshape(-1, _BLOCK)
    product = arb(1)
    for block in np.multiply.reduce(padded, axis=1).tolist():
        product *= arb(block)
    return product * (1 - arb(_FACTOR_ERROR)) ** int(factors.size)


def lower_by_bernstein(samples: Samples, value: Fraction, alpha: Fraction, _order: Order) -> bool:
    """Whether value + slack ≤ mean - sqrt(2 V ln(2/α)/n) - 7 ln(2/α)/(3(n-1)) (Maurer and Pontil 2009, Theorem 4)."""
    if value <= 0:
        return True
    values, hits = _own(samples)
    return is_proved(lambda: (ball(value + SLACK), _bernstein(values, hits, alpha)))


def upper_by_bernstein(samples: Samples, value: Fraction, alpha: Fraction, _order: Order) -> bool:
    """The same for one minus the largest other score."""
    if value >= 1:
        return True
    values, hits = _other(samples)
    turned = np.maximum(np.nextafter(1.0 - values, -1.0), 0.0)
    return is_proved(lambda: (ball(1 - value), _bernstein(turned, hits, alpha)))


def _bernstein(values: FloatArray, hits: IntArray, alpha: Fraction) -> arb:
    n = int(hits.sum())
    if n < 2:
        return arb.neg_inf()
    several = [(arb(x), int(count)) for x, count in zip(values.tolist(), hits.tolist(), strict=True) if count]
    total, squares = arb(0), arb(0)
    for x, count in several:
        total += x * count
    mean = total / n
    for x, count in several:
        squares += (x - mean) ** 2 * count
    log_term = (2 / ball(alpha)).log()
    return mean - (2 * squares / (n - 1) * log_term / n).sqrt() - 7 * log_term / (3 * (n - 1))


def _own(samples: Samples) -> tuple[FloatArray, IntArray]:
    """Values of the scores of the label, growing, and how often each occurs."""
    hits = _scores(samples).own
    filled = np.flatnonzero(hits)
    return np.append(0.0, cell_ends()[0][filled]), np.append(samples.invalid, hits[filled])


def _other(samples: Samples) -> tuple[FloatArray, IntArray]:
    hits = _scores(samples).other
    filled = np.flatnonzero(hits)
    return np.append(cell_ends()[1][filled], 1.0), np.append(hits[filled], samples.invalid)


def _scores(samples: Samples) -> ScoreCells:
    assert samples.scores is not None
    return samples.scores


@functools.cache
def cell_ends() -> tuple[FloatArray, FloatArray]:
    """No score of a cell is below the one or above the other. Cells are equal in θ, where the score is sin²θ."""
    below, above = [0.0], [0.0]
    with ctx.workprec(PRECISIONS[0]):
        edges = [(arb.pi() * i / (2 * _INTERVALS)).sin() ** 2 for i in range(_INTERVALS + 1)]
        edges[0], edges[-1] = arb(0), arb(1)
        smaller, larger = ball(1 - _EDGE_ERROR), ball(1 + _EDGE_ERROR)
        for edge, next_ in itertools.pairwise(edges):
            below.append(math.nextafter(float((edge * smaller).lower()), -1.0) if edge > 0 else 0.0)
            above.append(min(math.nextafter(float((next_ * larger).upper()), 2.0), 1.0))
    below.append(1.0)
    above.append(1.0)
    assert len(below) == SCORE_CELLS
    return np.array(below), np.array(above)
