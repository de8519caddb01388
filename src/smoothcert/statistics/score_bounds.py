"""Bounds on the mean score of a class and of its strongest opponent, from histograms of scores.

Every score is replaced by the end of its cell on the safe side: a lower bound on the mean of rounded-down scores is a
lower bound on the mean of the scores, and likewise for upper bounds. A sample without a finite answer counts as score 0
of every class, and as an opponent with score 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, IntArray, ScoreTally, Stage
from smoothcert.records.score_cells import SCORE_CEILING, SCORE_FLOOR, SCORE_SLACK
from smoothcert.statistics.means import (
    MOST_BETS,
    betting_lower,
    betting_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
)


def top_score_lower(tallies: Sequence[ScoreTally], labels: Sequence[int], alpha: float) -> FloatArray:
    """Lower bounds on the mean score of the label by betting, each wrong with probability at most α. Returns (m,).

    Lower by SCORE_SLACK than the bound itself, so that one minus it bounds the mean score of every other class even
    where the scores of a sample add up to a little more than 1.
    """
    _check_labels(tallies, labels)
    return _subtract_slack([betting_lower(_in_random_order(tally, *_top(tally)), alpha=alpha) for tally in tallies])


def other_score_upper(tallies: Sequence[ScoreTally], labels: Sequence[int], alpha: float) -> FloatArray:
    """Upper bounds on the mean score of every class but the label by betting, each wrong with probability at most α.

    Returns (m,). No union over the classes is needed: the mean of the largest score is at least each of their means.
    """
    _check_labels(tallies, labels)
    return np.array([betting_upper(_in_random_order(tally, *_other(tally)), alpha=alpha) for tally in tallies])


def top_score_lower_by_bernstein(tallies: Sequence[ScoreTally], labels: Sequence[int], alpha: float) -> FloatArray:
    """`top_score_lower` by the empirical Bernstein inequality."""
    _check_labels(tallies, labels)
    means, variances = np.array([_moments(*_top(tally)) for tally in tallies]).T
    return _subtract_slack(empirical_bernstein_lower(means, variances, [tally.n for tally in tallies], alpha=alpha))


def other_score_upper_by_bernstein(tallies: Sequence[ScoreTally], labels: Sequence[int], alpha: float) -> FloatArray:
    """`other_score_upper` by the empirical Bernstein inequality."""
    _check_labels(tallies, labels)
    means, variances = np.array([_moments(*_other(tally)) for tally in tallies]).T
    return empirical_bernstein_upper(means, variances, [tally.n for tally in tallies], alpha=alpha)


def mean_score(tally: ScoreTally) -> float:
    """The sample mean of the scores of the label, each rounded down to its cell."""
    return _moments(*_top(tally))[0]


def _check_labels(tallies: Sequence[ScoreTally], labels: Sequence[int]) -> None:
    for tally, label in zip(tallies, labels, strict=True):
        if tally.label != label:
            raise InputError(f"these are scores of class {tally.label}: the score of class {label} was not sampled")


def _top(tally: ScoreTally) -> tuple[FloatArray, IntArray]:
    """Values of the scores of the label, in order, and how often each occurs, invalid samples included."""
    cells, hits = tally.top_scores()
    return np.append(0.0, SCORE_FLOOR[cells]), np.append(tally.invalid, hits)


def _other(tally: ScoreTally) -> tuple[FloatArray, IntArray]:
    """Values of the largest other scores, in order, and how often each occurs, invalid samples included."""
    cells, hits = tally.other_scores()
    return np.append(SCORE_CEILING[cells], 1.0), np.append(hits, tally.invalid)


def _in_random_order(tally: ScoreTally, values: FloatArray, hits: IntArray) -> FloatArray:
    """All n values one by one, in a random order that is the same for the same stream and n.

    Betting needs a sequence, and a histogram has no order. Independent values of one law, put into a random order that
    is independent of them, are again independent values of that law: every sequence is as likely as its permutations.
    The order comes from a generator keyed by the stream, with a separate purpose in its counter that no noise uses.
    """
    if tally.n > MOST_BETS:
        raise InputError(
            f"n={tally.n} is too many for the betting bound, which takes up to {MOST_BETS} scores; use "
            "the -bernstein form of the certificate"
        )
    stream = tally.stream
    purpose = (int(stream.stage) << 8) | int(Stage.ORDERING)
    generator = np.random.Generator(np.random.Philox(key=stream.seed, counter=[0, tally.n, stream.index, purpose]))
    sequence = np.repeat(values, hits)
    generator.shuffle(sequence)
    return sequence


def _moments(values: FloatArray, hits: IntArray) -> tuple[float, float]:
    """Sample mean and unbiased sample variance (0 for a single value)."""
    n = int(hits.sum())
    mean = min(math.fsum(values * hits) / n, 1.0)
    return mean, math.fsum(hits * (values - mean) ** 2) / max(n - 1, 1)


def _subtract_slack(bounds: Sequence[float] | FloatArray) -> FloatArray:
    return np.maximum(np.asarray(bounds, dtype=np.float64) - SCORE_SLACK, 0.0)
