"""Bounds on the probability of a class and of its strongest opponent from plain votes; the winner of a vote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smoothcert.records import FloatArray, IntArray, Tally
from smoothcert.statistics.binomial import clopper_pearson_lower, clopper_pearson_upper, sign_test_p_value


def top_lower(tallies: Sequence[Tally], labels: Sequence[int], alpha: float) -> FloatArray:
    """Lower bounds on P(vote = label), each wrong with probability at most α. Returns (m,)."""
    successes = [int(tally.counts[label]) for tally, label in zip(tallies, labels, strict=True)]
    return clopper_pearson_lower(successes, [tally.n for tally in tallies], alpha=alpha)


def runner_up_upper(tallies: Sequence[Tally], labels: Sequence[int], alpha: float) -> FloatArray:
    """Upper bounds on max over c ≠ label of P(vote = c), each wrong with probability at most α. Returns (m,).

    No union over the other classes is needed. Let c* be the other class of largest true probability: it is fixed, not
    chosen from the votes (the label was selected on disjoint samples). Its count N* never exceeds the largest other
    count M, and the Clopper–Pearson upper bound U(k) increases with k, so U(M) ≥ U(N*) always, and U(N*) ≥ p_{c*}
    with probability at least 1-α. Hence U(M) bounds every other class at once. Invalid votes are one more "other
    class".
    """
    largest = [tally.largest_other(label) for tally, label in zip(tallies, labels, strict=True)]
    return clopper_pearson_upper(largest, [tally.n for tally in tallies], alpha=alpha)


def safe_steps(tallies: Sequence[Tally], labels: Sequence[int], alpha: float) -> FloatArray:
    """Changes of single votes that the class survives, as whole numbers. Returns (m,), negative if it loses.

    tallies: of all evaluations that there are, so nothing is estimated, and α is not used. A change takes at most one
    vote from the class and gives it to another one, B. The class with most votes is the answer, the lowest one in a
    tie; no answer is one more class, the last. So the class A survives ⌊(n_A - n_B - [B < A]) / 2⌋ changes for each B.
    """
    leads = [
        smallest_lead(np.append(tally.counts, tally.invalid), label)
        for tally, label in zip(tallies, labels, strict=True)
    ]
    return np.array([lead // 2 for lead in leads], dtype=np.float64)


def smallest_lead(votes: IntArray, label: int) -> int:
    """By how many votes a class is ahead of every other, less one where that wins a tie; negative where it loses.

    votes: (classes + 1,), the last entry for samples without an answer. The class is the answer exactly if this is ≥ 0.
    """
    ahead = votes[label] - votes - (np.arange(len(votes)) < label)
    return int(np.delete(ahead, label).min())


def plurality(tally: Tally) -> int | None:
    """The class with most votes, the lowest one in a tie; None if most samples gave no valid answer."""
    best = int(np.argmax(tally.counts))
    return best if int(tally.counts[best]) >= tally.invalid and int(tally.counts[best]) > 0 else None


def significant_plurality(tally: Tally, *, alpha: float) -> int | None:
    """PREDICT (Cohen et al. 2019): the class with most votes if it beats the second at level α, else None.

    With probability at least 1-α the answer is None or the class the smoothed classifier gives.
    """
    best = plurality(tally)
    if best is None:
        return None
    p_value = sign_test_p_value(int(tally.counts[best]), tally.largest_other(best))
    return best if float(p_value) <= alpha else None
