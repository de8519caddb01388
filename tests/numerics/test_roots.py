"""Roots from below: never past the root, close to it, whatever the neighbours in the array do."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smoothcert.numerics.roots import ValueAndSlope, decreasing_root_down, step_down_until
from smoothcert.records import FloatArray


def line(root: FloatArray, steepness: FloatArray | float = 1.0) -> ValueAndSlope:
    return lambda x: (steepness * (root - x), np.broadcast_to(-np.asarray(steepness), x.shape))


def arrays(*values: float) -> FloatArray:
    return np.array(values, dtype=np.float64)


def test_square_roots_exactly_from_below() -> None:
    """x² ≤ c is decided in exact arithmetic: the point returned is never beyond the true root."""
    squares = np.concatenate([np.arange(1, 400) / 7.0, np.geomspace(1e-6, 1e6, 200)])
    root = decreasing_root_down(
        lambda x: (squares - x * x, -2.0 * x), low=np.zeros_like(squares), high=1.0 + squares, margin=0.0
    )
    allowance = 1e-15 * squares  # one rounding of x·x and one of the difference
    assert all(Fraction(x) ** 2 <= Fraction(c) + Fraction(a) for x, c, a in zip(root, squares, allowance, strict=True))
    np.testing.assert_allclose(root, np.sqrt(squares), rtol=1e-13, atol=1e-14)


def test_the_margin_covers_the_error_of_an_evaluation() -> None:
    """A function known to ±1e-12, as rough as rounding errors are: where 1e-12 is seen it is not negative."""
    roots = np.linspace(0.1, 3.0, 500)

    def rough(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        return roots - x + 1e-12 * np.sin(1e15 * x), np.full_like(x, -1.0)

    found = decreasing_root_down(rough, low=np.zeros(500), high=np.full(500, 4.0), margin=1e-12)
    assert (found <= roots).all()
    assert (found >= roots - 1e-10).all()


@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e6), st.sampled_from([0.0, 1e-15, 1e-6]))
@example(0.0, 1.0, 0.0)
@example(-1e3, 1e-6, 1e-6)
def test_straight_lines(root: float, steepness: float, margin: float) -> None:
    low, high = arrays(root - 1.0), arrays(root + 7.0)
    (x,) = decreasing_root_down(line(arrays(root), steepness), low=low, high=high, margin=margin)
    assert root - 1.0 <= x <= root
    # The condition seen at x, computed as the function computes it.
    assert x == low[0] or steepness * (root - x) >= margin
    # Steps back double, so at most twice what the margin asks for is given away.
    assert x >= max(root - 1.0, root - 2.0 * margin / steepness - 1e-13 * (1.0 + abs(root)))


@given(st.floats(0.01, 8.0))
def test_flat_on_one_side_and_steep_on_the_other(root: float) -> None:
    """Newton's steps leave the bracket from either plateau of tanh; bisection takes over."""
    (x,) = decreasing_root_down(
        lambda x: (np.tanh(40.0 * (root - x)), -40.0 / np.cosh(np.clip(40.0 * (root - x), -300.0, 300.0)) ** 2),
        low=arrays(0.0),
        high=arrays(1000.0),
        margin=0.0,
    )
    assert x <= root
    assert x == pytest.approx(root, abs=1e-13 * (1.0 + root))


@pytest.mark.parametrize("power", [3, 5, 9])
def test_root_with_zero_slope(power: int) -> None:
    """Newton's method is slow at a multiple root; the result is on the safe side and not far."""
    (x,) = decreasing_root_down(
        lambda x: ((1.0 - x) ** power, -power * (1.0 - x) ** (power - 1)),
        low=arrays(0.0),
        high=arrays(5.0),
        margin=0.0,
    )
    assert 1.0 - 1e-5 <= x <= 1.0


def test_infinite_slope_at_the_low_end() -> None:
    """As the slab's share of mass: 1 - sqrt(x) falls vertically at 0."""
    targets = arrays(1e-6, 1e-3, 0.3, 0.9)

    def falling(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        with np.errstate(divide="ignore"):
            return targets - np.sqrt(x), -0.5 / np.sqrt(x)

    x = decreasing_root_down(falling, low=np.zeros(4), high=np.ones(4), margin=0.0)
    assert (np.sqrt(x) <= targets).all()
    np.testing.assert_allclose(x, targets**2, atol=1e-9)


def test_no_root_returns_low() -> None:
    low = arrays(0.0, 0.5, -2.0, 0.0)
    root = arrays(-1.0, 0.5, -2.5, 0.0)
    np.testing.assert_array_equal(decreasing_root_down(line(root), low=low, high=low + 3.0, margin=0.0), low)


def test_a_lead_below_the_margin_returns_low() -> None:
    low = np.zeros(3)
    x = decreasing_root_down(line(arrays(1e-9, 1e-7, 1e-5)), low=low, high=np.ones(3), margin=1e-6)
    np.testing.assert_array_equal(x[:2], 0.0)
    assert 0.0 < x[2] <= 1e-5 - 1e-6 * (1 - 1e-9)


def test_not_a_number_returns_low() -> None:
    """What cannot be evaluated certifies nothing, and does not disturb its neighbours."""
    root = arrays(0.25, np.nan, 0.75)
    x = decreasing_root_down(line(root), low=np.zeros(3), high=np.ones(3), margin=0.0)
    assert x[1] == 0.0
    np.testing.assert_allclose(x[[0, 2]], [0.25, 0.75], atol=1e-14)


@given(st.lists(st.tuples(st.floats(-2.0, 3.0), st.floats(1e-3, 1e3)), min_size=1, max_size=12))
def test_an_element_does_not_depend_on_its_neighbours(cases: list[tuple[float, float]]) -> None:
    """Roots inside, below the bracket and at its ends, side by side: each as close as if it were alone."""
    root, steepness = (np.array(column) for column in zip(*cases, strict=True))
    low, high = np.zeros_like(root), np.maximum(root, 0.0) + 1.0
    together = decreasing_root_down(line(root, steepness), low=low, high=high, margin=1e-12)
    assert ((together == 0.0) | (steepness * (root - together) >= 1e-12)).all()
    for i in range(len(cases)):
        alone = decreasing_root_down(
            line(root[i : i + 1], steepness[i]), low=low[i : i + 1], high=high[i : i + 1], margin=1e-12
        )
        assert together[i] == pytest.approx(alone[0], abs=1e-8 / steepness[i] + 1e-13)


def test_shapes_are_kept() -> None:
    for shape in [(), (0,), (1,), (2, 3), (2, 0, 4)]:
        root = np.full(shape, 0.5)
        x = decreasing_root_down(line(root), low=np.zeros(shape), high=np.ones(shape), margin=0.0)
        assert x.shape == shape
        np.testing.assert_allclose(x, root, atol=1e-14)


@given(st.floats(0.0, 10.0), st.floats(0.0, 1.0))
def test_step_down_stops_at_the_first_point_that_holds(x: float, share: float) -> None:
    edge = share * x
    (found,) = step_down_until(arrays(x), lambda point: point <= edge, floor=arrays(0.0))
    assert 0.0 <= found <= edge
    assert x - found <= 2.0 * (x - edge) + 1e-14 * (1.0 + x)


def test_step_down_ends_on_the_floor() -> None:
    found = step_down_until(arrays(1.0, 1.0), lambda point: np.zeros(point.shape, dtype=bool), floor=arrays(0.25, -1e9))
    np.testing.assert_array_equal(found, [0.25, -1e9])
