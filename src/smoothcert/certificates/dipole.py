"""Dipole smoothing: the radius from votes at x+ε and x-ε (Levine et al. 2021, Theorem 3).

If the votes against the class lie on opposite sides of x, no single direction leads to all of them, and the radius
grows. For the class A let C_S = P(f(x+ε) = A and f(x-ε) = A) and C_N = P(f(x+ε) = A and f(x-ε) ≠ A).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.certificates.certificate import FormulaCertificate
from smoothcert.certificates.slab import (
    half_complement_up,
    radius_against_all,
    radius_against_class,
    slab,
    upper_boundary_down,
    usable,
)
from smoothcert.numerics.normal import quantile_down
from smoothcert.records import FloatArray, Proof, Quantity


def dipole_radius(both: ArrayLike, one_sided: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """The R at which the bound of Theorem 3 falls to ½: the smoothed classifier answers A within ‖δ‖₂ < R.

    The bound on P(A) at distance rσ is Φ(Φ⁻¹(C_N) - r) + Φ(Φ⁻¹((1+C_S)/2) - r) - Φ(Φ⁻¹((1-C_S)/2) - r).

    both, one_sided: lower bounds on C_S and C_N that hold at once, in [0, 1); sigma > 0; shapes broadcast. Increases
    with both. Rounded down; 0 where C_S + C_N ≤ ½ or where an argument is out of range.
    """
    top, scale, valid = usable((both, one_sided), sigma)
    return radius_against_all(DipoleShape.of(*top), sigma=scale, valid=valid)


def dipole_multi_class_radius(
    both: ArrayLike,
    one_sided: ArrayLike,
    other_neither: ArrayLike,
    other_one_sided: ArrayLike,
    *,
    sigma: ArrayLike,
) -> FloatArray:
    """Radius within which class A beats one other class c: Theorem 3 for A, and for the function 1 - f_c (section 3.2).

    other_neither: lower bounds on P(neither vote is c), other_one_sided: on P(f(x+ε) ≠ c and f(x-ε) = c); all four hold
    at once, shapes broadcast with sigma. It must be computed for *every* other class, and the smallest is certified: a
    class with few votes may have the least favourable shape. Rounded down; 0 where nothing is certified.
    """
    (a_both, a_one, c_neither, c_one), scale, valid = usable((both, one_sided, other_neither, other_one_sided), sigma)
    return radius_against_class(
        DipoleShape.of(a_both, a_one), DipoleShape.of(c_neither, c_one), sigma=scale, valid=valid
    )


@dataclass(frozen=True, slots=True)
class DipoleShape:
    """The worst-case classifier along the direction of attack: class A below `edge` and between -wall and wall."""

    edge: FloatArray
    wall: FloatArray

    @classmethod
    def of(cls, both: ArrayLike, one_sided: ArrayLike) -> DipoleShape:
        symmetric = np.asarray(both, dtype=np.float64)
        wall = np.maximum(upper_boundary_down(half_complement_up(symmetric)), 0.0)
        return cls(edge=quantile_down(np.asarray(one_sided, dtype=np.float64)), wall=wall)

    def mass(self, r: FloatArray) -> tuple[FloatArray, FloatArray]:
        """P(class A) after a move by r, and its derivative."""
        half_space, half_space_slope = slab(np.full_like(self.edge, -np.inf), self.edge, r)
        between, between_slope = slab(-self.wall, self.wall, r)
        return half_space + between, half_space_slope + between_slope

    def reach(self) -> FloatArray:
        return np.maximum(np.maximum(self.edge, self.wall), 0.0)


_PAIR = (Quantity.PAIR_BOTH_LOWER, Quantity.PAIR_ONE_SIDED_LOWER)
_OTHER = (Quantity.OTHER_NEITHER_LOWER, Quantity.OTHER_ONE_SIDED_LOWER)

DIPOLE = (
    FormulaCertificate("dipole", "dipole", _PAIR, (Proof.PAIR_REGION,), dipole_radius),
    FormulaCertificate("dipole-separate", "dipole", _PAIR, (Proof.PAIR_BOTH, Proof.PAIR_ONE_SIDED), dipole_radius),
    # One row of the others' arrays for every other class.
    FormulaCertificate(
        "dipole-multi-class", "dipole", (*_PAIR, *_OTHER), (Proof.PAIRS_OF_EVERY_CLASS,), dipole_multi_class_radius
    ),
)
