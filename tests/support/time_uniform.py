"""The lower limit that belongs to `time_uniform_upper`: both together spend one α."""

from __future__ import annotations

from numpy.typing import ArrayLike

from smoothcert.records import FloatArray
from smoothcert.statistics.anytime import _check_counts, _lower, _mixture, log_threshold


def time_uniform_lower(hits: ArrayLike, trials: ArrayLike, *, alpha: ArrayLike) -> FloatArray:
    """A lower limit of the probability that holds at all times at once: P(it is above p at any t) ≤ α.

    The p below h/t at which `log_wealth_mixture` is log(1/α); 0 where h = 0 or where there is none. Every smaller p is
    rejected as well, because the wealth falls with p up to h/t. Since it holds at all times, so does the largest limit
    so far. Together with `time_uniform_upper` at the same α the error is still at most α: both are wrong only where the
    wealth against the true p has reached 1/α. Rounded down, and verified at the returned value.
    """
    threshold = log_threshold(alpha)
    h, t, _ = _check_counts(hits, trials, 0.5)
    return _lower(h, t - h, threshold, _mixture)
