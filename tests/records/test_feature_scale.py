"""The scale of features: division and multiplication, standard deviations, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.records.feature_scale import FeatureScale, measure_deviations
from smoothcert_verify.feature_scales import divide_by_scale

NUMBERS = st.floats(2.0**-100, 2.0**100)
VALUES = st.floats(-(2.0**20), 2.0**20, width=32)
PAIRS = st.lists(st.tuples(NUMBERS, VALUES), min_size=1, max_size=6)


def split(pairs: list[tuple[float, float]]) -> tuple[FeatureScale, np.ndarray]:
    numbers, values = zip(*pairs, strict=True)
    return FeatureScale(numbers), np.array([values], dtype=np.float32)


@given(PAIRS)
@settings(max_examples=60)
def test_a_quotient_is_the_exact_one_rounded(pairs: list[tuple[float, float]]) -> None:
    scale, x = split(pairs)
    scaled = scale.divide(x)
    assert scaled.dtype == np.float32
    for value, number, quotient in zip(x[0].tolist(), scale.numbers, scaled[0].tolist(), strict=True):
        exact = Fraction(value) / Fraction(number)
        # Rounded twice, to float64 and to float32; the smallest numbers of float32 have fewer digits.
        assert abs(Fraction(quotient) - exact) <= abs(exact) * Fraction(1, 2**23) + Fraction(1, 2**149)


@given(PAIRS)
@settings(max_examples=60)
def test_the_checker_divides_to_the_same_bits(pairs: list[tuple[float, float]]) -> None:
    scale, x = split(pairs)
    assert divide_by_scale(x[0], scale.numbers).tobytes() == scale.divide(x)[0].tobytes()


@given(PAIRS)
@settings(max_examples=60)
def test_multiplying_goes_back_up_to_rounding_and_row_by_row(pairs: list[tuple[float, float]]) -> None:
    scale, x = split(pairs)
    scaled = scale.divide(x)
    back = scale.multiply(scaled)
    assert back.dtype == np.float32
    ordinary = np.abs(scaled) >= 2.0**-126
    assert np.allclose(back[ordinary], x[ordinary], rtol=4e-7, atol=2.0**-126)
    many = scale.multiply(np.repeat(scaled, 3, axis=0))
    assert all(row.tobytes() == scale.multiply(scaled[0]).tobytes() for row in many)


def test_powers_of_two_lose_nothing() -> None:
    scale, x = FeatureScale((0.5, 4.0, 1.0)), np.array([[0.1, -3.0, 7.5]], dtype=np.float32)
    assert scale.divide(x).tolist() == [[float(x[0, 0]) * 2, -0.75, 7.5]]
    assert np.array_equal(scale.multiply(scale.divide(x)), x)


@pytest.mark.parametrize("number", [0.0, -1.0, math.nan, math.inf, 1e-40, 1e39])
def test_a_number_that_cannot_be_a_scale(number: float) -> None:
    with pytest.raises(InputError, match=r"the scale of feature 1 is .*a positive finite number is needed"):
        FeatureScale((1.0, number))


def test_counts_and_shapes() -> None:
    scale = FeatureScale((1.0, 2.0))
    scale.check_fits((2,))
    with pytest.raises(InputError, match="inputs have 3 features, and 2 numbers were given for the scale"):
        scale.check_fits((3,))
    with pytest.raises(InputError, match=r"for tables, and inputs here have the shape \(1, 28, 28\)"):
        scale.check_fits((1, 28, 28))
    with pytest.raises(InputError, match="without numbers"):
        FeatureScale(())


def test_quotients_that_overflow_are_refused() -> None:
    with pytest.raises(InputError, match="values of feature 1 divided by its scale 1e-30 are too large for float32"):
        FeatureScale((1.0, 1e-30)).divide(np.array([[1.0, 1e10]], dtype=np.float32))


def test_standard_deviations_are_those_of_the_population() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * np.float32([0.1, 2.0, 30.0])
    assert measure_deviations(x).numbers == pytest.approx(np.std(x.astype(np.float64), axis=0), rel=1e-14)
    assert measure_deviations(x[::-1]).numbers == measure_deviations(x).numbers, "the order of inputs does not matter"
    assert measure_deviations(np.float32([[1.0], [3.0]])).numbers == (1.0,)


def test_a_constant_feature_is_named() -> None:
    x = np.array([[1.0, 2.0], [1.0, 3.0]], dtype=np.float32)
    with pytest.raises(InputError, match=r"of feature 'age' is 0, because it is constant.*--sigma-scale 0.1,2,30"):
        measure_deviations(x, ("age", "height"))
    with pytest.raises(InputError, match="of feature 0 is 0"):
        measure_deviations(x)
    with pytest.raises(InputError, match="for tables"):
        measure_deviations(np.zeros((2, 1, 3, 3), dtype=np.float32))
