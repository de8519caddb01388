"""The safe quantiles against mpmath's, to the side they promise."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.numerics.normal import quantile_down, quantile_up

mpmath.mp.dps = 60


def exact_cdf(z: float) -> mpmath.mpf:
    return mpmath.erfc(-mpmath.mpf(z) / mpmath.sqrt(2)) / 2


PROBABILITIES = [
    1e-300,
    1e-100,
    1e-16,
    1e-9,
    0.001,
    0.3,
    0.5 - 1e-12,
    0.5,
    0.5 + 1e-12,
    0.75,
    0.99993,
    1 - 1e-9,
    1 - 2**-53,
]


@pytest.mark.parametrize("p", PROBABILITIES)
def test_the_true_quantile_lies_between(p: float) -> None:
    down, up = float(quantile_down(p)), float(quantile_up(p))
    assert exact_cdf(down) <= mpmath.mpf(p) <= exact_cdf(up)
    assert up - down <= 1e-13 * (1 + abs(down))


@given(st.floats(min_value=1e-300, max_value=1 - 2**-53))
def test_sides_hold_everywhere(p: float) -> None:
    down, up = float(quantile_down(p)), float(quantile_up(p))
    assert exact_cdf(down) <= mpmath.mpf(p) <= exact_cdf(up)


def test_ends_and_nonsense() -> None:
    assert quantile_down(0.0) == -np.inf
    assert quantile_up(0.0) == -np.inf
    assert quantile_down(1.0) == np.inf
    assert quantile_up(1.0) == np.inf
    assert np.isnan(quantile_down([np.nan, -0.1, 1.1])).all()


def test_shapes_are_kept() -> None:
    assert quantile_down(np.full((2, 3), 0.9)).shape == (2, 3)
