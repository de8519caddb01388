"""Bounds on the number of truly robust test inputs, when each certificate may be wrong with probability α.

Setting (Cohen et al. 2019, appendix D). z_i = 1 if the smoothed classifier is correct at input i and stays so
within the radius asked about; Y_i = 1 if CERTIFY said so. Where z_i = 0, P(Y_i = 1) ≤ α; where z_i = 1,
nothing is known about Y_i. The Y_i are independent given the test set, because every input is certified with
noise of its own. From Y = Σ Y_i both functions here bound g = Σ z_i from below, wrong with probability at
most ρ over the sampling.

The bound is about these m inputs, not about the population they were drawn from, and it holds for one radius
fixed in advance: a curve of such bounds is valid at each radius, not at all radii together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, IntArray

# betainc is accurate to about 1e-13 relative. A tail is called small only if it still is after growing by
# this much.
_TAIL_MARGIN = 1e-9
# More than the rounding errors of the few additions in Theorem 5, all of whose terms are at most about 1.
_SUM_MARGIN = 16 * float(np.finfo(np.float64).eps)


def bernstein_lower_bound(successes: ArrayLike, *, trials: int, alpha: float, rho: float) -> FloatArray:
    """Theorem 5 of Cohen et al. (2019): lower bound on the fraction Σ z_i / m.

        (Y/m − α − sqrt(2 α(1−α) log(1/ρ) / m) − log(1/ρ)/(3m)) / (1−α)

    The 2 under the root belongs there: it comes from Bernstein's inequality, and without it the bound fails
    more often than ρ. successes: whole numbers in [0, trials], any shape. Returns float64 of that shape in
    [0, 1], rounded down, 0 where the formula is negative. Needs 0 < α ≤ ½ and 0 < ρ < 1.
    """
    counts = _check_arguments(successes, trials=trials, alpha=alpha, rho=rho)
    log_term = math.log(1 / rho)
    deviation = math.sqrt(2 * alpha * (1 - alpha) * log_term / trials) + log_term / (3 * trials)
    bound = (counts / trials - alpha - deviation) / (1 - alpha) - _SUM_MARGIN
    return np.asarray(np.maximum(bound, 0.0), dtype=np.float64)


def exact_lower_bound(successes: ArrayLike, *, trials: int, alpha: float, rho: float) -> IntArray:
    """Exact binomial inversion of the same argument: lower bound on the *number* g = Σ z_i. Never below
    Theorem 5.

    If g inputs are good, Y is at most g plus the number of false claims among the m − g others. Those are
    independent with probability at most α each, so their number is stochastically at most Bin(m − g, α), and
        P(Y ≥ y) ≤ T(g) := P(Bin(m − g, α) ≥ y − g).
    The hypothesis g is rejected when T(g) ≤ ρ at the observed y; a true g is rejected with probability at
    most ρ. The result is the smallest g that is not rejected.

    Bisection finds it because T never falls in g: one more good input replaces one Bernoulli(α) term of
    g + Bin(m − g, α) by a 1, which cannot make the sum smaller, so the sum grows stochastically with g. T(y)
    = 1 > ρ, so the result is at most y.

    successes: whole numbers in [0, trials], any shape. Returns int64 of that shape in [0, successes]. Rounded
    down: a hypothesis whose tail is within 1e-9 (relative) of ρ is kept. Needs 0 < α ≤ ½ and 0 < ρ < 1.
    """
    counts = _check_arguments(successes, trials=trials, alpha=alpha, rho=rho)
    rejected_up_to = np.full(counts.shape, -1, dtype=np.int64)
    kept_from = counts.copy()
    while (undecided := kept_from - rejected_up_to > 1).any():
        middle = np.where(undecided, (kept_from + rejected_up_to) // 2, kept_from)
        rejected = undecided & (_tail(counts, good=middle, trials=trials, alpha=alpha) * (1 + _TAIL_MARGIN) <= rho)
        rejected_up_to = np.where(rejected, middle, rejected_up_to)
        kept_from = np.where(undecided & ~rejected, middle, kept_from)
    return np.asarray(kept_from, dtype=np.int64)


def _tail(counts: IntArray, *, good: IntArray, trials: int, alpha: float) -> FloatArray:
    """P(Bin(trials − good, alpha) ≥ counts − good), 1 where counts ≤ good."""
    excess = counts - good
    needed = np.maximum(excess, 1)
    tail = betainc(needed, np.maximum(trials - good - needed + 1, 1), alpha)
    return np.asarray(np.where(excess > 0, tail, 1.0), dtype=np.float64)


def _check_arguments(successes: ArrayLike, *, trials: int, alpha: float, rho: float) -> IntArray:
    if trials < 1:
        raise InputError(f"a test set of {trials} inputs has no accuracy: at least one is required")
    if not 0 < alpha <= 0.5:
        raise InputError(f"alpha is {alpha}; expected the error probability of one certificate, in (0, 1/2]")
    if not 0 < rho < 1:
        raise InputError(f"rho is {rho}; expected the error probability of the bound, in (0, 1)")
    counts = np.asarray(successes)
    if not np.issubdtype(counts.dtype, np.integer):
        raise InputError(f"successes must be whole numbers, not {counts.dtype}")
    if ((counts < 0) | (counts > trials)).any():
        raise InputError(f"successes must lie in 0 … {trials}, the number of test inputs")
    return counts.astype(np.int64)
