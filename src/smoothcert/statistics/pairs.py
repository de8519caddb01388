"""Bounds from votes at x+ε and x-ε on C_S = P(both votes are A) and C_N = P(the first vote is A, the second is not).

ε and -ε have the same law, so P(exactly one vote is A) = 2 C_N, whichever vote it is. Of m independent pairs let S have
both votes on A and D exactly one; (S, D, m-S-D) is trinomial with probabilities (C_S, 2 C_N, 1 - C_S - 2 C_N).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, IntArray, PairTally
from smoothcert.statistics.binomial import clopper_pearson_lower
from smoothcert.statistics.budget import equal_share

CORNERS = 8
"""Boxes whose union is the joint region."""

_STRETCH = 1.3
"""The region is wider by this factor in the share of one-sided pairs than in C_S, which matters more to the radius."""

_SAFETY = 1.0 - 1e-12
_SMALLEST_LEVEL = 2e-100
"""The smallest level that is supported; the error is computed with the levels that are used."""


def both_lower(tallies: Sequence[PairTally], labels: Sequence[int], alpha: float) -> FloatArray:
    """Lower bounds on C_S, each wrong with probability at most α, as in Levine et al. Returns (m,)."""
    both = [int(tally.both[label]) for tally, label in zip(tallies, labels, strict=True)]
    return clopper_pearson_lower(both, [tally.pairs for tally in tallies], alpha=alpha)


def one_sided_lower(tallies: Sequence[PairTally], labels: Sequence[int], alpha: float) -> FloatArray:
    """Lower bounds on C_N from the pairs with the first vote only, as in Levine et al. Returns (m,)."""
    first = [int(tally.first_only[label]) for tally, label in zip(tallies, labels, strict=True)]
    return clopper_pearson_lower(first, [tally.pairs for tally in tallies], alpha=alpha)


def pair_region(tallies: Sequence[PairTally], labels: Sequence[int], alpha: float) -> tuple[FloatArray, FloatArray]:
    """A joint confidence region for (C_S, C_N): corners, one of which lies below the truth in the sense of the radius.

    Returns lower corners of C_S and C_N, (CORNERS, m) each. With probability at least 1-α per input there is a corner
    (s, n) such that C_S ≥ s and w ≥ w', where w = 2 C_N/(1-C_S) is the chance that a pair that is not both is
    one-sided, and n = w'(1-s)/2. The radius of Theorem 3 increases with C_S at fixed w, and with w (proved below), so
    the smallest of the corners' radii is certified.

    Why it holds. S is binomial (m, C_S), and given S, D is binomial (m-S, w). Hence the p-values P₁ = P(Bin(m, C_S) ≥
    S) and P₂ = P(Bin(m-S, w) ≥ D | S) are super-uniform, the second one also given the first. Corner i has the
    Clopper–Pearson bounds at levels Aᵢ and Bᵢ, and lies below the truth exactly when P₁ ≥ Aᵢ and P₂ ≥ Bᵢ. Let A₁ < … <
    A_K and B₁ > … > B_K. No corner does so only if P₂ < b(P₁), where b is 1 below A₁, Bᵢ between Aᵢ and Aᵢ₊₁, and B_K
    from A_K on, or if P₁ < A₁. Since b does not increase, the probability of either is at most E b(P₁) ≤ E b(U), U
    uniform, which is A₁ + Σ (Aᵢ₊₁ - Aᵢ) Bᵢ + (1 - A_K) B_K. The levels are chosen to make this α, with corners along a
    quarter of an ellipse in the normal scores of the two p-values.

    Why the radius increases. With r = R/σ, c = Φ⁻¹((1+C_S)/2) and n = Φ⁻¹(C_N) the bound of Theorem 3 has derivatives
    exp(-r²/2) cosh(c r) in C_S and exp(-r²/2) exp(n r) in C_N. At fixed w, dC_N = -(w/2) dC_S, and C_N ≤ ½ makes n ≤
    0, so the total derivative in C_S is at least exp(-r²/2)(1 - w/2) > 0.

    Two separate bounds at α/2 allow for deviations of both counts at once, although a larger S leaves less for D, and
    use half of the one-sided pairs. Their loss of radius at α = .001 is 1.05 times that of this region where C_N hardly
    matters (p_A near 1, or votes against the class on both sides), and 2 to 4 times at p_A = .6
    (tests/coverage/test_pair_coverage.py).
    """
    first_level, second_level = _corner_levels(alpha)
    both, one_sided, pairs = _counts(tallies, labels)
    return _chain_bounds(both, one_sided, pairs, first_level[:, None], second_level[:, None])


def pairs_of_every_class(
    tallies: Sequence[PairTally], labels: Sequence[int], alpha: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """For the label (C_S, C_N), and for every other class c the same of "not c"; all hold at once but for α.

    Returns both and one-sided lower bounds of the label, (m,) each, and P(neither vote is c), P(first is not c, second
    is c), (num_classes, m) each: one row for every class but the label, and one for samples without a finite answer.
    Each pair of bounds is conditional as in `pair_region`: first the pairs with both votes, then the share of the
    one-sided among the rest. α is split evenly over all of them.
    """
    classes = tallies[0].num_classes + 1
    share = equal_share(alpha, 2 * classes)
    mine = _chain_bounds(*_counts(tallies, labels), share, share)
    others = [[c for c in range(classes) if c != label] for label in labels]
    neither = np.array([[t.neither(c) for c in rest] for t, rest in zip(tallies, others, strict=True)]).T
    one_sided = np.array([[t.one_sided(c) for c in rest] for t, rest in zip(tallies, others, strict=True)]).T
    pairs = np.array([tally.pairs for tally in tallies])
    return *mine, *_chain_bounds(neither, one_sided, pairs, share, share)


def _counts(tallies: Sequence[PairTally], labels: Sequence[int]) -> tuple[IntArray, IntArray, IntArray]:
    chosen = list(zip(tallies, labels, strict=True))
    both = np.array([int(tally.both[label]) for tally, label in chosen])
    one_sided = np.array([tally.one_sided(label) for tally, label in chosen])
    return both, one_sided, np.array([tally.pairs for tally in tallies])


def _chain_bounds(
    both: IntArray, one_sided: IntArray, pairs: IntArray, first_level: ArrayLike, second_level: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Lower bounds (C_S, C_N): C_S at the first level, the share w of one-sided pairs among the rest at the second.

    Shapes broadcast. Rounded down.
    """
    lower_both = clopper_pearson_lower(both, pairs, alpha=first_level)
    rest = pairs - both
    share = clopper_pearson_lower(np.where(rest > 0, one_sided, 0), np.maximum(rest, 1), alpha=second_level)
    one_sided_lower = 0.5 * share * (1.0 - lower_both) * _SAFETY
    return lower_both, one_sided_lower


@functools.lru_cache(maxsize=64)
def _corner_levels(alpha: float) -> tuple[FloatArray, FloatArray]:
    """Levels A of the bounds on C_S and B of those on w, (CORNERS,) each, whose region is wrong with probability α.

    Rounded down.
    """
    low, high = 0.0, 40.0
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        if _error_probability(*_levels(middle)) <= alpha * _SAFETY:
            high = middle
        else:
            low = middle
    first, second = _levels(high)
    if _error_probability(first, second) > alpha:
        raise InputError(f"alpha={alpha} is too small for a joint region of the pair counts; use 1e-90 or more")
    return first * _SAFETY, second * _SAFETY


def _levels(reach: float) -> tuple[FloatArray, FloatArray]:
    """Levels of corners on a staircase around a quarter of an ellipse with half axes reach and _STRETCH·reach."""
    angles = np.linspace(0.0, 0.5 * math.pi, CORNERS + 1)
    first, second = special.ndtr(-reach * np.cos(angles[:-1])), special.ndtr(-_STRETCH * reach * np.sin(angles[1:]))
    return first, np.maximum(second, _SMALLEST_LEVEL)


def _error_probability(first: FloatArray, second: FloatArray) -> float:
    """A₁ + Σ (Aᵢ₊₁ - Aᵢ) Bᵢ + (1 - A_K) B_K."""
    steps = np.diff(np.append(first, 1.0))
    return float(first[0] + np.sum(steps * second))
