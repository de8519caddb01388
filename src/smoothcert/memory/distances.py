"""Distances between float32 points: enclosed by float64, and where that is not enough, compared exactly.

A point stands for the real numbers its float32 entries are; a radius for the real number its float64 is. All of them
are whole multiples of powers of two, so that |x-y|₁ and ‖x-y‖₂² are too, and Python's integers hold them without error.
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
"""Bits to which a square root is computed before its neighbours are tried; a float64 has 53."""


def measure(point: Centre, centres: Centre, *, norm: Norm) -> FloatArray:
    """Distances from one point to others, each within a relative error of `relative_error`.

    point: (d,) float32. centres: (n, d) float32. Returns (n,) float64.
    """
    differences = np.subtract(centres, point, dtype=np.float64)
    if norm is Norm.L1:
        return np.asarray(np.abs(differences, out=differences).sum(axis=1))
    squares: FloatArray = np.einsum("ij,ij->i", differences, differences)
    return np.sqrt(squares)


def relative_error(dimension: int) -> float:
    """η with d(1-η) ≤ d̂ ≤ d(1+η), also as d̂(1-η) ≤ d ≤ d̂(1+η) in float64, for a measured distance d̂ of a true d.

    With u = 2^-53, a difference of two float32 is computed with a relative error of at most u, or exactly zero; it is
    zero or at least 2^-149 and less than 2^129, so that squares lie between 2^-298 and 2^258: nothing underflows, and
    for fewer than 2^700 entries nothing overflows. A square of a rounded difference carries three factors (1+δ),
    |δ| ≤ u. A sum of d non-negative terms adds at most d-1 more to each term in whatever order it is made (Higham 2002,
    section 4.2), and a fused multiplication only takes some away. The root halves their number, nearly, and adds one.
    So there are fewer than d+4 factors, also for ℓ1, and their product differs from one by less than
    γ = (d+4)u/(1-(d+4)u). The value below is more than twice that, which leaves more than u for each rounding when it
    is used, and more than γ² ≤ γ(d+4)2u for turning d̂ ≤ d(1+γ) into d ≥ d̂(1-η), for every d below 2^48.
    """
    return 2.5 * (dimension + 8) * _UNIT


@dataclass(frozen=True, slots=True)
class ExactDistance:
    """The distance of two points as a real number, known through a power of it: d for ℓ1, d² for ℓ2."""

    power: Fraction
    norm: Norm

    @classmethod
    def between(cls, x: Centre, y: Centre, *, norm: Norm) -> ExactDistance:
        shift = _shift(x, y)
        differences = [a - b for a, b in zip(_whole(x, shift), _whole(y, shift), strict=True)]
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

        -inf where there is none, that is, where d ≤ radius.
        """
        other = Fraction(radius)
        if not self.exceeds(other):
            return -math.inf
        return _largest(self._difference(other), lambda s: self.exceeds(Fraction(s) + other))

    def largest_inside(self, radius: float) -> float:
        """The largest float64 s ≥ 0 with d + s ≤ radius: the closed ball of radius s lies inside.

        -inf where there is none, that is, where d > radius.
        """
        outer = Fraction(radius)
        if self.exceeds(outer):
            return -math.inf
        return _largest(-self._difference(outer), lambda s: not self.exceeds(outer - Fraction(s)))

    def _difference(self, length: Fraction) -> Fraction:
        """About d - length, good to a relative 2^-70, with the right sign: (d² - length²)/(d + length) for ℓ2."""
        if self.norm is Norm.L1:
            return self.power - length
        surplus = self.power - length * length
        return surplus / (_root(self.power) + length) if surplus else surplus


def _largest(guess: Fraction, fits: Callable[[float], bool]) -> float:
    """The largest float64 s ≥ 0 that fits, if those that fit are all from 0 up to somewhere near the guess."""
    found = max(float(guess), 0.0)
    while not fits(found):
        found = math.nextafter(found, -math.inf)
    while (above := math.nextafter(found, math.inf)) < math.inf and fits(above):
        found = above
    return found


def _root(square: Fraction) -> Fraction:
    """√square from below, to a relative 2^-_ROOT_BITS. square > 0, with a power of four below the line or any other."""
    short = max(0, 2 * _ROOT_BITS + 4 - (square.numerator.bit_length() - square.denominator.bit_length()))
    shift = (short + 1) // 2
    return Fraction(math.isqrt((square.numerator << 2 * shift) // square.denominator), 1 << shift)


def _shift(x: Centre, y: Centre) -> int:
    """A k for which every entry is a whole multiple of 2^-k: a float32 m·2^e, ½ ≤ |m| < 1, has m·2^24 whole."""
    exponents = [np.frexp(values[values != 0])[1] for values in (x, y)]
    lowest = min((int(part.min()) for part in exponents if part.size), default=24)
    return 24 - lowest


def _whole(values: Centre, shift: int) -> list[int]:
    """values·2^shift. The product is below 2^(128+172), so float64 holds it, and 24 bits are no trouble for it."""
    return [int(value) for value in np.ldexp(values.astype(np.float64), shift).tolist()]
