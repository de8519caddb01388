"""Second-order smoothing: the radius from value and gradient of the smoothed class (Levine et al. 2021, Theorem 1).

With p = P(f(x+ε) = A) and the norm of its gradient known, the worst base classifier is no longer a half-space but a
slab: some of the votes against the class are forced to the side the attacker does not go to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.certificates.certificate import FormulaCertificate
from smoothcert.certificates.slab import (
    density,
    radius_against_all,
    radius_against_class,
    slab,
    upper_boundary_down,
    usable,
)
from smoothcert.numerics.normal import one_minus_up, quantile_up
from smoothcert.numerics.roots import decreasing_root_down
from smoothcert.records import FloatArray, Proof, Quantity

_GRADIENT_MARGIN = 1e-12
"""Allowed relative error of φ(Φ⁻¹(·)), far above the actual one."""


def largest_gradient_norm(p: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """φ(Φ⁻¹(p))/σ: no function with values in [0, 1] and smoothed value p has a larger gradient (equation 1).

    p in [0, 1], sigma > 0, shapes broadcast. Symmetric about ½. Rounded up.
    """
    tail = np.asarray(p, dtype=np.float64)
    return _profile(np.minimum(tail, 1.0 - tail)) * (1.0 + _GRADIENT_MARGIN) / np.asarray(sigma, dtype=np.float64)


def second_order_lower_bound(p: ArrayLike, gradient: ArrayLike, *, distance: ArrayLike) -> FloatArray:
    """Smallest possible P(f(x'+ε) = A) at ‖x'-x‖ = distance·σ, given p and gradient = σ‖∇p‖ (Theorem 1).

    Φ(Φ⁻¹(a+p) - r) - Φ(Φ⁻¹(a) - r), where φ(Φ⁻¹(a)) - φ(Φ⁻¹(a+p)) = -gradient. p: lower bounds in (0, 1), gradient:
    upper bounds ≥ 0 (∞ allowed: no information), shapes broadcast. Attained by a slab perpendicular to the gradient.
    The boundaries are rounded to the safe side; the difference itself is good to about 1e-15.
    """
    value, slope = np.broadcast_arrays(np.asarray(p, dtype=np.float64), np.asarray(gradient, dtype=np.float64))
    return _Slab.of(value, slope).mass(np.asarray(distance, dtype=np.float64))[0]


def second_order_radius(p_a: ArrayLike, gradient_norm: ArrayLike, *, sigma: ArrayLike) -> FloatArray:
    """The R at which the bound of Theorem 1 falls to ½: the smoothed classifier answers A within ‖δ‖₂ < R.

    p_a: lower bounds on P(f(x+ε) = A) in [0, 1); gradient_norm: *upper* bounds on ‖∇P‖₂, ≥ 0, in units of 1/length (∞
    allowed); both hold at once; sigma > 0; shapes broadcast. Increases with p_a, falls with gradient_norm, and is
    Cohen's σΦ⁻¹(p_a) from gradient_norm = φ(Φ⁻¹(p_a))/σ on. Rounded down; 0 where p_a ≤ ½ or an argument is out of
    range.
    """
    (p, gradient), scale, valid = usable((p_a,), sigma, lengths=(gradient_norm,))
    return radius_against_all(_Slab.of(p, gradient), sigma=scale, valid=valid)


def second_order_multi_class_radius(
    p_a: ArrayLike, gradient_norm: ArrayLike, other_p: ArrayLike, other_gradient_norm: ArrayLike, *, sigma: ArrayLike
) -> FloatArray:
    """Radius within which class A beats one other class c: Theorem 1 for A, and for the function 1 - f_c (section 3.2).

    other_p: upper bounds on P(f(x+ε) = c) in (0, 1], other_gradient_norm: upper bounds on the norm of its gradient; all
    four hold at once, shapes broadcast with sigma. It must be computed for *every* other class, and the smallest is
    certified: a class with a smaller probability may have a larger gradient. Rounded down; 0 where nothing is
    certified.
    """
    bound = np.asarray(other_p, dtype=np.float64)
    against = np.where(bound <= 1.0, np.maximum(np.nextafter(1.0 - bound, -1.0), 0.0), np.nan)
    (p, not_c, g_a, g_c), scale, valid = usable((p_a, against), sigma, lengths=(gradient_norm, other_gradient_norm))
    return radius_against_class(_Slab.of(p, g_a), _Slab.of(not_c, g_c), sigma=scale, valid=valid)


@dataclass(frozen=True, slots=True)
class _Slab:
    """The worst-case classifier along the direction of attack: class A between `lower` and `upper`."""

    lower: FloatArray
    upper: FloatArray

    @classmethod
    def of(cls, p: FloatArray, gradient: FloatArray) -> _Slab:
        """The slab of mass p, shifted against the attack as far as the gradient allows.

        The mass against the class, q = 1 - p, is cut into a below and q - a above. With the profile I(t) = φ(Φ⁻¹(t)),
        I(q - a) - I(a) = gradient. The left side decreases with a on [0, q/2], from I(q) to 0. The certificate grows
        with a, so a is rounded down.
        """
        # Below 1: the difference, for p under 1e-16, is far below the rounding error of what follows.
        q = np.minimum(one_minus_up(p), np.nextafter(1.0, 0.0))

        def missing_gradient(share: FloatArray) -> tuple[FloatArray, FloatArray]:
            a = share * q
            largest = _profile(q - a) * (1.0 - _GRADIENT_MARGIN)
            return largest - _profile(a) - gradient, q * (special.ndtri(q - a) + special.ndtri(a))

        share = decreasing_root_down(missing_gradient, low=np.zeros_like(q), high=np.full_like(q, 0.5), margin=0.0)
        below = share * q
        above = np.nextafter(q - below, 2.0)
        return cls(lower=quantile_up(below), upper=upper_boundary_down(above))

    def mass(self, r: FloatArray) -> tuple[FloatArray, FloatArray]:
        """P(class A) after a move by r, and its derivative."""
        return slab(self.lower, self.upper, r)

    def reach(self) -> FloatArray:
        return np.maximum(self.upper, 0.0)


def _profile(t: FloatArray) -> FloatArray:
    """I(t) = φ(Φ⁻¹(t)) for t in [0, ½] and beyond; 0 at 0 and 1."""
    return density(special.ndtri(t))


_OWN = (Quantity.TOP_LOWER, Quantity.GRADIENT_NORM_UPPER)
_OTHER = (Quantity.OTHER_UPPER, Quantity.OTHER_GRADIENT_NORM_UPPER)

SECOND_ORDER = (
    FormulaCertificate("second-order", "second-order", _OWN, (Proof.TOP, Proof.GRADIENT_HALVES), second_order_radius),
    FormulaCertificate(
        "second-order-pairs", "second-order", _OWN, (Proof.TOP, Proof.GRADIENT_PAIRS), second_order_radius
    ),
    # One row of the others' arrays for every other class.
    FormulaCertificate(
        "second-order-multi-class",
        "second-order",
        (*_OWN, *_OTHER),
        (Proof.GRADIENTS_OF_EVERY_CLASS,),
        second_order_multi_class_radius,
    ),
)
