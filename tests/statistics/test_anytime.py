"""Wealth and time-uniform limits against integrals and sums computed another way."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from smoothcert.errors import InputError
from smoothcert.statistics import (
    log_threshold,
    log_wealth_above,
    log_wealth_below,
    log_wealth_mixture,
    one_sided_lower,
    time_uniform_upper,
)
from time_uniform import time_uniform_lower

CASES = [
    (0, 1, 0.5),
    (1, 1, 0.5),
    (7, 10, 0.8),
    (10, 10, 0.8413),
    (95, 100, 0.8413),
    (80, 100, 0.8413),
    (640, 700, 0.9332),
    (1000, 1000, 0.99865),
    (4000, 4100, 0.9772),
    (3000, 3000, 1 - 1e-6),
    (2, 2500, 0.01),
]


def integral(hits: int, trials: int, p0: float, *, low: float, high: float) -> mpmath.mpf:
    """log of the mean of the likelihood ratio over the part of the Beta(½,½) law between low and high, by quadrature.

    With q = sin²θ the prior is uniform in θ.
    """
    with mpmath.workdps(30):
        p = mpmath.mpf(p0)
        first, last = mpmath.asin(mpmath.sqrt(mpmath.mpf(low))), mpmath.asin(mpmath.sqrt(mpmath.mpf(high)))

        def ratio(theta: mpmath.mpf) -> mpmath.mpf:
            q = mpmath.sin(theta) ** 2
            return (q / p) ** hits * ((1 - q) / (1 - p)) ** (trials - hits)

        peak = min(max(mpmath.asin(mpmath.sqrt(mpmath.mpf(hits) / trials)), first), last)
        width = 1 / mpmath.sqrt(4 * mpmath.mpf(trials))
        cuts = {first, last, *(peak + k * width for k in range(-16, 17, 2) if first < peak + k * width < last)}
        return mpmath.log(mpmath.quad(ratio, sorted(cuts)) / (last - first))


@pytest.mark.parametrize(("hits", "trials", "p0"), CASES)
def test_wealth_is_the_integral_rounded_down(hits: int, trials: int, p0: float) -> None:
    for found, low, high in (
        (log_wealth_above(hits, trials, p0=p0), p0, 1.0),
        (log_wealth_below(hits, trials, p0=p0), 0.0, p0),
        (log_wealth_mixture(hits, trials, p=p0), 0.0, 1.0),
    ):
        short = float(integral(hits, trials, p0, low=low, high=high) - float(found))
        assert 0.0 <= short < 1e-9


def test_the_formula_of_the_issue() -> None:
    h, t, p0 = 900.0, 1000.0, 0.8413
    expected = (
        special.betaln(h + 0.5, t - h + 0.5)
        - special.betaln(0.5, 0.5)
        + math.log(special.betaincc(h + 0.5, t - h + 0.5, p0))
        - math.log(special.betaincc(0.5, 0.5, p0))
        - h * math.log(p0)
        - (t - h) * math.log(1 - p0)
    )
    assert float(log_wealth_above(h, t, p0=p0)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("p0", [0.3, 0.5, 0.8413, 0.99])
@pytest.mark.parametrize("trials", [1, 2, 7, 12])
def test_wealth_is_not_expected_to_grow_under_the_null(trials: int, p0: float) -> None:
    """By exact sums over all sequences: the mean is 1 at the null and at most 1 inside it."""
    h = np.arange(trials + 1)
    above = np.exp(log_wealth_above(h, trials, p0=p0))
    below = np.exp(log_wealth_below(h, trials, p0=p0))
    for p in (0.5 * p0, 0.9 * p0, p0):
        chances = special.comb(trials, h) * p**h * (1 - p) ** (trials - h)
        assert chances @ above <= 1.0 + 1e-12
    assert chances @ above == pytest.approx(1.0, abs=1e-8)
    assert chances @ below == pytest.approx(1.0, abs=1e-8)
    for p in (p0, 0.5 + 0.5 * p0, 0.99 + 0.01 * p0):
        chances = special.comb(trials, h) * p**h * (1 - p) ** (trials - h)
        assert chances @ below <= 1.0 + 1e-12


def test_stopped_wealth_over_all_sequences() -> None:
    """Every sequence of ten votes, stopped when the wealth has doubled: the mean wealth at the stop is still 1."""
    p0, length = 0.6, 10
    total = 0.0
    for votes in itertools.product((0, 1), repeat=length):
        chance = math.prod(p0 if vote else 1 - p0 for vote in votes)
        wealth = np.exp(log_wealth_above(np.cumsum(votes), np.arange(1, length + 1), p0=p0))
        doubled = np.flatnonzero(wealth >= 2.0)
        total += chance * wealth[doubled[0] if doubled.size else -1]
    assert total == pytest.approx(1.0, abs=1e-8)


@given(
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.floats(0.001, 0.999).map(float),
)
def test_a_hit_never_lowers_and_a_miss_never_raises(hits: int, misses: int, p0: float) -> None:
    trials = hits + misses + 1
    hit, miss = log_wealth_above([hits + 1, hits], trials, p0=p0)
    if hits + misses:
        before = float(log_wealth_above(hits, trials - 1, p0=p0))
        slack = 1e-9 * (1.0 + abs(before))
        assert miss - slack <= before <= hit + slack
    assert miss <= hit + 1e-9 * (1.0 + abs(hit))


def test_hits_and_misses_are_mirrored() -> None:
    h, t = np.array([3, 50, 990]), np.array([10, 100, 1000])
    np.testing.assert_allclose(log_wealth_below(h, t, p0=0.75), log_wealth_above(t - h, t, p0=0.25), rtol=1e-13)


def test_a_tail_that_underflows_is_a_lower_bound_close_to_the_truth() -> None:
    """h/t far below p0: the posterior above p0 is below 1e-280, and log betaincc would be -inf."""
    found = float(log_wealth_above(500, 3000, p0=0.9))
    exact = float(integral(500, 3000, 0.9, low=0.9, high=1.0))
    assert math.isfinite(found)
    assert exact - 0.3 < found < exact


def test_many_samples_keep_their_digits() -> None:
    """At t = 10^12 a difference of beta functions would be wrong by 10^-3."""
    t, p0 = 10**12, 0.9332
    h = round(t * p0 + 4.0 * math.sqrt(t * p0 * (1 - p0)))
    with mpmath.workdps(60):
        exact = (
            mpmath.log(mpmath.beta(h + mpmath.mpf(0.5), t - h + mpmath.mpf(0.5)))
            - mpmath.log(mpmath.pi)
            - h * mpmath.log(mpmath.mpf(p0))
            - (t - h) * mpmath.log(1 - mpmath.mpf(p0))
        )
    short = float(exact - float(log_wealth_mixture(h, t, p=p0)))
    assert 0.0 <= short < 1e-9


@given(st.integers(1, 10**6), st.floats(0, 1), st.sampled_from([0.05, 0.001, 1e-9]))
def test_limits_are_where_the_wealth_crosses(trials: int, share: float, alpha: float) -> None:
    hits = round(trials * share)
    lower, upper = (float(limit(hits, trials, alpha=alpha)) for limit in (time_uniform_lower, time_uniform_upper))
    assert 0.0 <= lower <= hits / trials <= upper <= 1.0
    threshold = log_threshold(alpha)
    if lower > 1e-290:
        assert float(log_wealth_mixture(hits, trials, p=lower)) >= threshold
        beyond = lower + 1e-9 * min(lower, 1 - lower) + 4 * np.spacing(lower)
        if beyond < hits / trials and beyond < 1:
            assert float(log_wealth_mixture(hits, trials, p=beyond)) < threshold + 1e-8
    if upper < 1.0 - 1e-12:
        assert float(log_wealth_mixture(hits, trials, p=upper)) >= threshold - 1e-9


@given(st.integers(1, 10**6), st.floats(0, 1), st.sampled_from([0.49, 0.05, 0.001, 1e-9]))
def test_the_one_sided_limit_is_where_its_wealth_crosses(trials: int, share: float, alpha: float) -> None:
    hits = round(trials * share)
    lower = float(one_sided_lower(hits, trials, alpha=alpha))
    assert 0.0 <= lower <= hits / trials
    threshold = log_threshold(alpha)
    if lower > 1e-290:
        assert float(log_wealth_above(hits, trials, p0=lower)) >= threshold
        beyond = lower + 1e-9 * min(lower, 1 - lower) + 4 * np.spacing(lower)
        if beyond < hits / trials and beyond < 1:
            assert float(log_wealth_above(hits, trials, p0=beyond)) < threshold + 1e-8


@given(
    st.integers(1, 3000),
    st.floats(0, 1),
    st.lists(st.floats(1e-6, 1 - 1e-6), min_size=2, max_size=40),
    st.sampled_from([0.49, 0.05, 0.001]),
)
def test_what_the_one_sided_test_rejects_lies_below_all_it_does_not(
    trials: int, share: float, points: list[float], alpha: float
) -> None:
    hits = round(trials * share)
    rejected = log_wealth_above(hits, trials, p0=np.sort(points)) >= log_threshold(alpha)
    assert not (~rejected[:-1] & rejected[1:]).any()


def test_the_one_sided_limit_is_close_to_a_fixed_n_near_one() -> None:
    """100000 of 100000: 1-p is 8.1 in 100000, 6.9 with Clopper–Pearson at fixed n, 13.2 with the whole prior."""
    n = 100_000
    assert n * (1 - float(one_sided_lower(n, n, alpha=0.001))) == pytest.approx(8.0725, abs=1e-3)
    assert n * (1 - float(time_uniform_lower(n, n, alpha=0.001))) == pytest.approx(13.236, abs=1e-2)


def test_limits_of_nothing_and_of_everything() -> None:
    assert float(time_uniform_lower(0, 100, alpha=0.001)) == 0.0
    assert float(time_uniform_upper(100, 100, alpha=0.001)) == 1.0
    # All hits: betaln(t+½, ½) - log π - t log p = log(1/α).
    t = 1000
    log_p = special.betaln(t + 0.5, 0.5) - math.log(math.pi) + math.log(0.001)
    assert float(time_uniform_lower(t, t, alpha=0.001)) == pytest.approx(math.exp(log_p / t), rel=1e-12)


def test_limits_take_arrays() -> None:
    h = np.array([[5, 50], [95, 950]])
    t = np.array([[10, 100], [100, 1000]])
    found = time_uniform_lower(h, t, alpha=0.01)
    assert found.shape == (2, 2)
    for place in np.ndindex(2, 2):
        assert found[place] == float(time_uniform_lower(h[place], t[place], alpha=0.01))


@pytest.mark.parametrize(("hits", "trials"), [(2, 1), (-1, 5), (0, 0)])
def test_impossible_counts_are_refused(hits: int, trials: int) -> None:
    for call in (
        lambda: log_wealth_above(hits, trials, p0=0.5),
        lambda: time_uniform_lower(hits, trials, alpha=0.01),
    ):
        with pytest.raises(InputError, match="0 ≤ hits ≤ trials"):
            call()


@pytest.mark.parametrize("p0", [0.0, 1.0, math.nan])
def test_a_null_hypothesis_must_be_a_probability(p0: float) -> None:
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        log_wealth_above(1, 2, p0=p0)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1e-200])
def test_alpha_is_checked(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha"):
        log_threshold(alpha)
