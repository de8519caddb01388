"""Ball arithmetic of the checker: against exact rational numbers and closed forms."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flint")

from flint import arb, ctx

from smoothcert_verify.arithmetic import (
    ball,
    binomial_tail,
    exactly,
    is_proved,
    lower_limit,
    lower_tail,
    point_of_upper_tail,
    share_of_beta_above,
    tail_at_most,
    upper_limit,
    upper_tail,
)


def exact_tail(k: int, n: int, p: Fraction) -> Fraction:
    """P(Bin(n, p) ≥ k), term by term."""
    return sum((math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k, n + 1)), Fraction(0))


shares = st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(999, 1000), max_denominator=1000)


@given(n=st.integers(1, 60), data=st.data(), p=shares)
def test_the_tail_encloses_the_exact_one(n: int, data: st.DataObject, p: Fraction) -> None:
    k = data.draw(st.integers(1, n))
    with ctx.workprec(128):
        tail, exact = binomial_tail(k, n, p), ball(exact_tail(k, n, p))
        assert tail.overlaps(exact)
        assert p * n >= k or tail.rad() <= exact / 10**30


@given(
    n=st.integers(1, 60),
    data=st.data(),
    alpha=st.sampled_from([Fraction(1, 1000), Fraction(2, 5), Fraction(1, 10**40)]),
)
@settings(deadline=None)
def test_the_lower_limit_is_proved_and_hardly_a_larger_one_is(n: int, data: st.DataObject, alpha: Fraction) -> None:
    k = data.draw(st.integers(1, n))
    p = lower_limit(k, n, alpha)
    assert 0 < p < Fraction(k, n) or (k == n and 0 < p < 1)
    assert exact_tail(k, n, p) <= alpha
    larger = p + min(p, 1 - p) / 10**15
    assert exact_tail(k, n, larger) > alpha
    assert not tail_at_most(k, n, larger, alpha)


def test_limits_at_the_ends() -> None:
    alpha = Fraction(1, 1000)
    assert lower_limit(0, 10, alpha) == 0
    assert upper_limit(10, 10, alpha) == 1
    assert float(lower_limit(100_000, 100_000, alpha)) == pytest.approx(0.001 ** (1 / 100_000), abs=1e-15)
    assert float(lower_limit(95_126, 100_000, alpha)) == pytest.approx(0.94912042, abs=5e-9)
    assert upper_limit(3, 50, alpha) == 1 - lower_limit(47, 50, alpha)


def test_a_comparison_is_decided_with_as_many_digits_as_it_takes() -> None:
    tiny = Fraction(1, 2**600)
    assert is_proved(lambda: (arb(2).sqrt(), arb(2).sqrt() + ball(tiny)))
    assert not is_proved(lambda: (arb(2).sqrt() + ball(tiny), arb(2).sqrt()))


def test_what_stays_undecided_is_not_proved() -> None:
    """√2·√2 ≤ 2 is true, and no number of digits shows it."""
    assert not is_proved(lambda: (arb(2).sqrt() * arb(2).sqrt(), arb(2)))
    assert not is_proved(lambda: (arb("nan"), arb(1)))


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_exact(value: float) -> None:
    with ctx.workprec(2200):
        assert exactly(ball(value)) == Fraction(value)


@pytest.mark.parametrize("tail", [0.5, 0.3, 0.9, 1e-5, 1 - 1e-12, 1e-200])
def test_quantiles(tail: float) -> None:
    z = point_of_upper_tail(ball(tail))
    assert upper_tail(z).overlaps(ball(tail))
    assert float(z.rad()) < 1e-12
    assert (lower_tail(z) + upper_tail(z)).contains(1)


@pytest.mark.parametrize("p", [Fraction(1, 10), Fraction(1, 2), Fraction(999, 1000)])
def test_the_arcsine_law(p: Fraction) -> None:
    closed = 2 / arb.pi() * ball(1 - p).sqrt().asin()
    assert share_of_beta_above(Fraction(1, 2), Fraction(1, 2), p).overlaps(closed)
