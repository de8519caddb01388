"""Uniform noise, ℓ1: exact rational values, a classifier for which the radius is tight, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.certificates import (
    CERTIFICATES,
    get_portfolio,
    radius_of_family,
    uniform_l1_radius,
    uniform_l1_two_class_radius,
)
from smoothcert.errors import InputError
from smoothcert.records import Noise, Norm, Quantity, SemiElastic, Smoothing

_probabilities = st.floats(min_value=1e-12, max_value=1.0, exclude_max=True)
_widths = st.floats(min_value=1e-6, max_value=1e6)


@given(p_a=_probabilities, width=_widths)
def test_the_radius_is_the_formula_rounded_down(p_a: float, width: float) -> None:
    radius = float(uniform_l1_radius(p_a, sigma=width))
    exact = Fraction(width) * (2 * Fraction(p_a) - 1)
    assert Fraction(radius) <= max(exact, 0)
    assert Fraction(radius) >= exact * (1 - Fraction(1, 10**14))


@given(p_a=_probabilities, p_b=_probabilities, width=_widths)
def test_two_classes_give_the_formula_rounded_down(p_a: float, p_b: float, width: float) -> None:
    radius = float(uniform_l1_two_class_radius(p_a, p_b, sigma=width))
    other = min(Fraction(p_b), 1 - Fraction(p_a))
    exact = Fraction(width) * (Fraction(p_a) - other)
    assert Fraction(radius) <= max(exact, 0)
    # The difference of two probabilities may be off by one unit in its last place, and is then moved down by another.
    assert Fraction(radius) >= exact * (1 - Fraction(1, 10**14)) - Fraction(width) * Fraction(1, 10**15)


@pytest.mark.parametrize("p_a", [0.5, 0.3, 0.0, 1.0, -1.0, np.nan, np.inf])
def test_nothing_is_certified_where_nothing_is_proved(p_a: float) -> None:
    assert uniform_l1_radius(p_a, sigma=0.5) == 0.0
    assert uniform_l1_two_class_radius(p_a, 0.6, sigma=0.5) == 0.0


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan, np.inf])
def test_a_width_that_is_none_certifies_nothing(width: float) -> None:
    assert uniform_l1_radius(0.9, sigma=width) == 0.0


def _half_space_probability(distance: float, *, width: float) -> float:
    """P(the noisy point stays on its side of a wall across one axis) when the wall is this far away."""
    return min(max((distance + width) / (2.0 * width), 0.0), 1.0)


@given(share=st.floats(min_value=0.01, max_value=0.99), width=st.floats(min_value=0.01, max_value=10.0))
def test_a_wall_across_an_axis_is_reached_exactly_at_the_radius(share: float, width: float) -> None:
    """For f(x) = 1[x_1 > 0] the smoothed classifier changes its mind at the wall itself: the theorem is tight."""
    distance = share * width
    radius = float(uniform_l1_radius(_half_space_probability(distance, width=width), sigma=width))
    assert radius == pytest.approx(distance, rel=1e-9)
    assert _half_space_probability(distance - radius * (1 - 1e-9), width=width) > 0.5
    assert _half_space_probability(distance - radius * (1 + 1e-6), width=width) < 0.5


def test_moving_the_cube_changes_no_probability_by_more_than_the_theorem_says() -> None:
    """The part of a cube outside of the moved one, in closed form, against ‖δ‖₁/2λ, over random moves in 1 to 40
    dimensions.
    """
    generator = np.random.default_rng(3)
    for _ in range(2000):
        move = generator.exponential(size=generator.integers(1, 41)) * 10.0 ** generator.uniform(-4, 0)
        width = 0.5
        left = 1.0 - np.prod(np.clip(1.0 - np.abs(move) / (2.0 * width), 0.0, 1.0))
        assert left <= np.abs(move).sum() / (2.0 * width) + 1e-12


def test_the_radius_of_the_family_can_be_asked_for_by_name() -> None:
    quantities = {Quantity.TOP_LOWER: 0.9}
    assert radius_of_family("uniform-l1", quantities, sigma=0.5) == pytest.approx(0.4, rel=1e-12)
    with_other = {Quantity.TOP_LOWER: 0.6, Quantity.RUNNER_UP_UPPER: 0.1}
    assert radius_of_family("uniform-l1", with_other, sigma=0.5) == pytest.approx(0.25, rel=1e-12)


def test_every_form_is_about_uniform_noise_and_the_l1_norm() -> None:
    forms = [one for one in CERTIFICATES.values() if one.family == "uniform-l1"]
    assert len(forms) == 6
    assert {(one.norm, one.noise) for one in forms} == {(Norm.L1, Noise.UNIFORM)}
    assert not any(one.noise is Noise.UNIFORM for one in CERTIFICATES.values() if one.family != "uniform-l1")


def test_a_theorem_about_other_noise_is_refused_and_the_fitting_one_named() -> None:
    with pytest.raises(InputError, match="uniform-l1"):
        get_portfolio("gaussian").check_suits(Smoothing(noise=Noise.UNIFORM))
    with pytest.raises(InputError, match="gaussian"):
        get_portfolio("uniform-l1").check_suits(Smoothing())
    get_portfolio("uniform-l1").check_suits(Smoothing(noise=Noise.UNIFORM))


def test_a_width_that_varies_is_refused() -> None:
    varying = Smoothing(envelope=SemiElastic(rate=0.1), dimension=2, noise=Noise.UNIFORM)
    with pytest.raises(InputError, match="constant"):
        get_portfolio("uniform-l1").check_suits(varying)
