"""Decimal text in a stated direction."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.numerics.rounding import format_down, format_down_as_read, format_nearest, format_up, round_step

finite = st.floats(allow_nan=False, allow_infinity=False)
decimals = st.integers(0, 20)


@pytest.mark.parametrize(
    ("value", "down", "nearest", "up"),
    [
        (1.2367, "1.236", "1.237", "1.237"),
        (1.2361, "1.236", "1.236", "1.237"),
        (0.5, "0.500", "0.500", "0.500"),
        (0.0, "0.000", "0.000", "0.000"),
        (-0.0, "0.000", "0.000", "0.000"),
        (-1e-9, "-0.001", "0.000", "0.000"),
        (-1.2367, "-1.237", "-1.237", "-1.236"),
        (1e-300, "0.000", "0.000", "0.001"),
        # The float written 0.58 is a little less than 0.58.
        (0.58, "0.579", "0.580", "0.580"),
        # Exact ties go to the even neighbour.
        (0.0625, "0.062", "0.062", "0.063"),
        (0.1875, "0.187", "0.188", "0.188"),
    ],
)
def test_three_directions(value: float, down: str, nearest: str, up: str) -> None:
    assert format_down(value, decimals=3) == down
    assert format_nearest(value, decimals=3) == nearest
    assert format_up(value, decimals=3) == up


def test_no_decimals_has_no_point() -> None:
    assert format_down(2.9, decimals=0) == "2"
    assert format_down(-2.1, decimals=0) == "-3"


@given(value=finite, places=decimals)
def test_brackets_the_exact_value_within_one_unit(value: float, places: int) -> None:
    down, up = (Fraction(form(value, decimals=places)) for form in (format_down, format_up))
    assert down <= Fraction(value) <= up
    assert up - down in (0, Fraction(1, 10**places))


@given(value=finite, places=decimals)
def test_nearest_is_within_half_a_unit(value: float, places: int) -> None:
    nearest = Fraction(format_nearest(value, decimals=places))
    assert abs(nearest - Fraction(value)) <= Fraction(1, 2 * 10**places)


@given(value=finite, places=decimals)
def test_as_read_is_the_largest_text_that_does_not_exceed_when_read(value: float, places: int) -> None:
    text = format_down_as_read(value, decimals=places)
    assert float(text) <= value
    assert float(Fraction(text) + Fraction(1, 10**places)) > value or abs(value) > 2**52 / 10**places


@given(value=finite, places=decimals)
def test_writing_again_changes_nothing(value: float, places: int) -> None:
    once = format_down_as_read(value, decimals=places)
    assert format_down_as_read(float(once), decimals=places) == once or abs(value) > 2**50 / 10**places


def test_a_decimal_that_names_the_float_is_kept() -> None:
    assert format_down(0.58, decimals=3) == "0.579"
    assert format_down_as_read(0.58, decimals=3) == "0.580"
    assert format_down_as_read(1.2367, decimals=3) == "1.236"
    assert format_down_as_read(math.nextafter(0.58, 0), decimals=3) == "0.579"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_only_finite_numbers_are_printed(value: float) -> None:
    with pytest.raises(InputError, match="only finite"):
        format_down(value, decimals=3)


@pytest.mark.parametrize("places", [-1, 401])
def test_number_of_decimals_is_checked(places: int) -> None:
    with pytest.raises(InputError, match="decimals"):
        format_up(1.0, decimals=places)


@given(st.floats(1e-200, 1e200), st.sampled_from([(1.0, 2.0, 5.0), (1.0, 2.5, 5.0)]))
def test_a_round_step_is_the_next_one(least: float, factors: tuple[float, ...]) -> None:
    step = round_step(least, factors=factors)
    assert least <= step <= 2.5 * least * (1 + 1e-9)
    digits = float(f"{step:.6e}".partition("e")[0])
    assert min(abs(digits - factor) for factor in (*factors, 10.0)) < 1e-5
