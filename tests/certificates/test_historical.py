"""The older radii: quoted values, order among themselves, a second derivation."""

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smoothcert.certificates import gaussian_two_class_radius, lecuyer_radius, li_radius, radius_of_family
from smoothcert.errors import InputError
from smoothcert.records import Quantity


@pytest.mark.parametrize(
    ("p_a", "p_b", "li", "lecuyer"),
    [
        (0.8, 0.2, 0.67422, 0.23516),
        (0.9, 0.1, 1.03193, 0.39027),
        (0.99, 0.01, 1.90801, 0.55487),
        (0.999, 0.0001, 3.04161, 0.57015),
    ],
)
def test_quoted_values(p_a: float, p_b: float, li: float, lecuyer: float) -> None:
    assert li_radius(p_a, p_b, sigma=1.0) == pytest.approx(li, abs=5e-6)
    assert lecuyer_radius(p_a, p_b, sigma=1.0) == pytest.approx(lecuyer, abs=5e-6)


def li_by_definition(p_a: float, p_b: float, order: float) -> mpmath.mpf:
    """The formula as printed, in 60 digits, where nothing cancels."""
    with mpmath.workdps(60):
        a, b, k = mpmath.mpf(p_a), mpmath.mpf(p_b), mpmath.mpf(order)
        mean = ((a ** (1 - k) + b ** (1 - k)) / 2) ** (1 / (1 - k))
        return mpmath.sqrt(-2 / k * mpmath.log(1 - a - b + 2 * mean))


@settings(max_examples=30, deadline=None)
@given(st.floats(0.505, 0.99999), st.floats(0.001, 1.0))
def test_li_is_the_largest_over_orders_and_not_more(p_a: float, share: float) -> None:
    p_b = share * (1 - p_a)
    radius = float(li_radius(p_a, p_b, sigma=1.0))
    scan = max(li_by_definition(p_a, p_b, float(k)) for k in np.geomspace(1.1e-3, 900, 60))
    assert radius >= scan * (1 - 1e-9)
    fine = max(li_by_definition(p_a, p_b, float(k)) for k in np.geomspace(0.05, 50, 400))
    assert radius <= fine * (1 + 1e-3)


@settings(max_examples=200)
@given(st.floats(0.01, 0.999999), st.one_of(st.floats(0.001, 1.0), st.floats(1 - 1e-6, 1.0)))
@example(0.50000001, 1.0)
@example(0.5 + 1e-12, 1.0)
@example(0.3, 0.99999999 * 0.3 / 0.7)
def test_the_tight_radius_is_the_largest(p_a: float, share: float) -> None:
    p_b = share * min(p_a, 1 - p_a)
    tight = float(gaussian_two_class_radius(p_a, p_b, sigma=1.0))
    assert float(lecuyer_radius(p_a, p_b, sigma=1.0)) <= tight
    assert float(li_radius(p_a, p_b, sigma=1.0)) <= tight


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7, 1e-9])
def test_li_near_ties_agrees_with_many_digits(gap: float) -> None:
    """Where the formula as printed cancels in float64."""
    p_a, p_b = 0.5 + gap, 0.5 - gap
    exact = max(li_by_definition(p_a, p_b, float(k)) for k in np.geomspace(0.011, 11.3, 100))
    assert float(li_radius(p_a, p_b, sigma=1.0)) == pytest.approx(float(exact), rel=1e-4)
    assert float(li_radius(p_a, p_b, sigma=1.0)) <= float(exact) * (1 + 1e-3)


def test_family_chooses_the_form_by_what_is_given() -> None:
    p_a, p_b = Quantity.TOP_LOWER, Quantity.RUNNER_UP_UPPER
    assert radius_of_family("gaussian", {p_a: 0.99}, sigma=0.25) == pytest.approx(0.25 * 2.326348, abs=1e-6)
    assert radius_of_family("gaussian", {p_a: 0.6, p_b: 0.1}, sigma=1.0) > radius_of_family(
        "gaussian", {p_a: 0.6}, sigma=1.0
    )
    assert radius_of_family("li", {p_a: 0.8}, sigma=1.0) == pytest.approx(0.67422, abs=5e-6)
    with pytest.raises(InputError, match="needs --p-a"):
        radius_of_family("gaussian", {p_b: 0.1}, sigma=1.0)
    with pytest.raises(InputError, match="did you mean gaussian"):
        radius_of_family("gausian", {p_a: 0.9}, sigma=1.0)
    with pytest.raises(InputError, match="between 0 and 1"):
        radius_of_family("gaussian", {p_a: 1.0}, sigma=1.0)
