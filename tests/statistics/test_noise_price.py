"""What noise on a grid takes off α."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.numerics.grid import law_error
from smoothcert.records import Smoothing
from smoothcert.statistics import alpha_after_noise, noise_price

MNIST = Smoothing(dimension=784, grid=256)


def test_float_noise_costs_nothing_and_promises_nothing():
    assert noise_price(Smoothing(dimension=784), draws=10**5, sigma=0.5) == 0.0


@given(draws=st.integers(1, 10**7), sigma=st.floats(0.01, 2.0))
def test_it_covers_every_draw_and_is_a_power_of_two(draws, sigma):
    price = noise_price(MNIST, draws=draws, sigma=sigma)
    exact = draws * Fraction(law_error(levels=256, sigma=sigma, dimension=784))
    assert exact <= Fraction(price) <= Fraction(2.01) * exact
    assert math.frexp(price)[0] == 0.5


def test_mnist_pays_next_to_nothing():
    assert noise_price(MNIST, draws=100_000, sigma=0.5) < 2e-8


@given(alpha=st.floats(1e-6, 0.5), exponent=st.integers(-60, -22))
def test_what_is_left_and_the_price_never_exceed_alpha(alpha, exponent):
    price = 2.0**exponent
    left = alpha_after_noise(alpha, price)
    assert Fraction(left) + Fraction(price) <= Fraction(alpha)
    assert left >= (alpha - price) * (1 - 1e-15)


def test_an_alpha_that_the_noise_would_eat_is_refused():
    with pytest.raises(InputError, match="--noise float"):
        alpha_after_noise(1e-9, 1e-9)


def test_the_dimension_must_be_known():
    with pytest.raises(InputError, match="dimension"):
        noise_price(Smoothing(grid=256), draws=1, sigma=0.5)
