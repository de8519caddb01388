"""Probability that a Gaussian, moved by r standard deviations, lies between two parallel hyperplanes.

The worst-case base classifiers of Levine et al. are unions of such slabs, so both of their certificates are sums of
these functions. Hyperplanes are given by their signed distance, in standard deviations.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.certificates.positive import only_positive
from smoothcert.numerics.normal import one_minus_up, quantile_up
from smoothcert.numerics.roots import ValueAndSlope, decreasing_root_down
from smoothcert.records import FloatArray

_EVALUATION_ERROR = 4e-15
"""Larger than the rounding error of a sum of a few of the values below."""

_INVERSE_SQRT_TWO_PI = 1.0 / math.sqrt(2.0 * math.pi)


def usable(
    probabilities: tuple[ArrayLike, ...], sigma: ArrayLike, *, lengths: tuple[ArrayLike, ...] = ()
) -> tuple[list[FloatArray], FloatArray, NDArray[np.bool_]]:
    """The arguments of a theorem in one shape, and where they can be used: probabilities in [0, 1), lengths ≥ 0.

    Returns the probabilities and the lengths, the latter in units of 1/σ, then σ and the mask. Values out of range are
    replaced by harmless ones and masked out.
    """
    given = [np.asarray(v, dtype=np.float64) for v in (*probabilities, *lengths, sigma)]
    *values, scale = np.broadcast_arrays(*given)
    masses, norms = values[: len(probabilities)], values[len(probabilities) :]
    valid = (scale > 0) & np.isfinite(scale)
    scale = np.where(valid, scale, 1.0)
    for mass in masses:
        valid = valid & (mass >= 0) & (mass < 1)
    for norm in norms:
        valid = valid & (norm >= 0)
    # No function has a gradient above φ(0)/σ, so a larger bound has no effect; this also covers infinite bounds.
    with np.errstate(over="ignore"):
        scaled = [np.minimum(np.where(valid, norm, 1.0) * scale, 1.0) for norm in norms]
    return [np.where(valid, mass, 0.25) for mass in masses] + scaled, scale, valid


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


class WorstCase(Protocol):
    """The least favourable base classifier for a function with values in [0, 1], along the direction of attack."""

    def mass(self, r: FloatArray, /) -> tuple[FloatArray, FloatArray]:
        """Smoothed value after a move by r standard deviations, decreasing for r ≥ 0, and its derivative."""

    def reach(self) -> FloatArray:
        """The farthest of its boundaries in the direction of attack, at least 0."""


def radius_against_all(mine: WorstCase, *, sigma: FloatArray, valid: NDArray[np.bool_]) -> FloatArray:
    """Radius within which the class keeps more than half: σ times the r at which its worst case falls to ½.

    Rounded down; 0 where it is never above ½ or not valid.
    """

    def lead(r: FloatArray) -> tuple[FloatArray, FloatArray]:
        value, slope = mine.mass(r)
        return value - 0.5, slope

    return _radius_of_root(lead, high=mine.reach() + 1.0, sigma=sigma, valid=valid)


def radius_against_class(
    mine: WorstCase, against: WorstCase, *, sigma: FloatArray, valid: NDArray[np.bool_]
) -> FloatArray:
    """Radius within which class A keeps more than class c (section 3.2 of Levine et al. 2021).

    mine: the worst case h_A of A; against: the worst case h_c of "not c". At distance r, P(A) ≥ h_A(r) and P(c) ≤
    min(1 - h_c(r), 1 - h_A(r)), so R is where max(h_A + h_c - 1, 2 h_A - 1) falls to 0. Rounded down; 0 where nothing
    is certified.
    """

    def lead(r: FloatArray) -> tuple[FloatArray, FloatArray]:
        (h_a, slope_a), (h_c, slope_c) = mine.mass(r), against.mass(r)
        return h_a + np.maximum(h_a, h_c) - 1.0, slope_a + np.where(h_a > h_c, slope_a, slope_c)

    return _radius_of_root(lead, high=np.maximum(mine.reach(), against.reach()) + 2.0, sigma=sigma, valid=valid)


def _radius_of_root(
    lead: ValueAndSlope, *, high: FloatArray, sigma: FloatArray, valid: NDArray[np.bool_]
) -> FloatArray:
    """σ times the r at which a decreasing lead over the opponent falls to 0; it is negative at `high`."""
    root = decreasing_root_down(lead, low=np.zeros_like(high), high=high, margin=_EVALUATION_ERROR)
    return only_positive(sigma * root, where=valid)
