"""Bounds on the mean of values in [0, 1]: against their definitions, in exact arithmetic, and against typical sizes."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hoeffding_bounds import hoeffding_lower, hoeffding_upper
from smoothcert.errors import InputError
from smoothcert.statistics import (
    betting_lower,
    betting_upper,
    clopper_pearson_lower,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
)

UNIT = arrays.arrays(
    np.float64, st.integers(2, 300), elements=st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 1.0]))
)
ALPHA = st.one_of(st.sampled_from([1e-100, 1e-9, 0.001, 0.05, 0.49]), st.floats(1e-6, 0.4))


def capital(values: list[float], m: object, alpha: float) -> object:
    """Largest logarithm of the capital, by the definition, with 50 digits."""
    with mpmath.workdps(50):
        n, goal = len(values), mpmath.log(1 / mpmath.mpf(alpha))
        total, squares, held, largest = mpmath.mpf(1) / 2, mpmath.mpf(1) / 4, mpmath.mpf(0), -mpmath.inf
        m = mpmath.mpf(m)
        for t, value in enumerate(map(mpmath.mpf, values), start=1):
            stake = min(mpmath.sqrt(2 * goal / (n * squares / t)), mpmath.mpf(3) / 4 / m)
            held += mpmath.log(1 + stake * (value - m))
            largest = max(largest, held)
            total += value
            squares += (value - total / (t + 1)) ** 2
        return largest - goal


def betting_by_bisection(values: list[float], alpha: float) -> float:
    low, high = 0.0, math.fsum(values) / len(values)
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if capital(values, middle, alpha) >= 0 else (low, middle)
    return low


@pytest.mark.parametrize(
    ("n", "hoeffding", "bernstein", "betting"), [(1000, 0.0588, 0.0291, 0.0117), (10_000, 0.0185, 0.0053, 0.0031)]
)
def test_typical_gaps(n: int, hoeffding: float, bernstein: float, betting: float) -> None:
    """Beta(9, 1), α = 0.001. One gap by betting spreads by about 6 percent, the mean of 200 by 0.5 percent."""
    values = np.random.default_rng(n).beta(9, 1, size=(200, n))
    means, variances = values.mean(axis=1), values.var(axis=1, ddof=1)
    gaps = [
        means - hoeffding_lower(means, n, alpha=0.001),
        means - empirical_bernstein_lower(means, variances, n, alpha=0.001),
        means - [betting_lower(row, alpha=0.001) for row in values],
    ]
    assert [float(gap.mean()) for gap in gaps] == pytest.approx([hoeffding, bernstein, betting], rel=0.04)


@pytest.mark.parametrize("alpha", [1e-12, 0.001, 0.2])
@pytest.mark.parametrize("law", ["beta", "even", "mostly one", "mostly zero", "two points", "steps"])
def test_betting_is_what_the_definition_says(law: str, alpha: float) -> None:
    generator = np.random.default_rng(4)
    values = {
        "beta": generator.beta(9, 1, size=150),
        "even": generator.random(150),
        "mostly one": (generator.random(150) < 0.97).astype(float),
        "mostly zero": (generator.random(150) < 0.05).astype(float),
        "two points": np.where(generator.random(150) < 0.5, 0.3, 0.4),
        "steps": np.repeat([1.0, 0.0, 1.0], 50),
    }[law]
    expected = betting_by_bisection(values.tolist(), alpha)
    found = betting_lower(values, alpha=alpha)
    assert found <= expected + 1e-15
    assert found == pytest.approx(expected, abs=2e-7 * (values.mean() - expected) + 1e-15)


@settings(max_examples=60)
@given(UNIT, ALPHA)
def test_the_capital_at_the_bound_suffices_in_exact_arithmetic(values: np.ndarray, alpha: float) -> None:
    lower = betting_lower(values, alpha=alpha)
    assert lower == 0.0 or capital(values.tolist(), lower, alpha) >= 0


@given(UNIT, ALPHA)
def test_bounds_lie_around_the_mean_inside_the_unit_interval(values: np.ndarray, alpha: float) -> None:
    mean, variance, n = float(values.mean()), float(values.var(ddof=1)), values.size
    mean = min(mean, 1.0)
    slack = 1e-12  # of the mean in float64
    for lower, upper in (
        (hoeffding_lower(mean, n, alpha=alpha), hoeffding_upper(mean, n, alpha=alpha)),
        (
            empirical_bernstein_lower(mean, variance, n, alpha=alpha),
            empirical_bernstein_upper(mean, variance, n, alpha=alpha),
        ),
        (betting_lower(values, alpha=alpha), betting_upper(values, alpha=alpha)),
    ):
        assert 0.0 <= lower <= mean + slack
        assert mean - slack <= upper <= 1.0


@given(UNIT, st.integers(0, 299), st.floats(0, 1), ALPHA)
def test_a_larger_value_never_lowers_hoeffdings_bound(values: np.ndarray, at: int, new: float, alpha: float) -> None:
    """The other two read the spread as well, and one value more of 1 among zeros may well lower them."""
    raised = values.copy()
    raised[at % values.size] = max(new, raised[at % values.size])
    before, after = (hoeffding_lower(min(v.mean(), 1.0), v.size, alpha=alpha) for v in (values, raised))
    assert after >= before - 1e-15
    before, after = (hoeffding_upper(min(v.mean(), 1.0), v.size, alpha=alpha) for v in (values, raised))
    assert after >= before - 1e-15


@settings(max_examples=40)
@given(UNIT, st.floats(0.0, 1.0), ALPHA)
def test_values_raised_towards_one_together_raise_the_betting_bound(
    values: np.ndarray, share: float, alpha: float
) -> None:
    """x → x + s(1-x) raises the mean and shrinks the spread."""
    raised = values + share * (1.0 - values)
    before, after = betting_lower(values, alpha=alpha), betting_lower(np.minimum(raised, 1.0), alpha=alpha)
    assert after >= before - 1e-6


@given(UNIT, ALPHA)
def test_upper_bounds_are_mirror_images(values: np.ndarray, alpha: float) -> None:
    assert betting_upper(values, alpha=alpha) == pytest.approx(
        1.0 - betting_lower(1.0 - values, alpha=alpha), abs=2e-12
    )


@given(st.integers(2, 10**9), st.floats(0, 1), st.floats(0, 0.25), ALPHA)
def test_the_formulas_are_rounded_to_the_safe_side(n: int, mean: float, variance: float, alpha: float) -> None:
    with mpmath.workdps(40):
        m, v, log_term = mpmath.mpf(mean), mpmath.mpf(variance), mpmath.log(2 / mpmath.mpf(alpha))
        hoeffding = mpmath.sqrt(mpmath.log(1 / mpmath.mpf(alpha)) / (2 * n))
        bernstein = mpmath.sqrt(2 * v * log_term / n) + 7 * log_term / (3 * (n - 1))
        for margin, lower, upper in (
            (hoeffding, hoeffding_lower(mean, n, alpha=alpha), hoeffding_upper(mean, n, alpha=alpha)),
            (
                bernstein,
                empirical_bernstein_lower(mean, variance, n, alpha=alpha),
                empirical_bernstein_upper(mean, variance, n, alpha=alpha),
            ),
        ):
            assert lower == 0.0 or lower <= m - margin
            assert upper == 1.0 or upper >= m + margin
            assert float(lower) == pytest.approx(float(max(m - margin, 0)), abs=1e-11 * (1 + float(margin)))
            assert float(upper) == pytest.approx(float(min(m + margin, 1)), abs=1e-11 * (1 + float(margin)))


@pytest.mark.parametrize("n", [13, 100, 10_000])
def test_when_every_value_is_one(n: int) -> None:
    """The stake is cut at ¾/m from early on: the bound is 1 - 4/3 ln(1/α)/n, of which the exact one keeps three
    quarters.
    """
    lower = betting_lower(np.ones(n), alpha=0.001)
    exact = float(clopper_pearson_lower(n, n, alpha=0.001))
    assert lower < exact
    if n > 13:
        assert (1.0 - lower) == pytest.approx(4 / 3 * math.log(1000) / n, rel=0.06)
    assert betting_lower(np.zeros(n), alpha=0.001) == 0.0
    assert betting_upper(np.ones(n), alpha=0.001) == 1.0
    assert lower > 0.5


def test_fewest_values_that_can_prove_a_majority() -> None:
    """1.75^n ≥ 1000 for a mean of one half."""
    assert math.ceil(math.log(1000) / math.log(1.75)) == 13
    assert betting_lower(np.ones(12), alpha=0.001) <= 0.5 < betting_lower(np.ones(13), alpha=0.001)


def test_one_value_proves_little() -> None:
    assert betting_lower(np.array([1.0]), alpha=0.001) < 0.001
    assert empirical_bernstein_lower(1.0, 0.0, 1, alpha=0.001) == 0.0
    assert empirical_bernstein_upper(0.0, 0.0, 1, alpha=0.001) == pytest.approx(1.0)


def test_shapes_broadcast() -> None:
    means = np.array([[0.5], [0.9]])
    n = np.array([10, 1000, 100_000])
    assert hoeffding_lower(means, n, alpha=0.01).shape == (2, 3)
    bounds = empirical_bernstein_lower(means, 0.01, n, alpha=0.01)
    assert bounds.shape == (2, 3)
    assert bounds[1, 2] == empirical_bernstein_lower(0.9, 0.01, 100_000, alpha=0.01)


def test_a_hundred_thousand_values_take_milliseconds() -> None:
    """Usually 15; the limit leaves room for a busy machine."""
    values = np.random.default_rng(0).beta(9, 1, size=100_000)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        betting_lower(values, alpha=0.001)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.1


def test_rounded_means_of_a_tenth() -> None:
    """Every value is 0.1, which float64 does not hold; the bound must not pass the true value of the double."""
    for n in (10, 1000):
        lower = betting_lower(np.full(n, 0.1), alpha=0.4)
        assert Fraction(lower) <= Fraction(0.1)


@pytest.mark.parametrize(
    "values",
    [[], [[0.5, 0.5]], [0.5, 1.5], [-0.1, 0.5], [0.5, math.nan], 0.5],
    ids=["none", "2d", ">1", "<0", "nan", "0d"],
)
def test_values_that_cannot_be_bet_on(values: object) -> None:
    for bound in (betting_lower, betting_upper):
        with pytest.raises(InputError):
            bound(np.array(values, dtype=float), alpha=0.01)


def test_more_values_than_betting_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smoothcert.statistics.means.MOST_BETS", 10)
    with pytest.raises(InputError, match=r"1 … 10 values.*Bernstein"):
        betting_lower(np.ones(11), alpha=0.01)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, -1.0, math.nan, 1e-200])
def test_an_alpha_that_is_none(alpha: float) -> None:
    for bound in (
        lambda: hoeffding_lower(0.5, 10, alpha=alpha),
        lambda: hoeffding_upper(0.5, 10, alpha=alpha),
        lambda: empirical_bernstein_lower(0.5, 0.1, 10, alpha=alpha),
        lambda: empirical_bernstein_upper(0.5, 0.1, 10, alpha=alpha),
        lambda: betting_lower(np.ones(5), alpha=alpha),
        lambda: betting_upper(np.ones(5), alpha=alpha),
    ):
        with pytest.raises(InputError, match="alpha"):
            bound()


@pytest.mark.parametrize(
    ("mean", "variance", "n"), [(1.1, 0.1, 10), (-0.1, 0.1, 10), (math.nan, 0.1, 10), (0.5, -1e-9, 10), (0.5, 0.1, 0)]
)
def test_moments_that_cannot_be(mean: float, variance: float, n: int) -> None:
    with pytest.raises(InputError):
        empirical_bernstein_lower(mean, variance, n, alpha=0.01)
