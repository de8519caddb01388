"""Confidence bounds for the mean of independent values in [0, 1], from a number of them that was fixed in advance.

Two proofs of the same statement: the empirical Bernstein inequality uses the sample mean and variance, betting uses
every value and is tighter. Upper bounds are lower bounds on the mean of 1-x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.errors import InputError
from smoothcert.records import FloatArray
from smoothcert.statistics.binomial import check_alpha

MOST_BETS = 10**8
"""Betting needs a few arrays with one number per sample."""

_ROUNDING = 1e-12
"""More than the rounding error of the few operations of a formula."""
_EPS = float(np.finfo(np.float64).eps)
_LARGEST_STAKE = 0.75
"""Share of the capital at risk in one bet: 1 + λ(x-m) stays above a quarter."""
_MOST_STEPS = 60
_CLOSE_ENOUGH = 1e-7
"""Share of the distance from the mean that may be lost by ending the search."""


def empirical_bernstein_lower(mean: ArrayLike, variance: ArrayLike, n: ArrayLike, *, alpha: float) -> FloatArray:
    """Lower (1-α) confidence bound: mean - sqrt(2 V ln(2/α)/n) - 7 ln(2/α)/(3(n-1)) (Maurer and Pontil 2009, Thm. 4).

    mean: sample means in [0, 1]; variance: unbiased sample variances V; n: numbers of values; shapes broadcast. Returns
    float64 in [0, 1], rounded down; 0 where n = 1, which has no variance.
    """
    check_alpha(alpha)
    average, count = _check_mean(mean, n)
    spread = np.asarray(variance, dtype=np.float64)
    if not (spread >= 0.0).all():
        raise InputError("a sample variance must be a number of at least 0")
    log_term = math.log(2.0 / alpha)
    several = np.maximum(count, 2.0)
    margin = np.sqrt(2.0 * spread * log_term / several) + 7.0 * log_term / (3.0 * (several - 1.0))
    return np.where(count > 1.0, _subtract_margin(average, margin), 0.0)


def empirical_bernstein_upper(mean: ArrayLike, variance: ArrayLike, n: ArrayLike, *, alpha: float) -> FloatArray:
    """Upper (1-α) confidence bound. Arguments as `empirical_bernstein_lower`; rounded up."""
    turned = 1.0 - np.asarray(mean, dtype=np.float64)
    return _mirror(empirical_bernstein_lower(turned, variance, n, alpha=alpha))


def betting_lower(values: ArrayLike, *, alpha: float) -> float:
    """Lower (1-α) confidence bound for the mean of independent values in [0, 1] by betting (Waudby-Smith, Ramdas 2024).

    The bets are against smaller means (hedged capital). values: (n,) in [0, 1], n fixed in advance, in an order that
    does not depend on them.

    **The game.** For a mean m start with capital 1 and stake λₜ ≥ 0 on every value: the capital after t of them is
    Π (1 + λᵢ(xᵢ-m)), with λᵢ chosen before xᵢ is seen and λᵢ ≤ ¾/m, so that it stays positive. If m is the true
    mean no bet gains on average, and by Ville's inequality the capital ever reaches 1/α with probability at most α.
    With stakes min(λ, ¾/m) no factor grows with m: λ(x-m) and ¾(x/m-1) both fall, and the gain is the smaller of the
    two where x > m, the larger where x < m. So the means against which 1/α is reached are an interval from 0, and with
    probability 1-α the true mean is above all of them. The largest, at most the sample mean, is the bound.

    **The stakes.** Any rule that looks at the past alone is valid. Here λₜ = min(¾/m, sqrt(2 ln(1/α)/(n σ̂²ₜ₋₁))), σ̂²ₜ =
    (¼ + Σ(xᵢ-μ̂ᵢ)²)/(t+1), μ̂ₜ = (½ + Σxᵢ)/(t+1), which is about the best constant stake for n values of that variance.

    Returns a number in [0, 1] at which the computed capital exceeds 1/α by more than its rounding errors; 0 where there
    is none. Up to a part in 10^7 of its distance from the mean may be lost. The bound is not monotone in every single
    value: a larger value may make later stakes smaller.
    """
    check_alpha(alpha)
    game = _Game.against_small_means(np.asarray(values, dtype=np.float64), alpha=alpha)
    mean = float(game.values.mean())
    if mean <= 0.0:
        return 0.0
    goal = math.log(1.0 / alpha)
    aim = goal + 2.0 * game.log_capital_and_error(mean)[1]
    found = _largest_reaching(game.log_capital, aim, mean=mean, first=_typical_gap(game.values, goal))
    step = _CLOSE_ENOUGH * (mean - found) + _EPS
    while found > 0.0:
        capital, error = game.log_capital_and_error(found)
        if capital - error >= goal:
            return found
        found, step = found - step, 2.0 * step
    return 0.0


def betting_upper(values: ArrayLike, *, alpha: float) -> float:
    """Upper (1-α) confidence bound by betting against larger means. Arguments as `betting_lower`; rounded up."""
    return float(_mirror(betting_lower(1.0 - np.asarray(values, dtype=np.float64), alpha=alpha)))


@dataclass(frozen=True, slots=True)
class _Game:
    """Values in betting order, and the stakes before they are cut at ¾/m; (n,) each."""

    values: FloatArray
    stakes: FloatArray
    largest_stake: float

    @classmethod
    def against_small_means(cls, values: FloatArray, *, alpha: float) -> _Game:
        if values.ndim != 1 or not 1 <= values.size <= MOST_BETS:
            raise InputError(
                f"betting takes 1 … {MOST_BETS} values, not an array of shape {values.shape}; the empirical Bernstein "
                "bound takes any number"
            )
        if not ((values >= 0.0) & (values <= 1.0)).all():
            raise InputError("expected numbers in [0, 1]; some values are outside or NaN")
        n = values.size
        seen = np.arange(2.0, n + 2.0)
        means = (0.5 + np.cumsum(values)) / seen
        variances = (0.25 + np.cumsum((values - means) ** 2)) / seen
        before = np.concatenate([[0.25], variances[:-1]])
        stakes = np.sqrt(2.0 * math.log(1.0 / alpha) / (n * before))
        return cls(values=values, stakes=stakes, largest_stake=float(stakes.max()))

    def gains(self, m: float) -> FloatArray:
        """λ(x-m) of every bet."""
        gains = self.values - m
        cut = self.largest_stake * m > _LARGEST_STAKE
        gains *= np.minimum(self.stakes, _LARGEST_STAKE / m) if cut else self.stakes
        return gains

    def log_capital(self, m: float) -> float:
        """Logarithm of the largest capital ever held when betting against the mean m > 0."""
        factors = self.gains(m)
        factors += 1.0
        logs = np.log(factors, out=factors)
        return float(np.cumsum(logs, out=logs).max())

    def log_capital_and_error(self, m: float) -> tuple[float, float]:
        """`log_capital`, and an upper bound of its rounding error.

        A factor is at least ¼, so the 3 roundings in it change its logarithm by at most 4 (3 |λ(x-m)| + 1) ε, and
        each logarithm and each partial sum of n of them is off by at most ε of the sum of their absolute values.
        """
        gains = self.gains(m)
        logs = np.log(1.0 + gains)
        units = 4.0 * (3.0 * float(np.abs(gains).sum()) + gains.size) + (gains.size + 4.0) * float(np.abs(logs).sum())
        return float(np.cumsum(logs).max()), 2.0 * _EPS * units


def _typical_gap(values: FloatArray, goal: float) -> float:
    """The approximate distance of the bound from the sample mean."""
    return math.sqrt(2.0 * float(values.var()) * goal / values.size) + 1.4 * goal / values.size


def _largest_reaching(function: Callable[[float], float], goal: float, *, mean: float, first: float) -> float:
    """Approximately the largest m ≤ mean at which a decreasing function reaches the goal, from below; 0 if none does.

    first: the expected distance from the mean. A secant search inside a shrinking bracket (Illinois rule).
    """
    high, above = mean, function(mean) - goal
    if above >= 0.0:
        return mean
    gap = first
    while True:
        low = mean - gap
        if low <= 0.0:
            low, below = 0.0, math.inf
            break
        below = function(low) - goal
        if below >= 0.0:
            break
        high, above, gap = low, below, 1.5 * gap
    kept = 0
    for _ in range(_MOST_STEPS):
        width = high - low
        if width <= _CLOSE_ENOUGH * (mean - low):
            break
        share = below / (below - above) if math.isfinite(below) else 0.5
        # Never closer to an end than the accuracy of the search: otherwise a good guess leaves the other end far off.
        least = 0.5 * _CLOSE_ENOUGH * (mean - low) / width
        m = low + width * min(max(share, least), 1.0 - least)
        if not low < m < high:
            break
        value = function(m) - goal
        if value >= 0.0:
            low, below = m, value
            above, kept = (0.5 * above, 1) if kept == 1 else (above, 1)
        else:
            high, above = m, value
            below, kept = (0.5 * below, -1) if kept == -1 else (below, -1)
    return low


def _check_mean(mean: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    average, count = np.asarray(mean, dtype=np.float64), np.asarray(n, dtype=np.float64)
    if not ((average >= 0.0) & (average <= 1.0)).all():
        raise InputError("the mean of values in [0, 1] lies in [0, 1]")
    if not (count >= 1).all():
        raise InputError("a mean needs at least 1 value")
    return average, count


def _subtract_margin(mean: FloatArray, margin: FloatArray) -> FloatArray:
    """mean - margin, rounded down, in [0, 1]."""
    return np.maximum(mean * (1.0 - _ROUNDING) - margin * (1.0 + _ROUNDING), 0.0)


def _mirror(lower: ArrayLike) -> FloatArray:
    """1 - lower, rounded up by more than the rounding error of 1-x and of the mean of 1-x."""
    return np.minimum(1.0 - np.asarray(lower, dtype=np.float64) + _ROUNDING, 1.0)
