"""Ratios of noise levels: the table of the paper, many digits, and the order of the thresholds."""

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.sigma.level_ratios import (
    largest_ratio,
    practical_largest_ratio,
    practical_smallest_ratio,
    simple_smallest_ratio,
    smallest_ratio,
)

P_A = [0.9, 0.99, 0.999, 0.99993]
probabilities = st.one_of(
    st.floats(0.5, 0.9999999), st.floats(1e-16, 1e-3).map(lambda tail: 1.0 - tail).filter(lambda p: p < 1)
)
dimensions = st.one_of(st.integers(1, 20), st.integers(1, 200_000))


@pytest.mark.parametrize(
    ("dimension", "expected"),
    [
        (784, [0.9463, 0.9244, 0.9076, 0.8916]),
        (3072, [0.9727, 0.9615, 0.9530, 0.9447]),
        (196608, [0.9966, 0.9952, 0.9941, 0.9930]),
    ],
)
def test_table_1(dimension: int, expected: list[float]) -> None:
    """Súkeník et al. (2022), Table 1, to four digits."""
    assert np.round(smallest_ratio(P_A, dimension), 4).tolist() == expected


def condition(ratio: float, p_a: float, dimension: int, *, above: bool) -> mpmath.mpf:
    """Left minus right side of Theorem 4; negative where nothing is certified."""
    with mpmath.workdps(60):
        q = mpmath.mpf(ratio) ** 2
        z = q * (dimension - 1) / dimension if above else q
        return mpmath.log(z) + 1 - z - 2 * mpmath.log(1 - mpmath.mpf(p_a)) / dimension


@settings(max_examples=200)
@given(probabilities, dimensions)
@example(0.5, 200_000)
@example(1 - 2**-53, 1)
def test_theorem_4_holds_at_the_ratios_and_not_far_inside(p_a: float, dimension: int) -> None:
    smallest = float(smallest_ratio(p_a, dimension))
    assert condition(smallest, p_a, dimension, above=False) <= 0
    assert condition(smallest * (1 + 1e-12), p_a, dimension, above=False) > 0
    largest = float(largest_ratio(p_a, dimension))
    if dimension == 1:
        assert largest == np.inf
        return
    assert condition(largest, p_a, dimension, above=True) <= 0
    assert condition(largest * (1 - 1e-12), p_a, dimension, above=True) > 0


@settings(max_examples=200)
@given(probabilities, dimensions)
def test_the_weaker_statement_rules_out_less(p_a: float, dimension: int) -> None:
    assert 0 <= simple_smallest_ratio(p_a, dimension) <= smallest_ratio(p_a, dimension)
    assert smallest_ratio(p_a, dimension) < practical_smallest_ratio(p_a, dimension) <= 1
    assert 1 <= practical_largest_ratio(p_a, dimension) < largest_ratio(p_a, dimension)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.5, 0.99999), st.one_of(st.integers(1, 50), st.integers(1, 200_000)))
@example(0.999, 200_000)
@example(0.5, 2)
def test_at_the_practical_ratios_the_opponent_has_one_half(p_a: float, dimension: int) -> None:
    """The central χ² law in 40 digits: scaled by the ratio, the ball of probability 1-p_A reaches the median."""
    with mpmath.workdps(40):
        half = mpmath.mpf(dimension) / 2
        median = 2 * _quantile(half, mpmath.mpf(1) / 2)
        below = mpmath.mpf(float(practical_smallest_ratio(p_a, dimension))) ** 2 * median / 2
        above = mpmath.mpf(float(practical_largest_ratio(p_a, dimension))) ** 2 * median / 2
        # The probability below the smallest ratio, and above the largest, is at most 1 - p_A, by a small margin.
        assert _lower(half, below) <= 1 - mpmath.mpf(p_a)
        assert _lower(half, below * (1 + mpmath.mpf(10) ** -11)) > 1 - mpmath.mpf(p_a)
        assert _lower(half, above) >= mpmath.mpf(p_a)
        assert _lower(half, above * (1 - mpmath.mpf(10) ** -11)) < mpmath.mpf(p_a)


def _lower(half: mpmath.mpf, x: mpmath.mpf) -> mpmath.mpf:
    """P(half, x) by its series, whose terms are all positive."""
    term = total = 1 / half
    k = half
    while term > total * mpmath.mpf(10) ** -32:
        k += 1
        term *= x / k
        total += term
    return total * mpmath.exp(half * mpmath.log(x) - x - mpmath.loggamma(half))


def _quantile(half: mpmath.mpf, p: mpmath.mpf) -> mpmath.mpf:
    from scipy import special

    x, step = mpmath.mpf(float(special.gammaincinv(float(half), float(p)))), mpmath.mpf(1)
    while abs(step) > x * mpmath.mpf(10) ** -20:
        density = mpmath.exp((half - 1) * mpmath.log(x) - x - mpmath.loggamma(half))
        step = (_lower(half, x) - p) / density
        x -= step
    return x


def test_they_all_come_near_to_one_as_the_dimension_grows() -> None:
    size = np.array([10, 100, 1000, 10_000, 100_000])
    for function in (smallest_ratio, largest_ratio, practical_smallest_ratio, practical_largest_ratio):
        gap = np.abs(function(0.99, size) - 1)
        assert np.all(np.diff(gap) < 0)
        assert gap[-1] < 0.01
    # The theorem is tight: its distance from the true ratio is small compared with the gap.
    assert practical_smallest_ratio(0.999, 3072) - smallest_ratio(0.999, 3072) < 0.2 * (1 - smallest_ratio(0.999, 3072))


@pytest.mark.parametrize(
    ("p_a", "dimension"), [(0.4, 10), (1.0, 10), (np.nan, 10), (0.9, 0), (0.9, np.inf), (0.9, np.nan)]
)
def test_nonsense_is_refused(p_a: float, dimension: float) -> None:
    functions = (
        smallest_ratio,
        largest_ratio,
        simple_smallest_ratio,
        practical_smallest_ratio,
        practical_largest_ratio,
    )
    for function in functions:
        with pytest.raises(InputError, match="must"):
            function(p_a, dimension)
