"""Distances between float32 points: bounded in float64 and, where that is not enough, compared exactly.

Coordinates (float32) and radii (float64) are taken as exact real numbers. All of them are integer multiples of powers
of two, and so are |x-y|₁ and ‖x-y‖₂². Python's integers represent them without error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from smoothcert.memory.log import Centre
from smoothcert.records import FloatArray, Norm

_UNIT = 2.0**-53
_ROOT_BITS = 80
"""Bits of a square root computed before the neighbouring floats are tried; a float64 has 53."""


def measure(point: Centre, centres: Centre, *, norm: Norm) -> FloatArray:
    """Return the distances from one point to others, each with a relative error of at most `relative_error`.

    point: (d,) float32. centres: (n, d) float32. Returns (n,) float64.
    """
    differences = np.subtract(centres, point, dtype=np.float64)
    if norm is Norm.L1:
        return np.asarray(np.abs(differences, out=differences).sum(axis=1))
    squares: FloatArray = np.einsum("ij,ij->i", differences, differences)
    return np.sqrt(squares)


def relative_error(dimension: int) -> float:
    """η with d(1-η) ≤ d̂ ≤ d(1+η), and with d̂(1-η) ≤ d ≤ d̂(1+η) in float64, for a measured distance d̂ of a true d.

    Let u = 2^-53. The difference of two float32 is computed with a relative error of at most u, or is exactly zero. It
    is zero or between 2^-149 and 2^129, so squares lie between 2^-298 and 2^258: nothing underflows, and with fewer
    than 2^700 entries nothing overflows. The square of a rounded difference has three factors (1+δ), |δ| ≤ u. A sum of
    d non-negative terms adds at most d-1 factors to each term in any order of summation (Higham 2002, section 4.2);
    fused multiplication only removes some. The root nearly halves their number and adds one. So there are fewer than
    d+4 factors, also for ℓ1, and their product differs from one by less than γ = (d+4)u/(1-(d+4)u). The returned value
    is more than twice that. This leaves more than u for each rounding when it is used, and more than γ² ≤ γ(d+4)2u for
    turning d̂ ≤ d(1+γ) into d ≥ d̂(1-η), for all dimensions below 2^48.
    """
    return 2.5 * (dimension + 8) * _UNIT


@dataclass(frozen=True, slots=True)
class ExactDistance:
    """The exact distance d of two points. power: d for ℓ1, d² for ℓ2."""

    power: Fraction
    norm: Norm

    @classmethod
    def between(cls, x: Centre, y: Centre, *, norm: Norm) -> ExactDistance:
        shift = _find_shift(x, y)
        differences = [a - b for a, b in zip(_to_integers(x, shift), _to_integers(y, shift), strict=True)]
        if norm is Norm.L1:
            return cls(Fraction(sum(map(abs, differences))) / Fraction(2) ** shift, norm)
        return cls(Fraction(sum(step * step for step in differences)) / Fraction(4) ** shift, norm)

    def exceeds(self, length: Fraction) -> bool:
        """Whether d > length."""
        if length < 0:
            return True
        return self.power > (length if self.norm is Norm.L1 else length * length)

    def largest_apart(self, radius: float) -> float:
        """The largest float64 s ≥ 0 with s + radius < d: closed balls of radii s and `radius` do not meet.

        -inf if there is none, that is, if d ≤ radius.
        """
        other = Fraction(radius)
        if not self.exceeds(other):
            return -math.inf
        return _find_largest(self._difference(other), lambda s: self.exceeds(Fraction(s) + other))

    def largest_inside(self, radius: float) -> float:
        """The largest float64 s ≥ 0 with d + s ≤ radius: the closed ball of radius s lies inside.

        -inf if there is none, that is, if d > radius.
        """
        outer = Fraction(radius)
        if self.exceeds(outer):
            return -math.inf
        return _find_largest(-self._difference(outer), lambda s: not self.exceeds(outer - Fraction(s)))

    def _difference(self, length: Fraction) -> Fraction:
        """d - length with a relative error of at most 2^-70 and the right sign: (d² - length²)/(d + length) for ℓ2."""
        if self.norm is Norm.L1:
            return self.power - length
        surplus = self.power - length * length
        return surplus / (_compute_root(self.power) + length) if surplus else surplus


def _find_largest(guess: Fraction, fits: Callable[[float], bool]) -> float:
    """The largest float64 s ≥ 0 that fits. All numbers from 0 to a bound near the guess fit, and no larger ones."""
    found = max(float(guess), 0.0)
    while not fits(found):
        found = math.nextafter(found, -math.inf)
    while (above := math.nextafter(found, math.inf)) < math.inf and fits(above):
        found = above
    return found


def _compute_root(square: Fraction) -> Fraction:
    """√square rounded down, with a relative error of at most 2^-_ROOT_BITS. square > 0."""
    short = max(0, 2 * _ROOT_BITS + 4 - (square.numerator.bit_length() - square.denominator.bit_length()))
    shift = (short + 1) // 2
    return Fraction(math.isqrt((square.numerator << 2 * shift) // square.denominator), 1 << shift)


def _find_shift(x: Centre, y: Centre) -> int:
    """A k such that every entry is an integer multiple of 2^-k. A float32 is m·2^e with |m| < 1 and m·2^24 integer."""
    exponents = [np.frexp(values[values != 0])[1] for values in (x, y)]
    lowest = min((int(part.min()) for part in exponents if part.size), default=24)
    return 24 - lowest


def _to_integers(values: Centre, shift: int) -> list[int]:
    """values·2^shift as integers. The products are below 2^(128+172) and have 24 bits, so float64 is exact."""
    return [int(value) for value in np.ldexp(values.astype(np.float64), shift).tolist()]
