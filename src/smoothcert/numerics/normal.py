"""Quantiles of the standard normal law, rounded to a chosen side.

`scipy.special.ndtri` is accurate to a few units in the last place, but may err to either side. A certificate needs a
known side, so the quantile is moved by a margin larger than that error and then checked with the forward function; if
the check fails, it is moved further.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.numerics.roots import step_down_until
from smoothcert.records import FloatArray

_ABSOLUTE_MARGIN = 1e-15
_RELATIVE_MARGIN = 1e-14


def quantile_down(p: ArrayLike) -> FloatArray:
    """A z with Φ(z) ≤ p, just below the quantile Φ⁻¹(p).

    p: any shape, in [0, 1]. Returns float64 of the same shape, -inf at 0, +inf at 1, NaN for NaN or p outside [0, 1].
    Rounded down, by about 1e-14 (1 + |z|). Above ½ the tail 1 - p is used, which is exact in float64.
    """
    probability = np.asarray(p, dtype=np.float64)
    upper_half = probability > 0.5
    lower_tail = np.where(upper_half, 0.5, probability)
    upper_tail = np.where(upper_half, 1.0 - probability, 0.5)
    return np.where(upper_half, _upper_tail_point_down(upper_tail), _lower_tail_point_down(lower_tail))


def quantile_up(p: ArrayLike) -> FloatArray:
    """A z with Φ(z) ≥ p, just above the quantile Φ⁻¹(p): the mirror image of `quantile_down`, rounded up."""
    probability = np.asarray(p, dtype=np.float64)
    upper_half = probability > 0.5
    lower_tail = np.where(upper_half, 0.5, probability)
    upper_tail = np.where(upper_half, 1.0 - probability, 0.5)
    return np.where(upper_half, -_lower_tail_point_down(upper_tail), -_upper_tail_point_down(lower_tail))


def one_minus_up(p: ArrayLike) -> FloatArray:
    """1 - p rounded up: the float above the nearest one."""
    return np.nextafter(1.0 - np.asarray(p, dtype=np.float64), 2.0)


def _lower_tail_point_down(tail: FloatArray) -> FloatArray:
    """z with P(Z ≤ z) ≤ tail, for tail ≤ ½."""
    return _lower_until(special.ndtri(tail), lambda z: special.ndtr(z) <= tail)


def _upper_tail_point_down(tail: FloatArray) -> FloatArray:
    """z with P(Z ≥ z) ≥ tail, for tail ≤ ½."""
    return _lower_until(-special.ndtri(tail), lambda z: special.ndtr(-z) >= tail)


def _lower_until(z: FloatArray, holds: Callable[[FloatArray], NDArray[np.bool_]]) -> FloatArray:
    """Move every finite z down by a margin, then further until `holds`; infinities and NaN stay as they are."""
    finite = np.isfinite(z)
    start = np.where(finite, z, 0.0)
    step = _ABSOLUTE_MARGIN + _RELATIVE_MARGIN * np.abs(start)
    lowered = step_down_until(start, lambda point: ~finite | holds(point), floor=-np.inf, step=step)
    return np.where(finite, lowered, z)
