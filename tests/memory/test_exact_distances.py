"""Distances: the bounds hold, and the largest radii that fit are the largest."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from exact_regions import exact_distance, whole
from smoothcert.memory.distances import ExactDistance, measure, relative_error
from smoothcert.memory.log import Centre
from smoothcert.records import Norm

points = npst.arrays(np.float32, 7, elements=st.floats(width=32, allow_nan=False, allow_infinity=False))
norms = st.sampled_from(list(Norm))


@given(x=points, y=points, norm=norms)
def test_exact_distance_is_that_of_integers(x: Centre, y: Centre, norm: Norm) -> None:
    with mpmath.workprec(2000):
        distance = exact_distance(whole(x), whole(y), norm)
        power = ExactDistance.between(x, y, norm=norm).power
        assert mpmath.mpf(power.numerator) / power.denominator == (distance if norm is Norm.L1 else distance**2) or (
            abs(mpmath.mpf(power.numerator) / power.denominator / distance**2 - 1) < mpmath.mpf(2) ** -1900
        )


@pytest.mark.parametrize("dimension", [1, 2, 100, 3072])
@pytest.mark.parametrize("scale", [1.0, 1e-40, 1e-20, 1e37])
@pytest.mark.parametrize("norm", list(Norm))
def test_measured_distances_enclose_the_true_one(norm: Norm, scale: float, dimension: int) -> None:
    generator = np.random.default_rng(dimension)
    x = (generator.normal(size=dimension) * scale).astype(np.float32)
    others = (x + generator.normal(size=(5, dimension)) * scale * 10.0 ** generator.integers(-7, 1)).astype(np.float32)
    error = relative_error(dimension)
    for measured, other in zip(measure(x, others, norm=norm), others, strict=True):
        exact = ExactDistance.between(x, other, norm=norm)
        assert not exact.exceeds(Fraction(measured * (1.0 + error)))
        assert measured == 0 or exact.exceeds(Fraction(measured * (1.0 - error)))


radii = st.one_of(st.floats(0, 1.7e308), st.sampled_from([0.0, 5e-324, 1e-310, 1.0, 5.0, 1.7976931348623157e308]))


@given(x=points, y=points, radius=radii, norm=norms, near=st.booleans())
def test_largest_radii_fit_and_the_next_float_does_not(
    x: Centre, y: Centre, radius: float, norm: Norm, near: bool
) -> None:
    exact = ExactDistance.between(x, y, norm=norm)
    if near:
        # A radius next to the distance, where subtraction cancels.
        radius = float(measure(x, y[None], norm=norm)[0])
    apart, inside = exact.largest_apart(radius), exact.largest_inside(radius)
    assert (apart == -math.inf) != (inside == -math.inf)
    if apart >= 0:
        assert exact.exceeds(Fraction(apart) + Fraction(radius))
        assert not exact.exceeds(Fraction(math.nextafter(apart, math.inf)) + Fraction(radius))
    else:
        assert not exact.exceeds(Fraction(radius) - Fraction(inside))
        above = math.nextafter(inside, math.inf)
        assert above == math.inf or exact.exceeds(Fraction(radius) - Fraction(above))


def test_a_triangle_that_comes_out_even() -> None:
    exact = ExactDistance.between(np.float32([0, 0]), np.float32([3, 4]), norm=Norm.L2)
    assert exact.largest_inside(7.0) == 2.0
    assert exact.largest_inside(5.0) == 0.0
    assert exact.largest_apart(3.0) == math.nextafter(2.0, 0.0)
    assert exact.largest_apart(5.0) == -math.inf
