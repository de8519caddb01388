"""Lower bounds on how many inputs of a test set are truly robust."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from smoothcert.errors import InputError
from smoothcert.statistics.testset import bernstein_lower_bound, exact_lower_bound

Bound = Callable[[np.ndarray, int, float, float], np.ndarray]


def theorem_five(y: np.ndarray, m: int, alpha: float, rho: float) -> np.ndarray:
    return bernstein_lower_bound(y, trials=m, alpha=alpha, rho=rho)


def exact(y: np.ndarray, m: int, alpha: float, rho: float) -> np.ndarray:
    return exact_lower_bound(y, trials=m, alpha=alpha, rho=rho) / m


def without_the_two(y: np.ndarray, m: int, alpha: float, rho: float) -> np.ndarray:
    """Theorem 5 as it is often coded, the factor 2 under the root forgotten."""
    log_term = math.log(1 / rho)
    deviation = math.sqrt(alpha * (1 - alpha) * log_term / m) + log_term / (3 * m)
    return np.maximum((y / m - alpha - deviation) / (1 - alpha), 0)


def ignoring_alpha(y: np.ndarray, m: int, alpha: float, rho: float) -> np.ndarray:
    """The certified accuracy itself, taken as if no certificate could be wrong."""
    return y / m


def failure_probability(bound: Bound, *, m: int, good: int, alpha: float, rho: float) -> float:
    """Exactly how often the bound exceeds the truth in the worst case.

    Every good input is certified, and every other one wrongly with probability alpha.
    """
    false_claims = np.arange(m - good + 1)
    wrong = bound(good + false_claims, m, alpha, rho) > good / m
    return float(binom.pmf(false_claims, m - good, alpha)[wrong].sum())


SETTINGS = [
    (10000, 0, 0.1, 0.001),
    (10000, 4000, 0.1, 0.01),
    (500, 300, 0.001, 0.001),
    (500, 0, 0.01, 0.05),
    (100, 50, 0.05, 0.05),
    (7, 3, 0.5, 0.1),
    (1, 0, 0.001, 0.001),
]


@pytest.mark.parametrize("bound", [theorem_five, exact])
@pytest.mark.parametrize(("m", "good", "alpha", "rho"), SETTINGS)
def test_fails_no_more_often_than_promised(bound: Bound, m: int, good: int, alpha: float, rho: float) -> None:
    assert failure_probability(bound, m=m, good=good, alpha=alpha, rho=rho) <= rho


def test_the_check_catches_the_forgotten_factor() -> None:
    failure = failure_probability(without_the_two, m=10000, good=0, alpha=0.1, rho=0.001)
    assert failure > 3 * 0.001


def test_the_check_catches_a_bound_that_ignores_alpha() -> None:
    failure = failure_probability(ignoring_alpha, m=500, good=300, alpha=0.001, rho=0.001)
    assert failure == pytest.approx(1 - 0.999**200)


@pytest.mark.parametrize(("bound", "holds"), [(theorem_five, True), (exact, True), (ignoring_alpha, False)])
def test_coverage_in_simulation_with_unequal_error_rates(bound: Bound, holds: bool) -> None:
    """Claims drawn input by input: good ones often missed, bad ones wrongly claimed at rates up to alpha."""
    rng = np.random.default_rng(20190208)
    m, good, alpha, rho, trials = 400, 240, 0.05, 0.05, 4000
    rates = np.concatenate([rng.uniform(0.9, 1.0, good), rng.uniform(0.5 * alpha, alpha, m - good)])
    rates[: good // 2] = 1.0
    claims = (rng.random((trials, m)) < rates).sum(axis=1)
    worst = (rng.random((trials, m)) < np.where(np.arange(m) < good, 1.0, alpha)).sum(axis=1)
    # Four standard errors above rho: a false alarm once in thirty thousand.
    limit = rho + 4 * math.sqrt(rho * (1 - rho) / trials)
    failures = [float((bound(y, m, alpha, rho) > good / m).mean()) for y in (claims, worst)]
    assert (max(failures) <= limit) is holds


def brute_force(y: int, m: int, alpha: Fraction, rho: Fraction) -> int:
    """The smallest g whose tail exceeds rho, by adding up the binomial law in exact arithmetic."""
    for g in range(y + 1):
        n, needed = m - g, y - g
        tail = sum(math.comb(n, k) * alpha**k * (1 - alpha) ** (n - k) for k in range(needed, n + 1))
        if tail > rho:
            return g
    raise AssertionError("g = y always has tail 1")


@given(m=st.integers(1, 25), data=st.data())
def test_exact_bound_agrees_with_exact_arithmetic(m: int, data: st.DataObject) -> None:
    y = data.draw(st.integers(0, m))
    alpha = Fraction(data.draw(st.integers(1, 50)), 100)
    rho = Fraction(data.draw(st.integers(1, 99)), 997)
    found = exact_lower_bound(y, trials=m, alpha=float(alpha), rho=float(rho))
    assert int(found) == brute_force(y, m, alpha, rho)


@given(m=st.integers(1, 3000), alpha=st.floats(1e-6, 0.5), rho=st.floats(1e-9, 0.5))
def test_exact_is_at_least_theorem_five_and_at_most_the_count(m: int, alpha: float, rho: float) -> None:
    y = np.arange(m + 1)
    tight, loose = exact(y, m, alpha, rho), theorem_five(y, m, alpha, rho)
    assert (tight >= loose - 1e-12).all()
    assert (tight <= y / m).all()
    assert (np.diff(tight) >= 0).all()
    assert (np.diff(loose) >= 0).all()
    assert (loose >= 0).all()


def test_theorem_five_by_hand() -> None:
    # m = 500, alpha = rho = 0.001: log(1000) = 6.907755279, so the root is sqrt(2 * 0.000999 * 6.907755279 / 500).
    expected = (0.6 - 0.001 - 0.005253900 - 0.004605170) / 0.999
    assert float(bernstein_lower_bound(300, trials=500, alpha=0.001, rho=0.001)) == pytest.approx(expected, abs=1e-8)


def test_both_are_never_below_zero() -> None:
    assert bernstein_lower_bound([0, 1], trials=500, alpha=0.001, rho=0.001).tolist() == [0.0, 0.0]
    assert exact_lower_bound([0, 1], trials=500, alpha=0.001, rho=0.001).tolist() == [0, 0]


def test_shape_is_kept() -> None:
    counts = np.array([[1, 2, 3], [4, 5, 6]])
    assert exact_lower_bound(counts, trials=9, alpha=0.01, rho=0.1).shape == (2, 3)
    assert bernstein_lower_bound(counts, trials=9, alpha=0.01, rho=0.1).shape == (2, 3)


@pytest.mark.parametrize("bound", [bernstein_lower_bound, exact_lower_bound])
@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 0.0},
        {"alpha": 0.51},
        {"alpha": math.nan},
        {"rho": 0.0},
        {"rho": 1.0},
        {"rho": math.nan},
        {"trials": 0},
        {"successes": [11]},
        {"successes": [-1]},
        {"successes": [0.5]},
    ],
)
def test_bad_arguments_are_refused(bound: Callable[..., object], change: dict[str, object]) -> None:
    arguments: dict[str, object] = {"successes": [3], "trials": 10, "alpha": 0.001, "rho": 0.001}
    with pytest.raises(InputError):
        bound(**(arguments | change))
