"""Points that float32 has carried out of their ball are brought back, and distances are never understated."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from smoothcert.attacks.attack_search import distances, pull_inside
from smoothcert.records import Norm

_VALUES = st.floats(0.0, 1.0, width=32)


def _is_within(points: np.ndarray, inputs: np.ndarray, limit: float, norm: Norm) -> bool:
    """In exact arithmetic."""
    deltas = [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(points.ravel(), inputs.ravel(), strict=True)]
    if norm is Norm.L1:
        return sum(map(abs, deltas)) <= Fraction(limit)
    return sum(delta * delta for delta in deltas) <= Fraction(limit) ** 2


@pytest.mark.parametrize("norm", list(Norm))
@given(
    inputs=arrays(np.float32, (1, 5), elements=_VALUES),
    points=arrays(np.float32, (1, 5), elements=_VALUES),
    limit=st.floats(0.0, 3.0),
)
def test_points_end_inside_exactly_and_in_bounds(
    norm: Norm, inputs: np.ndarray, points: np.ndarray, limit: float
) -> None:
    pulled = pull_inside(points, inputs, np.array([limit]), norm, (0.0, 1.0))
    assert _is_within(pulled, inputs, limit, norm)
    assert (pulled >= 0).all()
    assert (pulled <= 1).all()
    if _is_within(points, inputs, limit * (1 - 1e-9), norm):
        assert np.array_equal(pulled, points)


@pytest.mark.parametrize("norm", list(Norm))
def test_points_outside_end_close_to_the_limit(norm: Norm) -> None:
    inputs = np.full((2, 50), 0.5, dtype=np.float32)
    points = inputs + np.float32(0.3)
    limits = np.array([0.7, math.inf])
    pulled = pull_inside(points, inputs, limits, norm, None)
    assert distances(pulled, inputs, norm)[0] == pytest.approx(0.7, rel=1e-6)
    assert np.array_equal(pulled[1], points[1])
