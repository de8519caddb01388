"""What votes at x+ε and x-ε prove about C_S = P(both votes are A) and C_N = P(the first vote is A, the second is not).

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

from smoothcert.records import FloatArray, IntArray, PairTally
from smoothcert.statistics.binomial import clopper_pearson_lower
from smoothcert.statistics.budget import equal_share

CORNERS = 16
"""Boxes that cover the joint region; more of them follow its rounded edge more closely."""

_SAFETY = 1.0 - 1e-12


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
    S) and P₂ = P(Bin(m-S, w) ≥ D | S) are super-uniform, the second one also given the first. Let zᵢ = Φ⁻¹(1-Pᵢ) and
    reject where max(z₁,0)² + max(z₂,0)² ≥ Q. The rejection region is {P₂ ≤ b(P₁)} with b not increasing, so its
    probability is at most E b(P₁) ≤ E b(U), that of two independent uniform p-values: the quarter plane of two
    positive normals gives ¼ exp(-Q/2), the two strips with one of them positive give Φ(-√Q). Q makes the sum α. What
    is not rejected satisfies z₁ ≤ √Q cos θ, z₂ ≤ √Q sin θ for some θ in [0, π/2]. Cut the quarter circle at θ₀ < … <
    θ_K; on [θᵢ, θᵢ₊₁] the box z₁ ≤ √Q cos θᵢ, z₂ ≤ √Q sin θᵢ₊₁ covers it, and its corner is a pair of Clopper–Pearson
    bounds at the levels Φ(-√Q cos θᵢ) and Φ(-√Q sin θᵢ₊₁).

    Why the radius increases. With r = R/σ, c = Φ⁻¹((1+C_S)/2) and n = Φ⁻¹(C_N) the bound of Theorem 3 has derivatives
    exp(-r²/2) cosh(c r) in C_S and exp(-r²/2) exp(n r) in C_N. At fixed w, dC_N = -(w/2) dC_S, and C_N ≤ ½ makes n ≤
    0, so the total derivative in C_S is at least exp(-r²/2)(1 - w/2) > 0.

    Two separate bounds at α/2 each treat S and D as if both could be unlucky at once, although more of one leaves less
    for the other; near p_A = 1 their error in p_A is about three times that of this region.
    """
    first_level, second_level = _corner_levels(alpha)
    both, one_sided, pairs = _counts(tallies, labels)
    return _chained(both, one_sided, pairs, first_level[:, None], second_level[:, None])


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
    mine = _chained(*_counts(tallies, labels), share, share)
    others = [[c for c in range(classes) if c != label] for label in labels]
    neither = np.array([[t.neither(c) for c in rest] for t, rest in zip(tallies, others, strict=True)]).T
    one_sided = np.array([[t.one_sided(c) for c in rest] for t, rest in zip(tallies, others, strict=True)]).T
    pairs = np.array([tally.pairs for tally in tallies])
    return *mine, *_chained(neither, one_sided, pairs, share, share)


def _counts(tallies: Sequence[PairTally], labels: Sequence[int]) -> tuple[IntArray, IntArray, IntArray]:
    chosen = list(zip(tallies, labels, strict=True))
    both = np.array([int(tally.both[label]) for tally, label in chosen])
    one_sided = np.array([tally.one_sided(label) for tally, label in chosen])
    return both, one_sided, np.array([tally.pairs for tally in tallies])


def _chained(
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
    """Levels of the two Clopper–Pearson bounds at every corner, (CORNERS,) each, rounded down."""
    radius = _region_radius(alpha)
    angles = np.linspace(0.0, 0.5 * math.pi, CORNERS + 1)
    first = special.ndtr(-radius * np.cos(angles[:-1])) * _SAFETY
    second = special.ndtr(-radius * np.sin(angles[1:])) * _SAFETY
    return first, second


def _region_radius(alpha: float) -> float:
    """√Q with ¼ exp(-Q/2) + Φ(-√Q) ≤ α, rounded up."""
    low, high = 0.0, 40.0
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        if 0.25 * math.exp(-0.5 * middle * middle) + float(special.ndtr(-middle)) <= alpha * _SAFETY:
            high = middle
        else:
            low = middle
    return high
