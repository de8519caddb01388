"""The distance of noise from finite tables from its law: the formula, exactly, and never rounded down."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.numerics.grid import law_error


def exact(levels: int, sigma: float, dimension: int) -> Fraction:
    reach = Fraction(92, 10) * Fraction(sigma) * (levels - 1)
    whole = -((-reach.numerator) // reach.denominator)
    return Fraction(dimension * (2 * whole + 3), 2**64)


@given(st.integers(2, 2**23), st.floats(1e-6, 1e6), st.integers(1, 10**7))
def test_the_formula_rounded_up_to_the_next_float(levels: int, sigma: float, dimension: int) -> None:
    found, true = law_error(levels=levels, sigma=sigma, dimension=dimension), exact(levels, sigma, dimension)
    if true >= 1:
        assert found == 1.0
        return
    assert Fraction(found) >= true
    assert Fraction(float(np.nextafter(found, 0.0))) < true


def test_known_values() -> None:
    # 9.2 · 255 = 2346 exactly: no rounding may make it 2347.
    assert law_error(levels=256, sigma=1.0, dimension=1) == 4695 * 2.0**-64
    assert law_error(levels=256, sigma=0.25, dimension=784) == 784 * (2 * 587 + 3) * 2.0**-64


def test_what_a_hundred_thousand_samples_of_an_image_cost() -> None:
    """A CIFAR-10 image at σ = 1, n = 10^5: below one in ten million, a small part of α = .001."""
    assert 1e5 * law_error(levels=256, sigma=1.0, dimension=3072) < 1e-7


def test_arrays_of_sigma() -> None:
    sigmas = np.array([[0.25, 0.5], [0.25, 1.0]])
    found = law_error(levels=256, sigma=sigmas, dimension=784)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [
        [law_error(levels=256, sigma=float(s), dimension=784) for s in row] for row in sigmas.tolist()
    ]
    assert isinstance(law_error(levels=256, sigma=0.5, dimension=784), float)
    assert law_error(levels=256, sigma=np.array([]), dimension=784).shape == (0,)


@pytest.mark.parametrize(
    ("levels", "sigma", "dimension"),
    [(1, 0.5, 4), (256, 0.0, 4), (256, -1.0, 4), (256, float("nan"), 4), (256, float("inf"), 4), (256, 0.5, 0)],
)
def test_what_has_no_law_is_refused(levels: int, sigma: float, dimension: int) -> None:
    with pytest.raises(InputError, match="noise on a grid needs"):
        law_error(levels=levels, sigma=sigma, dimension=dimension)
