"""Constant Gaussian noise: the tight ℓ2 radius of Cohen, Rosenfeld and Kolter (2019), Theorem 1.

The soft forms are the same theorem for another classifier: g(x) is the class of the largest mean score E[s_c(x+ε)],
scores in [0, 1], instead of the class with most votes. Φ⁻¹ of a mean of [0, 1] scores changes by at most 1/σ per unit
of distance (Salman et al. 2019, Lemma 2; Zhai et al. 2020), which is all the proof uses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.certificates.certificate import SCORE_FORMS, VOTE_FORMS, certificates_of
from smoothcert.certificates.positive import only_positive
from smoothcert.numerics.normal import one_minus_up, quantile_down, quantile_up
from smoothcert.records import FloatArray


def gaussian_radius(p_a: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """R = σ Φ⁻¹(p_A): the smoothed classifier keeps its class within ‖δ‖₂ < R (Theorem 1 with p_B = 1 - p_A).

    p_a: lower bounds on the probability of the class, in [0, 1); sigma > 0; shapes broadcast. Returns float64, rounded
    down; 0 where p_a ≤ ½ (nothing is certified) or where an argument is not a finite number in its range.
    """
    top, scale = np.broadcast_arrays(np.asarray(p_a, dtype=np.float64), np.asarray(sigma, dtype=np.float64))
    valid = are_usable(top, scale)
    return only_positive(np.where(valid, scale, 1.0) * quantile_down(np.where(valid, top, 0.5)), where=valid)


def gaussian_two_class_radius(p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """R = σ/2 (Φ⁻¹(p_A) - Φ⁻¹(p_B)) (Theorem 1 in full).

    p_a: lower bounds on the probability of the class; p_b: upper bounds on the probability of *every* other class,
    both holding at once. p_b is replaced by 1 - p_a where that is smaller, which the bound on p_a already implies.
    Shapes broadcast with sigma. Rounded down; 0 where p_a ≤ p_b or an argument is out of range.
    """
    top, other, scale = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (p_a, p_b, sigma)))
    valid = are_usable(top, scale) & (other > 0)
    top = np.where(valid, top, 0.5)
    other = np.where(valid, np.minimum(other, one_minus_up(top)), 0.5)
    gap = quantile_down(top) - quantile_up(other)
    return only_positive(0.5 * np.where(valid, scale, 1.0) * gap, where=valid)


def are_usable(top: FloatArray, scale: FloatArray) -> NDArray[np.bool_]:
    """Whether p_A is a probability that a finite sample can prove, and the noise level is positive and finite."""
    return (top > 0) & (top < 1) & (scale > 0) & np.isfinite(scale)


GAUSSIAN = certificates_of("gaussian", VOTE_FORMS, gaussian_radius, gaussian_two_class_radius)
GAUSSIAN_SOFT = certificates_of("gaussian", SCORE_FORMS, gaussian_radius, gaussian_two_class_radius)
