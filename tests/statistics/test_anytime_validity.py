"""How often an anytime test is wrong at the edge of its null hypothesis, by simulation, and how soon it is right.

Every test of validity states its false-alarm rate and has a control, looking at Clopper–Pearson bounds whenever one
likes, that the same test must catch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from smoothcert.records import FloatArray, IntArray
from smoothcert.statistics import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    log_threshold,
    log_wealth_above,
    log_wealth_below,
    one_sided_lower,
    time_uniform_upper,
)
from time_uniform import time_uniform_lower

REPETITIONS = 20_000
FALSE_ALARM = 1e-6
HORIZON = 2000
TIMES = np.arange(1, HORIZON + 1)


def too_many(errors: int, alpha: float) -> bool:
    """Whether 20000 repetitions with so many errors contradict an error rate of at most α, at false alarm 1e-6."""
    return bool(stats.binomtest(errors, REPETITIONS, alpha, alternative="greater").pvalue < FALSE_ALARM)


def fewest_hits(rejects: Callable[[IntArray, IntArray], np.typing.NDArray[np.bool_]], times: IntArray) -> IntArray:
    """For each time the smallest number of hits at which a test that is monotone in them rejects; t+1 for none."""
    low, high = np.full(times.shape, -1), times + 1
    while (high - low > 1).any():
        middle = np.clip((low + high) // 2, 0, times)
        rejected = rejects(middle, times)
        high = np.where(rejected & (middle < high), middle, high)
        low = np.where(~rejected & (middle > low), middle, low)
    return high


def crossings(p: float, boundary: IntArray, times: IntArray, *, seed: int) -> int:
    """In how many of the repetitions the hits ever reach the boundary."""
    generator = np.random.default_rng(seed)
    crossed = 0
    for _ in range(20):
        votes = generator.random((REPETITIONS // 20, int(times[-1]))) < p
        hits = np.cumsum(votes, axis=1, dtype=np.int32)[:, times - 1]
        crossed += int((hits >= boundary).any(axis=1).sum())
    return crossed


@pytest.mark.parametrize(("alpha", "p0"), [(0.05, 0.8413), (0.01, 0.8413), (0.05, 0.99)])
def test_the_betting_test_is_wrong_at_most_as_often_as_it_says(alpha: float, p0: float) -> None:
    """p exactly p0, a look after every sample."""
    bar = log_threshold(alpha)
    yes = fewest_hits(lambda h, t: log_wealth_above(h, t, p0=p0) >= bar, TIMES)
    errors = crossings(p0, yes, TIMES, seed=1)
    assert not too_many(errors, alpha)
    assert errors > 0.1 * alpha * REPETITIONS  # it spends its α, and the simulation sees errors at all
    # The mirrored test: misses count as hits.
    no = fewest_hits(lambda h, t: log_wealth_below(t - h, t, p0=p0) >= bar, TIMES)
    assert not too_many(crossings(1 - p0, no, TIMES, seed=2), alpha)


@pytest.mark.parametrize(("alpha", "p0"), [(0.05, 0.8413), (0.01, 0.8413)])
def test_control_looking_at_clopper_pearson_fails(alpha: float, p0: float) -> None:
    peeking = fewest_hits(lambda h, t: clopper_pearson_lower(h, t, alpha=alpha) >= p0, TIMES)
    assert too_many(crossings(p0, peeking, TIMES, seed=3), alpha)
    every_hundred = TIMES[99::100]
    seldom = fewest_hits(lambda h, t: clopper_pearson_lower(h, t, alpha=alpha) >= p0, every_hundred)
    assert too_many(crossings(p0, seldom, every_hundred, seed=4), alpha)
    # One look at the end is what Clopper and Pearson promise for.
    once = TIMES[-1:]
    assert not too_many(crossings(p0, peeking[-1:], once, seed=5), alpha)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_the_limits_cover_at_all_times_together(p: float) -> None:
    """The lower limit ever above p, or the upper one ever below it: both together at most α."""
    alpha = 0.05
    generator = np.random.default_rng(6)
    above = fewest_hits(lambda h, t: time_uniform_lower(h, t, alpha=alpha) > p, TIMES)
    below = TIMES - fewest_hits(lambda m, t: time_uniform_upper(t - m, t, alpha=alpha) < p, TIMES)
    naive_above = fewest_hits(lambda h, t: clopper_pearson_lower(h, t, alpha=alpha / 2) > p, TIMES)
    naive_below = TIMES - fewest_hits(lambda m, t: clopper_pearson_upper(t - m, t, alpha=alpha / 2) < p, TIMES)
    errors = naive = 0
    for _ in range(20):
        hits = np.cumsum(generator.random((REPETITIONS // 20, HORIZON)) < p, axis=1, dtype=np.int32)
        errors += int(((hits >= above) | (hits <= below)).any(axis=1).sum())
        naive += int(((hits >= naive_above) | (hits <= naive_below)).any(axis=1).sum())
    assert not too_many(errors, alpha)
    assert errors > 0.1 * alpha * REPETITIONS
    assert too_many(naive, alpha)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_the_one_sided_limit_covers_at_all_times(p: float) -> None:
    alpha = 0.05
    above = fewest_hits(lambda h, t: one_sided_lower(h, t, alpha=alpha) > p, TIMES)
    errors = crossings(p, above, TIMES, seed=9)
    assert not too_many(errors, alpha)
    assert errors > 0.1 * alpha * REPETITIONS


def exact_crossing(p: float, boundary: IntArray) -> float:
    """The probability that hits ever reach the boundary, by adding up all paths."""
    alive: FloatArray = np.array([1.0])
    crossed = 0.0
    for bar in boundary:
        alive = np.convolve(alive, [1.0 - p, p])
        crossed += float(alive[bar:].sum())
        alive[bar:] = 0.0
    return crossed


@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_without_chance_the_error_is_below_alpha(alpha: float) -> None:
    """At α = .001, which no simulation of this size resolves, the paths are added up; peeking has an error of .015."""
    p0, times = 0.8413, np.arange(1, 1001)
    bar = log_threshold(alpha)
    found = exact_crossing(p0, fewest_hits(lambda h, t: log_wealth_above(h, t, p0=p0) >= bar, times))
    assert 0.1 * alpha < found <= alpha
    peeking = fewest_hits(lambda h, t: clopper_pearson_lower(h, t, alpha=alpha) >= p0, times)
    assert exact_crossing(p0, peeking) > 3 * alpha


@pytest.mark.parametrize(
    ("p0", "p", "expected"),
    [(0.8413, 0.8889, 930), (0.8413, 0.9365, 175), (0.9332, 0.9532, 2340), (0.9772, 0.9909, 1420)],
)
def test_samples_until_yes(p0: float, p: float, expected: int) -> None:
    """The published means, at α = .001, within 10 %; the mean of 2000 repetitions has a standard error near 1 %."""
    horizon, repetitions = 16_000, 2000
    times = np.arange(1, horizon + 1)
    bar = log_threshold(0.001)
    boundary = fewest_hits(lambda h, t: log_wealth_above(h, t, p0=p0) >= bar, times)
    generator = np.random.default_rng(7)
    taken: list[int] = []
    for _ in range(20):
        hits = np.cumsum(generator.random((repetitions // 20, horizon)) < p, axis=1, dtype=np.int32)
        crossed = hits >= boundary
        assert crossed.any(axis=1).all()
        taken += (1 + crossed.argmax(axis=1)).tolist()
    assert np.mean(taken) == pytest.approx(expected, rel=0.10)
