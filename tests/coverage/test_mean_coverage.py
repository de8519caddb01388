"""Validity of bounds on means of scores: how often they miss, by simulation.

Every simulation states its false-alarm rate and has a control: a wrong procedure that the same test must catch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special, stats

from smoothcert.records import ScoreTally, Stage, StreamId
from smoothcert.statistics import (
    betting_lower,
    betting_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    hoeffding_lower,
)
from smoothcert.statistics.scores import other_score_upper, top_score_lower
from smoothcert.tallies import SCORE_CELLS, score_cell

FALSE_ALARM = 1e-6
DRAWS = 4000
N = 100


def too_many(failures: int, trials: int, rate: float) -> bool:
    """Whether this many failures contradict a failure rate of at most `rate`, at false alarm 1e-6."""
    return bool(stats.binomtest(int(failures), trials, rate, alternative="greater").pvalue < FALSE_ALARM)


Law = tuple[Callable[[np.random.Generator, tuple[int, int]], np.ndarray], float]


def two_points(low: float, high: float, share: float) -> Law:
    """`high` with probability `share`."""
    return lambda generator, size: np.where(generator.random(size) < share, high, low), low + share * (high - low)


LAWS: dict[str, Law] = {
    "bernoulli 0.5": two_points(0.0, 1.0, 0.5),
    "bernoulli 0.95": two_points(0.0, 1.0, 0.95),
    "bernoulli 0.99": two_points(0.0, 1.0, 0.99),
    "bernoulli 0.02": two_points(0.0, 1.0, 0.02),
    "beta(9, 1)": (lambda generator, size: generator.beta(9, 1, size), 0.9),
    "beta(0.5, 0.5)": (lambda generator, size: generator.beta(0.5, 0.5, size), 0.5),
    "mostly 0.9, rarely 0": two_points(0.0, 0.9, 0.98),
    "mostly 0.4, rarely 1": two_points(0.4, 1.0, 0.03),
    "constant": two_points(0.7, 0.7, 0.5),
}


def sample(law: str, *, draws: int = DRAWS, n: int = N) -> tuple[np.ndarray, float]:
    draw, mean = LAWS[law]
    return draw(np.random.default_rng([len(law), n]), (draws, n)), mean


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_no_bound_misses_more_often_than_alpha(law: str, alpha: float) -> None:
    """Six tests on each of nine laws at two levels: a false alarm in all of them has probability below 1.1e-4."""
    values, mean = sample(law)
    averages, variances = values.mean(axis=1), values.var(axis=1, ddof=1)
    rounding = 1e-12
    misses = {
        "betting lower": [betting_lower(row, alpha=alpha) > mean + rounding for row in values],
        "betting upper": [betting_upper(row, alpha=alpha) < mean - rounding for row in values],
        "bernstein lower": empirical_bernstein_lower(averages, variances, N, alpha=alpha) > mean + rounding,
        "bernstein upper": empirical_bernstein_upper(averages, variances, N, alpha=alpha) < mean - rounding,
        "hoeffding lower": hoeffding_lower(averages, N, alpha=alpha) > mean + rounding,
    }
    for name, missed in misses.items():
        assert not too_many(int(np.sum(missed)), DRAWS, alpha), name


def test_betting_spends_most_of_alpha() -> None:
    """A bound that never misses would pass the test above; this one misses at least a third as often as it may."""
    values, mean = sample("beta(9, 1)", n=1000, draws=2000)
    missed = sum(betting_lower(row, alpha=0.2) > mean for row in values)
    assert missed > 2000 * 0.2 / 3


@pytest.mark.parametrize("law", ["bernoulli 0.95", "mostly 0.9, rarely 0"])
def test_control_the_normal_approximation_misses(law: str) -> None:
    """mean - z s/√n, as in many a paper: with rare low scores the spread is not seen when it matters."""
    values, mean = sample(law)
    z = -special.ndtri(0.001)
    lower = values.mean(axis=1) - z * values.std(axis=1, ddof=1) / np.sqrt(N)
    assert too_many(int((lower > mean).sum()), DRAWS, 0.001)


def test_control_a_stake_that_sees_the_value_first_misses() -> None:
    """The same game with each stake chosen after its value: 0 wherever the bet would lose."""
    values, mean = sample("beta(0.5, 0.5)")
    gains = np.maximum(values - mean, 0.0)
    ruined = np.log1p(0.5 * gains).sum(axis=1) >= np.log(1 / 0.001)
    assert too_many(int(ruined.sum()), DRAWS, 0.001)


def scored(top: np.ndarray, *, index: int, label: int) -> ScoreTally:
    cells, hits = np.unique(score_cell(np.stack([top, 1.0 - top])) + np.array([[0], [SCORE_CELLS]]), return_counts=True)
    votes = np.array([top.size, 0])
    return ScoreTally(StreamId(7, index, Stage.ESTIMATION), 1.0, votes, 0, label, cells, hits, ((0, top.size),))


def test_through_the_histogram_no_more_than_alpha_miss() -> None:
    """Cells, the order drawn for each stream, and both sides: on skewed scores, at two levels."""
    for law in ("beta(9, 1)", "mostly 0.9, rarely 0"):
        values, mean = sample(law, draws=2000)
        tallies = [scored(row, index=i, label=0) for i, row in enumerate(values)]
        for alpha in (0.05, 0.2):
            labels = [0] * len(tallies)
            assert not too_many(int((top_score_lower(tallies, labels, alpha) > mean).sum()), 2000, alpha)
            assert not too_many(int((other_score_upper(tallies, labels, alpha) < 1 - mean).sum()), 2000, alpha)


def test_control_choosing_the_class_on_the_samples_that_prove_misses() -> None:
    """Twenty classes with the same mean score; the one that looks best is bounded from the same samples."""
    generator = np.random.default_rng(9)
    draws, classes, alpha = 1500, 20, 0.05
    mean = 0.05
    chosen, apart = 0, 0
    for _ in range(draws):
        scores = generator.dirichlet(np.full(classes, 0.3), size=N)
        best = int(scores.mean(axis=0).argmax())
        chosen += betting_lower(scores[:, best], alpha=alpha) > mean
        apart += betting_lower(scores[:, 0], alpha=alpha) > mean
    assert too_many(chosen, draws, alpha)
    assert not too_many(apart, draws, alpha)
