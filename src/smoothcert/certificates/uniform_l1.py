"""Uniform noise on [-λ, λ]^d: the ℓ1 radius of Yang et al. (2020), as used by Alfarra et al. (appendix G).

Moving the cube by δ leaves the part ∏(1 - |δ_i|/2λ) ≥ 1 - ‖δ‖₁/2λ of it in common with itself, so no probability, and
no mean of scores in [0, 1], changes by more than ‖δ‖₁/2λ. The class keeps its lead as long as p_A - p_B > ‖δ‖₁/λ. The
soft forms speak, as those for Gaussian noise, of the class with the largest mean score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.certificates.base import FormulaCertificate
from smoothcert.certificates.positive import only_positive
from smoothcert.records import FloatArray, Noise, Norm, Proof, Quantity


def uniform_l1_radius(p_a: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """R₁ = λ(2p_A - 1): the smoothed classifier keeps its class within ‖δ‖₁ < R₁ (p_B = 1 - p_A).

    p_a: lower bounds on the probability of the class, in [0, 1); sigma: the half-width λ > 0; shapes broadcast. Returns
    float64, rounded down; 0 where p_a ≤ ½ or where an argument is not a finite number in its range.
    """
    top, width = np.broadcast_arrays(np.asarray(p_a, dtype=np.float64), np.asarray(sigma, dtype=np.float64))
    valid = _usable(top, width)
    # 2p - 1 is exact for p in [½, 1].
    return only_positive(np.where(valid, width, 1.0) * (2.0 * np.where(valid, top, 0.5) - 1.0), where=valid)


def uniform_l1_two_class_radius(p_a: ArrayLike, p_b: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """R₁ = λ(p_A - p_B).

    p_a: lower bounds on the probability of the class; p_b: upper bounds on the probability of *every* other class,
    both holding at once. p_b is replaced by 1 - p_a where that is smaller. Shapes broadcast with sigma, the half-width
    λ. Rounded down; 0 where p_a ≤ p_b or an argument is out of range.
    """
    top, other, width = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (p_a, p_b, sigma)))
    valid = _usable(top, width) & (other > 0)
    top = np.where(valid, top, 0.5)
    other = np.where(valid, other, 0.5)
    # p_A - p_B is rounded once, to nearest; the step down keeps it below the true difference.
    gap = np.maximum(np.nextafter(top - other, -np.inf), 2.0 * top - 1.0)
    return only_positive(np.where(valid, width, 1.0) * gap, where=valid)


def _usable(top: FloatArray, width: FloatArray) -> NDArray[np.bool_]:
    return (top > 0) & (top < 1) & (width > 0) & np.isfinite(width)


def _form(name: str, top: Proof, other: Proof | None = None) -> FormulaCertificate:
    needs = (Quantity.TOP_LOWER,) if other is None else (Quantity.TOP_LOWER, Quantity.RUNNER_UP_UPPER)
    return FormulaCertificate(
        name,
        "uniform-l1",
        needs,
        (top,) if other is None else (top, other),
        uniform_l1_radius if other is None else uniform_l1_two_class_radius,
        norm=Norm.L1,
        noise=Noise.UNIFORM,
    )


UNIFORM_L1 = (
    _form("uniform-l1", Proof.TOP),
    _form("uniform-l1-two-class", Proof.TOP, Proof.RUNNER_UP),
    _form("uniform-l1-soft", Proof.SCORE_TOP),
    _form("uniform-l1-soft-two-class", Proof.SCORE_TOP, Proof.SCORE_OTHER),
    _form("uniform-l1-soft-bernstein", Proof.SCORE_TOP_BERNSTEIN),
    _form("uniform-l1-soft-two-class-bernstein", Proof.SCORE_TOP_BERNSTEIN, Proof.SCORE_OTHER_BERNSTEIN),
)
