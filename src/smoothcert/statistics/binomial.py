"""Exact confidence bounds and tests for votes (binomial counts), vectorised over inputs.

The only functions used are the incomplete beta function and its inverse; every inverse is moved to the safe side and
then verified with the forward function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import InputError
from smoothcert.numerics.roots import step_down_until
from smoothcert.records import FloatArray, IntArray

_RELATIVE_MARGIN = 1e-12
_SMALLEST_ALPHA = 1e-100


def clopper_pearson_lower(successes: ArrayLike, trials: ArrayLike, *, alpha: ArrayLike) -> FloatArray:
    """One-sided (1-α) lower confidence bound for a binomial probability (Clopper and Pearson 1934).

    successes k, trials n, alpha: any shapes that broadcast, 0 ≤ k ≤ n, n ≥ 1, 0 < α < ½. Returns float64: the p with
    P(Bin(n, p) ≥ k) = α, that is BetaInv(α; k, n-k+1); 0 where k = 0. For every true p, the bound exceeds p with
    probability at most α. Rounded down by about 1e-12 of the smaller of p and 1-p, and verified: I_p(k, n-k+1) ≤ α
    holds at the returned value.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    for extreme in (alpha.min(), alpha.max()):
        check_alpha(float(extreme))
    k, n, alpha = np.broadcast_arrays(*_check_counts(successes, trials), alpha)
    some = k > 0
    hits = np.where(some, k, 1).astype(np.float64)
    misses = np.where(some, n - k, n - 1).astype(np.float64)
    # The complement of the bound, 1 - p, keeps its digits when p is close to one.
    mostly_hits = hits > misses
    p = np.empty(hits.shape)
    p[mostly_hits] = 1.0 - special.betainccinv(misses[mostly_hits] + 1.0, hits[mostly_hits], alpha[mostly_hits])
    p[~mostly_hits] = special.betaincinv(hits[~mostly_hits], misses[~mostly_hits] + 1.0, alpha[~mostly_hits])
    step = _RELATIVE_MARGIN * np.minimum(p, 1.0 - p) + np.spacing(p)
    lowered = step_down_until(
        p, lambda point: special.betainc(hits, misses + 1.0, point) <= alpha, floor=0.0, step=step
    )
    return np.where(some & np.isfinite(lowered), lowered, 0.0)


def clopper_pearson_upper(successes: ArrayLike, trials: ArrayLike, *, alpha: ArrayLike) -> FloatArray:
    """One-sided (1-α) upper confidence bound for a binomial probability: one minus the lower bound for the failures.

    Shapes as `clopper_pearson_lower`; 1 where k = n. Increasing in k. Rounded up.
    """
    k, n = _check_counts(successes, trials)
    failures_lower = clopper_pearson_lower(n - k, n, alpha=alpha)
    raised = np.nextafter(1.0 - failures_lower, 2.0)
    return np.minimum(raised, 1.0)


def sign_test_p_value(first: ArrayLike, second: ArrayLike) -> FloatArray:
    """Two-sided p-value of `first` against `second` votes under a fair coin (PREDICT of Cohen et al. 2019, C.1).

    Non-negative counts of any shapes that broadcast. The fair binomial is symmetric, so the two-sided value is twice
    the tail beyond the larger count, at most 1. Rounded up.
    """
    a = np.asarray(first, dtype=np.int64)
    b = np.asarray(second, dtype=np.int64)
    larger = np.maximum(a, b).astype(np.float64)
    smaller = np.minimum(a, b).astype(np.float64)
    decided = larger > smaller
    tail = special.betainc(np.where(decided, larger, 1.0), smaller + 1.0, 0.5)
    return np.where(decided, np.minimum(1.0, 2.0 * tail * (1.0 + _RELATIVE_MARGIN)), 1.0)


def check_alpha(alpha: float) -> None:
    """Raise an InputError if α is not an error probability, or too small for float64 arithmetic."""
    if not 0.0 < alpha < 0.5:
        raise InputError(
            f"alpha={alpha} is outside (0, 0.5): it is the probability that a statement is wrong; 0.001 is usual"
        )
    if alpha < _SMALLEST_ALPHA:
        raise InputError(f"alpha={alpha} is below {_SMALLEST_ALPHA:g}, the smallest that is supported")


def _check_counts(successes: ArrayLike, trials: ArrayLike) -> tuple[IntArray, IntArray]:
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.int64), np.asarray(trials, dtype=np.int64))
    if (n < 1).any() or (k < 0).any() or (k > n).any():
        raise InputError("counts must satisfy 0 ≤ successes ≤ trials with at least one trial")
    return k, n
