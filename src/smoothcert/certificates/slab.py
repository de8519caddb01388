"""Probability that a Gaussian, moved by r standard deviations, lies between two parallel hyperplanes.

The worst-case base classifiers of Levine et al. are unions of such slabs, so both of their certificates are sums of
these functions. Hyperplanes are given by their signed distance, in standard deviations.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothcert.certificates.positive import only_positive
from smoothcert.numerics.normal import one_minus_up, quantile_up
from smoothcert.numerics.roots import ValueAndSlope, decreasing_root_down
from smoothcert.records import FloatArray

_EVALUATION_ERROR = 4e-15
"""Larger than the rounding error of a sum of a few of the values below."""

_INVERSE_SQRT_TWO_PI = 1.0 / math.sqrt(2.0 * math.pi)


def density(z: FloatArray) -> FloatArray:
    """φ(z), the standard normal density; 0 at ±∞."""
    return _INVERSE_SQRT_TWO_PI * np.exp(-0.5 * np.square(z))


def slab(lower: FloatArray, upper: FloatArray, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P(lower < Z + shift < upper) = Φ(upper - shift) - Φ(lower - shift), and its derivative in the shift.

    Shapes broadcast; lower may be -∞ (a half-space). For |lower| ≥ |upper| it is decreasing in shift ≥ 0.
    """
    value = special.ndtr(upper - shift) - special.ndtr(lower - shift)
    return value, density(lower - shift) - density(upper - shift)


def upper_boundary_down(complement: FloatArray) -> FloatArray:
    """Φ⁻¹(1 - complement), rounded down, from the complement, which keeps its digits where the quantile is large."""
    return -quantile_up(complement)


def half_complement_up(probability: FloatArray) -> FloatArray:
    """(1 - probability)/2, rounded up."""
    return 0.5 * one_minus_up(probability)


def radius_of_root(lead: ValueAndSlope, *, high: FloatArray, sigma: FloatArray, valid: NDArray[np.bool_]) -> FloatArray:
    """σ times the r at which a decreasing lead over the opponent falls to 0; 0 where it never was positive.

    high: an r at which the lead is certainly gone. Rounded down.
    """
    root = decreasing_root_down(lead, low=np.zeros_like(high), high=high, margin=_EVALUATION_ERROR)
    return only_positive(sigma * root, where=valid)
