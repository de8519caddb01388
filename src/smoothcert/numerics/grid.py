"""The distance of noise drawn from finite tables from its exact law."""

from __future__ import annotations

from fractions import Fraction
from typing import overload

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records.tallies import FloatArray

_TABLE_BITS = 64
_REACH = Fraction(92, 10)
"""Of Gaussian noise, and more than that of uniform noise."""


@overload
def law_error(*, levels: int, sigma: float, dimension: int, reach: Fraction = _REACH) -> float: ...


@overload
def law_error(*, levels: int, sigma: FloatArray, dimension: int, reach: Fraction = _REACH) -> FloatArray: ...


def law_error(
    *, levels: int, sigma: float | FloatArray, dimension: int, reach: Fraction = _REACH
) -> float | FloatArray:
    """An upper bound on the total-variation distance between one noisy input on a grid and its exact law, rounded up.

    The bound is dimension · (2·⌈9.2·s⌉ + 3) · 2⁻⁶⁴ with s = sigma·(levels-1), at most 1. sigma: σ of Gaussian noise or
    λ of uniform noise, a number or an array; dimension: number of values of an input. reach: `NoiseFacts.table_reach`,
    9.2 in the proof.

    Proof. In one coordinate the exact law is that of j = round(s·z). With P_i = P(j < i) and U uniform on [0, 1), the
    number of i with P_i ≤ U (counted from a fixed start) has this law. The tables replace P_i by T_i/2⁶⁴,
    T_i = 2⁶⁴·P_i rounded to a whole number, where the arithmetic adds less than 2⁻⁹⁹ to the 2⁻⁶⁵ of the rounding, and
    compare them with ⌊2⁶⁴·U⌋, which makes no difference as T_i is whole. So both numbers are equal unless U falls
    between P_i and T_i/2⁶⁴ for some i, and the total-variation distance is at most the measure of all these intervals
    together (a coupling).
      Where T_i is neither 0 nor 2⁶⁴, each interval is at most 2⁻⁶⁵ + 2⁻⁹⁹ long. These i have min(P_i, 1-P_i) ≥
    2⁻⁶⁵ - 2⁻⁹⁹; for Gaussian noise P_i = Φ((i-½)/s), and Φ(-9.2) < 1.8e-20 < 2⁻⁶⁵ - 2⁻⁹⁹, so |i-½| < 9.2·s, and there
    are at most 2·⌈9.2·s⌉ of them. For uniform noise |i-½| < s, and there are fewer still.
      Where T_i = 0, all intervals begin at 0 and lie inside the longest, which is at most 2⁻⁶⁵ + 2⁻⁹⁹ long; the same
    holds where T_i = 2⁶⁴. In total (2·⌈9.2·s⌉ + 2)·(2⁻⁶⁵ + 2⁻⁹⁹), less than (2·⌈9.2·s⌉ + 3)·2⁻⁶⁴.
      The coordinates are independent under both laws; coupled one by one, they differ somewhere with at most
    `dimension` times this probability.
    """
    if not (levels >= 2 and dimension >= 1 and bool(np.all(np.isfinite(sigma) & (np.asarray(sigma) > 0)))):
        raise InputError(
            f"noise on a grid needs at least 2 levels, 1 value and a positive finite sigma, not levels={levels}, "
            f"dimension={dimension}, sigma={sigma}"
        )
    given = np.asarray(sigma, dtype=np.float64)
    values, places = np.unique(given, return_inverse=True)
    errors = np.array([_error(levels - 1, float(value), dimension, reach) for value in values])
    return errors[places].reshape(given.shape) if given.ndim else float(errors[0])


def _error(steps: int, sigma: float, dimension: int, reach: Fraction) -> float:
    """The bound of `law_error` in whole numbers, as the least float that is not below it."""
    farthest = -(-reach * Fraction(sigma) * steps // 1)
    exact = Fraction(dimension * (2 * int(farthest) + 3), 1 << _TABLE_BITS)
    nearest = float(exact)
    return min(1.0, nearest if Fraction(nearest) >= exact else float(np.nextafter(nearest, np.inf)))
