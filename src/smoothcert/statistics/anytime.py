"""Tests and limits for votes that stay valid at every time, also if sampling stops when enough was seen.

All of them are betting games. A player who believes that a vote is for the class with probability q, and is paid by the
odds of a null hypothesis p, multiplies the wealth by q/p at every hit and by (1-q)/(1-p) at every miss. Under the null
the wealth is not expected to grow, so by Ville's inequality it *ever* reaches 1/α with probability at most α: at every
time, for any number of looks and any rule to stop. The players here spread their wealth over many q by a prior, the
Beta(½,½) law of Krichevsky and Trofimov, either whole or restricted to one side of the null.

hits h and trials t: any shapes that broadcast, 0 ≤ h ≤ t, t ≥ 1. Everything is computed in logarithms, by Stirling's
formula with its remainder, so that nothing cancels when h and t are large: the error of a logarithm is near 1e-15 times
its largest term. Wealth is rounded down by more than that, lower limits are rounded down and upper limits up.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import InputError
from smoothcert.numerics.logarithm import log1p_minus
from smoothcert.numerics.roots import decreasing_root_down, step_down_until
from smoothcert.records import FloatArray
from smoothcert.statistics.binomial import check_alpha

_SLACK = 1e-10
"""Subtracted from a logarithm of wealth: more than the error of scipy's incomplete beta function."""
_RELATIVE_SLACK = 1e-13
"""Share of the terms of a logarithm of wealth that is subtracted from it: more than their rounding errors."""
_SMALLEST_TAIL = 1e-280
_SERIES_FROM = 12.0
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_FARTHEST_LOGIT = 700.0
_NEAREST_TO_ONE = 1.0 - 2.0**-53

_LogWealth = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]
"""(hits, misses, p, 1-p) → the logarithm of a wealth, rounded down."""


def log_threshold(alpha: ArrayLike) -> FloatArray:
    """log(1/α), rounded up: the logarithm of the wealth at which a null hypothesis is rejected. Any shape."""
    levels = np.asarray(alpha, dtype=np.float64)
    for level in np.unique(levels):
        check_alpha(float(level))
    logarithms = np.array([-math.log(level) for level in levels.ravel()]).reshape(levels.shape)
    return np.asarray(np.nextafter(logarithms, np.inf))


def log_wealth_above(hits: ArrayLike, trials: ArrayLike, *, p0: ArrayLike) -> FloatArray:
    """Logarithm of the wealth of a bet against "the probability is at most p0", 0 < p0 < 1.

    W = ∫ (q/p0)^h ((1-q)/(1-p0))^(t-h) dq over the Beta(½,½) prior restricted to q in (p0, 1] and normalised, that is
    log W = betaln(h+½, t-h+½) - betaln(½,½) + log betaincc(h+½, t-h+½, p0) - log betaincc(½,½,p0) - h log p0
    - (t-h) log(1-p0).

    For every true p ≤ p0 each factor p q/p0 + (1-p)(1-q)/(1-p0) is at most 1 (it grows with p and is 1 at p0), so W is
    a supermartingale and P(W ≥ 1/α at any time) ≤ α. A hit never lowers W and a miss never raises it, because every
    q is above p0. Returns float64, rounded down; where the tail of the posterior is below 1e-280, where there is almost
    no evidence against the null, a lower bound from the leading term of the tail's series.
    """
    h, t, p = _check_counts(hits, trials, p0)
    return _log_wealth_above(h, t - h, p, 1.0 - p)


def log_wealth_below(hits: ArrayLike, trials: ArrayLike, *, p0: ArrayLike) -> FloatArray:
    """Logarithm of the wealth of a bet against "the probability is at least p0". Rounded down.

    This is `log_wealth_above` with hits and misses, p0 and 1-p0 exchanged.
    """
    h, t, p = _check_counts(hits, trials, p0)
    return _log_wealth_above(t - h, h, 1.0 - p, p)


def log_wealth_mixture(hits: ArrayLike, trials: ArrayLike, *, p: ArrayLike) -> FloatArray:
    """Logarithm of the wealth of a bet against "the probability is p", with the whole Beta(½,½) prior, 0 < p < 1.

    log W = betaln(h+½, t-h+½) - betaln(½,½) - h log p - (t-h) log(1-p): a martingale under p, convex in p with its
    minimum at h/t. Rounded down.
    """
    h, t, point = _check_counts(hits, trials, p)
    return _round_down(_log_mixture(h, t - h, point, 1.0 - point))


def one_sided_lower(hits: ArrayLike, trials: ArrayLike, *, alpha: ArrayLike) -> FloatArray:
    """A lower limit that holds at all times at once, by `log_wealth_above`: P(it is above p at any t) ≤ α.

    It is larger than the limit by `log_wealth_mixture`, by a lot near 1, because nothing is bet on smaller
    probabilities. The limit is the p at which the wealth W(p) against "at most p" falls below 1/α. Every smaller p is
    rejected as well:

    - d log W/dp = -(h-tp)/(p(1-p)) + π(p)/Π(p) (1 - 1/W), with the density π(p) = 1/(π √(p(1-p))) and the share
      Π(p) = (2/π) arcsin √(1-p) ≥ (2/π) √(1-p) of the prior above p. So W falls wherever h - tp ≥ ½ √p.
    - Where h - tp < ½, W < 2. If h ≤ tp, no q above p is better than p. Otherwise W is at most the largest likelihood
      ratio, exp(t KL(h/t, p)) ≤ exp(d²/(tp(1-p))), d = h - tp. For m = t-h ≥ 1 and h ≥ 1 tp(1-p) = (h-d)(m+d)/(h+m) is
      at least 3/8, and d²/(3/8) < 2/3 < log 2. For m = 0 the ratio is (1-d/t)^-t, less than 2 for d < ½.
    - So W falls wherever it is at least 1/α > 2: every rejected p lies below every p that is not rejected.

    As with every time-uniform limit, the largest so far may be used. Rounded down, and verified at the returned value.
    """
    threshold = log_threshold(alpha)
    h, t, _ = _check_counts(hits, trials, 0.5)
    return _lower(h, t - h, threshold, _log_wealth_above)


def time_uniform_upper(hits: ArrayLike, trials: ArrayLike, *, alpha: ArrayLike) -> FloatArray:
    """An upper limit of the probability that holds at all times at once: P(it is below p at any t) ≤ α. Rounded up.

    One minus the p below (t-h)/t at which `log_wealth_mixture` of the misses is log(1/α). Every larger probability is
    rejected as well, because the wealth is convex. Since it holds at all times, so does the smallest limit so far.
    """
    threshold = log_threshold(alpha)
    h, t, _ = _check_counts(hits, trials, 0.5)
    return np.minimum(np.nextafter(1.0 - _lower(t - h, h, threshold, _mixture), 2.0), 1.0)


def _check_counts(hits: ArrayLike, trials: ArrayLike, p: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    h, t, point = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (hits, trials, p)))
    if (t < 1).any() or (h < 0).any() or (h > t).any():
        raise InputError("counts must satisfy 0 ≤ hits ≤ trials with at least one trial")
    if not ((point > 0) & (point < 1)).all():
        raise InputError("a probability to bet against must lie strictly between 0 and 1")
    return h, t, point


def _log_wealth_above(hits: FloatArray, misses: FloatArray, p: FloatArray, q: FloatArray) -> FloatArray:
    """q = 1 - p; both are passed, so that the smaller one has all its digits."""
    a, b = hits + 0.5, misses + 0.5
    # The share of the prior above p, in closed form: betaincc(½,½,p) = (2/π) arcsin √(1-p).
    log_share = np.log(np.arcsin(np.sqrt(q)) * (2.0 / math.pi))
    below = special.betainc(a, b, p)
    above = special.betaincc(a, b, p)
    with np.errstate(divide="ignore"):
        log_tail = np.where(below < 0.5, np.log1p(-np.minimum(below, 0.5)), np.log(above))
    wealth = _round_down(_log_mixture(hits, misses, p, q)) + log_tail - log_share
    # betaincc(a,b,p) ≥ q^b p^a / (b B(a,b)), the first term of a series of positive ones.
    first_term = 0.5 * (np.log(p) + np.log(q)) - np.log(b) - math.log(math.pi) - log_share
    return np.where(above > _SMALLEST_TAIL, wealth, first_term) - _SLACK


def _log_mixture(hits: FloatArray, misses: FloatArray, p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log W of the whole prior, and the size of its largest terms.

    With r = (h+½)/(t+1) Stirling's formula turns the beta function into h log(r/p) + (t-h) log((1-r)/q), the deviance
    of r from p, and small terms. The deviance is taken from log(1+u) - u where r is near p, and nothing cancels.
    """
    trials = hits + misses
    total = trials + 1.0
    # h - tp, from the side on which the product is small.
    excess = np.where(q < p, trials * q - misses, hits - trials * p)
    shift = (excess + np.where(q < p, q - 0.5, 0.5 - p)) / total
    with np.errstate(over="ignore"):
        up, down = shift / p, -shift / q
    near = (np.abs(up) < 0.25) & (np.abs(down) < 0.25)
    straight = np.where(near, shift * excess, 0.0) / np.where(near, p * q, 1.0)
    bent = hits * log1p_minus(np.where(near, up, 0.0)) + misses * log1p_minus(np.where(near, down, 0.0))
    log_up, log_down = _log1p_of(up, (hits + 0.5) / total, p), _log1p_of(down, (misses + 0.5) / total, q)
    far = hits * log_up + misses * log_down
    deviance = np.where(near, straight + bent, far)
    size = np.where(near, np.abs(straight), np.abs(hits * log_up) + np.abs(misses * log_down))
    small = _stirling(hits + 0.5) + _stirling(misses + 0.5) - _stirling(total)
    value = deviance - 0.5 * np.log(total) + _HALF_LOG_TWO_PI - math.log(math.pi) + small
    return value, size + np.log(total) + 4.0


def _log1p_of(change: FloatArray, share: FloatArray, p: FloatArray) -> FloatArray:
    """log(share/p), where share/p = 1 + change, computed from the one that keeps its digits."""
    close = np.abs(change) < 0.5
    return np.where(close, np.log1p(np.where(close, change, 0.0)), np.log(share) - np.log(p))


def _round_down(value_and_size: tuple[FloatArray, FloatArray]) -> FloatArray:
    value, size = value_and_size
    return value - _RELATIVE_SLACK * size


def _stirling(x: FloatArray) -> FloatArray:
    """log Γ(x) - ((x-½) log x - x + ½ log 2π), for x ≥ ½."""
    large = x >= _SERIES_FROM
    far = np.where(large, x, _SERIES_FROM)
    z = 1.0 / (far * far)
    series = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z * (1 / 1188 - z * (691 / 360360)))))) / far
    near = np.where(large, 1.0, x)
    return np.where(large, series, special.gammaln(near) - (near - 0.5) * np.log(near) + near - _HALF_LOG_TWO_PI)


def _mixture(hits: FloatArray, misses: FloatArray, p: FloatArray, q: FloatArray) -> FloatArray:
    return _round_down(_log_mixture(hits, misses, p, q)) - _SLACK


def _lower(hits: FloatArray, misses: FloatArray, threshold: FloatArray, log_wealth: _LogWealth) -> FloatArray:
    """The p below h/t at which the logarithm of the wealth falls below the threshold.

    The search runs in x = log(p/(1-p)), in which both p and 1-p keep their digits.
    """
    some = hits > 0
    h, m = np.where(some, hits, 1.0), np.where(some, misses, 0.0)

    def excess(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        p, q = special.expit(x), special.expit(-x)
        # h - tp = tq - m, from the side on which the product is small. This is the slope for the whole prior; for a
        # part of it the difference is of the order of one vote.
        slope = np.where(q < p, m - (h + m) * q, (h + m) * p - h)
        return log_wealth(h, m, p, q) - threshold, slope

    def is_rejected(p: FloatArray) -> np.typing.NDArray[np.bool_]:
        point = np.where(p > 0, p, 0.5)
        return (p > 0) & (log_wealth(h, m, point, 1.0 - point) >= threshold)

    low = np.full(h.shape, -_FARTHEST_LOGIT)
    with np.errstate(divide="ignore"):
        high = np.minimum(np.log(h) - np.log(m), special.logit(_NEAREST_TO_ONE))
    p = special.expit(decreasing_root_down(excess, low=low, high=high, margin=0.0))
    step = 1e-13 * np.minimum(p, 1.0 - p) + np.spacing(p)
    return np.where(some, step_down_until(p, is_rejected, floor=0.0, step=step), 0.0)
