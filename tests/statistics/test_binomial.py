"""Clopper–Pearson and the sign test: closed forms, mpmath, properties."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.statistics import clopper_pearson_lower, clopper_pearson_upper, sign_test_p_value

mpmath.mp.dps = 50


def exact_tail(k: int, n: int, p: float) -> mpmath.mpf:
    """P(Bin(n, p) ≥ k) by summation, in exact rational-free multiprecision."""
    q = mpmath.mpf(p)
    return mpmath.fsum(mpmath.binomial(n, i) * q**i * (1 - q) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize("n", [1, 10, 1000, 100_000, 10**8])
def test_unanimous_votes_have_a_closed_form(n: int) -> None:
    bound = float(clopper_pearson_lower(n, n, alpha=0.001))
    assert bound == pytest.approx(0.001 ** (1 / n), rel=1e-11)
    assert mpmath.mpf(bound) ** n <= mpmath.mpf(0.001)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.data(), st.sampled_from([1e-6, 0.001, 0.05, 0.3]))
def test_lower_bound_is_safe_and_tight(n: int, data: st.DataObject, alpha: float) -> None:
    k = data.draw(st.integers(1, n))
    bound = float(clopper_pearson_lower(k, n, alpha=alpha))
    assert exact_tail(k, n, bound) <= mpmath.mpf(alpha)
    assert exact_tail(k, n, bound * (1 + 1e-9)) > mpmath.mpf(alpha) or bound * (1 + 1e-9) >= 1


def test_no_votes_prove_nothing() -> None:
    assert clopper_pearson_lower(0, 10, alpha=0.001) == 0.0
    assert clopper_pearson_upper(10, 10, alpha=0.001) == 1.0


def test_check_values_of_the_paper_trail() -> None:
    """External values: the pair quoted for n=100000 at alpha=.001."""
    bounds = clopper_pearson_lower([100_000, 95_126], 100_000, alpha=0.001)
    assert bounds[0] == pytest.approx(0.99993092483, abs=1e-10)
    assert bounds[1] == pytest.approx(0.94912042, abs=1e-8)


@given(st.integers(1, 2000), st.data())
def test_monotone_in_votes(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n - 1))
    lower = clopper_pearson_lower([k, k + 1], n, alpha=0.01)
    upper = clopper_pearson_upper([k, k + 1], n, alpha=0.01)
    assert lower[0] <= lower[1]
    assert upper[0] <= upper[1]
    assert lower[0] <= k / n <= upper[0]


def test_huge_counts_stay_safe() -> None:
    """At 10^8 trials the forward function, evaluated by mpmath, still confirms the bound."""
    n, k = 10**8, 99_999_990
    bound = float(clopper_pearson_lower(k, n, alpha=0.001))
    tail = mpmath.betainc(k, n - k + 1, 0, mpmath.mpf(bound), regularized=True)
    assert tail <= mpmath.mpf(0.001)
    assert bound < k / n


@pytest.mark.parametrize(("a", "b"), [(10, 0), (60, 40), (40, 60), (7, 7), (1000, 900), (0, 0)])
def test_sign_test_against_the_sum(a: int, b: int) -> None:
    n, most = a + b, max(a, b)
    exact = 1.0 if a == b else min(1.0, 2 * sum(math.comb(n, i) for i in range(most, n + 1)) / 2**n)
    assert float(sign_test_p_value(a, b)) == pytest.approx(exact, rel=1e-10)
    assert float(sign_test_p_value(a, b)) >= exact


@pytest.mark.parametrize("alpha", [0.0, 0.5, -1.0, math.nan, 1.0])
def test_alpha_out_of_range(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha"):
        clopper_pearson_lower(5, 10, alpha=alpha)


@pytest.mark.parametrize(("k", "n"), [(11, 10), (-1, 10), (0, 0)])
def test_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(InputError, match="counts"):
        clopper_pearson_lower(k, n, alpha=0.001)


def test_vectorised() -> None:
    assert clopper_pearson_lower(np.arange(1, 7).reshape(2, 3), 10, alpha=0.1).shape == (2, 3)
