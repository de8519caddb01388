"""Uniform noise on [-λ, λ]^d: the ℓ1 radius of Yang et al. (2020), as used by Alfarra et al. (appendix G).

Moving the cube by δ leaves the part ∏(1 - |δ_i|/2λ) ≥ 1 - ‖δ‖₁/2λ of it in common with itself, so no probability, and
no mean of scores in [0, 1], changes by more than ‖δ‖₁/2λ. The class keeps its lead as long as p_A - p_B > ‖δ‖₁/λ. The
soft forms, like those for Gaussian noise, are about the class with the largest mean score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.certificates.certificate import SCORE_FORMS, VOTE_FORMS, certificates_of
from smoothcert.certificates.gaussian import are_usable
from smoothcert.certificates.positive import only_positive
from smoothcert.records import FloatArray, Noise


def uniform_l1_radius(p_a: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """R₁ = λ(2p_A - 1): the smoothed classifier keeps its class within ‖δ‖₁ < R₁ (p_B = 1 - p_A).

    p_a: lower bounds on the probability of the class, in [0, 1); sigma: the half-width λ > 0; shapes broadcast. Returns
    float64, rounded down; 0 where p_a ≤ ½ or where an argument is not a finite number in its range.
    """
    top, width = np.broadcast_arrays(np.asarray(p_a, dtype=np.float64), np.asarray(sigma, dtype=np.float64))
    valid = are_usable(top, width)
    # 2p - 1 is exact for p in [½, 1].
    return only_positive(np.where(valid, width, 1.0) * (2.0 * np.where(valid, top, 0.5) - 1.0), where=valid)


def uniform_l1_two_class_radius(p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """R₁ = λ(p_A - p_B).

    p_a: lower bounds on the probability of the class; p_b: upper bounds on the probability of *every* other class,
    both holding at once. p_b is replaced by 1 - p_a where that is smaller. Shapes broadcast with sigma, the half-width
    λ. Rounded down; 0 where p_a ≤ p_b or an argument is out of range.
    """
    top, other, width = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (p_a, p_b, sigma)))
    valid = are_usable(top, width) & (other > 0)
    top = np.where(valid, top, 0.5)
    other = np.where(valid, other, 0.5)
    # p_A - p_B is rounded once, to nearest; the step down keeps it below the true difference.
    gap = np.maximum(np.nextafter(top - other, -np.inf), 2.0 * top - 1.0)
    return only_positive(np.where(valid, width, 1.0) * gap, where=valid)


UNIFORM_L1 = certificates_of(
    "uniform-l1",
    (*VOTE_FORMS, *SCORE_FORMS),
    uniform_l1_radius,
    uniform_l1_two_class_radius,
    noise=Noise.UNIFORM,
)
