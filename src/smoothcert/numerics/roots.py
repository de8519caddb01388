"""Roots of decreasing functions, many at once, returned on the side where the function is known to be positive."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from smoothcert.records import FloatArray

_MAX_STEPS = 100
_MAX_DOUBLINGS = 60
_CONVERGED = 1e-9
"""Newton's method squares the error: after a step this small the next would be below the rounding error."""
_FIRST_STEP_BACK = 1e-15

ValueAndSlope = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


def decreasing_root_down(function: ValueAndSlope, *, low: FloatArray, high: FloatArray, margin: float) -> FloatArray:
    """For each element an x just below the root of a decreasing function, with function(x) ≥ margin verified.

    function: x → (value, slope), elementwise, decreasing in x. low, high: arrays of one shape with function(high) ≤ 0.
    margin: a bound on the rounding error of one evaluation, so that the true value at the returned x is not negative.
    Newton's method inside a shrinking bracket finds the root; then x is lowered, in steps that double, until the
    condition holds. Returns `low` where it does not hold above `low`. Rounded down.
    """
    # Where the function is not positive at `low` there is no root to find.
    left, right = low, np.where(function(low)[0] > 0, high, low)
    x = 0.5 * (left + right)
    # An element that has converged no longer moves, so no root depends on which others are searched.
    searching = np.ones(x.shape, dtype=np.bool_)
    for _ in range(_MAX_STEPS):
        value, slope = function(x)
        left, right = np.where(value > 0, x, left), np.where(value > 0, right, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            proposed = x - value / slope
        inside = (proposed >= left) & (proposed <= right)
        following = np.where(searching, np.where(inside, proposed, 0.5 * (left + right)), x)
        searching = np.abs(following - x) > _CONVERGED * (1.0 + np.abs(x))
        x = following
        if not searching.any():
            break
    return step_down_until(x, lambda point: function(point)[0] >= margin, floor=low)


def step_down_until(
    x: FloatArray,
    holds: Callable[[FloatArray], NDArray[np.bool_]],
    *,
    floor: FloatArray | float,
    step: FloatArray | None = None,
) -> FloatArray:
    """Lower x by a little more than its rounding error, then further until `holds`; `floor` where it never does.

    step: the first step, if the rounding error is known better.
    """
    if step is None:
        step = _FIRST_STEP_BACK * (1.0 + np.abs(x))
    lowered = np.maximum(x - step, floor)
    for _ in range(_MAX_DOUBLINGS):
        settled = (lowered <= floor) | holds(lowered)
        if settled.all():
            return lowered
        step = 2.0 * step
        lowered = np.where(settled, lowered, np.maximum(x - step, floor))
    return np.where(settled, lowered, floor)


def step_down_each_until(
    x: FloatArray, holds: Callable[[FloatArray, NDArray[np.intp]], NDArray[np.bool_]], *, floor: float, step: FloatArray
) -> FloatArray:
    """`step_down_until` for a costly condition, which is evaluated again only where it did not hold.

    x, step: (m,). holds: (points, their indices among the m) → bools.
    """
    lowered = np.maximum(x - step, floor)
    at = np.arange(x.size)
    for _ in range(_MAX_DOUBLINGS):
        at = at[~((lowered[at] <= floor) | holds(lowered[at], at))]
        if not at.size:
            return lowered
        step = 2.0 * step
        lowered[at] = np.maximum(x[at] - step[at], floor)
    lowered[at] = floor
    return lowered
