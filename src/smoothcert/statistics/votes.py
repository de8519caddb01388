"""From vote tallies to the bounded quantities a certificate asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import Bound, Bounds, FloatArray, Quantity, Stage, Tally
from smoothcert.statistics.binomial import clopper_pearson_lower, clopper_pearson_upper, sign_test_p_value
from smoothcert.statistics.budget import split_alpha


@dataclass(frozen=True, slots=True)
class Estimator:
    """How one quantity is bounded: a function of (tallies, labels, alpha) → (m,) values, and the method's name."""

    method: str
    bound: Callable[[Sequence[Tally], Sequence[int], float], FloatArray]


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


VOTE_ESTIMATORS: Mapping[Quantity, Estimator] = {
    Quantity.TOP_LOWER: Estimator("clopper-pearson", top_lower),
    Quantity.RUNNER_UP_UPPER: Estimator("clopper-pearson, largest other class", runner_up_upper),
}


def bound_votes(
    tallies: Sequence[Tally], labels: Sequence[int], needs: Sequence[Quantity], *, alpha: float
) -> list[Bounds]:
    """All bounds of `needs` for each tally, together wrong with probability at most α per input.

    tallies: m ESTIMATION tallies; labels: the class each speaks of, chosen without looking at that tally.
    """
    for tally in tallies:
        if tally.stream.stage is not Stage.ESTIMATION:
            raise InputError(
                f"bounds need estimation votes, not {tally.stream.stage.name}: a sample that chose cannot also prove"
            )
    if not tallies:
        return []
    shares = split_alpha(alpha, needs)
    values = {q: VOTE_ESTIMATORS[q].bound(tallies, labels, share) for q, share in shares.items()}
    return [
        Bounds(
            label=label,
            quantities={
                q: Bound(value=float(values[q][i]), side=q.side, alpha=share, method=VOTE_ESTIMATORS[q].method)
                for q, share in shares.items()
            },
        )
        for i, label in enumerate(labels)
    ]


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
