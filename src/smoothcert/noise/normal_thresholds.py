"""Thresholds of Gaussian noise on a grid: values of the normal distribution function, in 64-bit whole numbers.

Integer arithmetic only: no library's normal distribution is trusted, and the result is the same on every machine.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from smoothcert.noise.law import WORD_BITS, Thresholds, as_thresholds, mirror

_BITS = 192
"""Binary places of the fixed-point numbers below: the whole number v stands for v·2⁻¹⁹²."""
_ONE = 1 << _BITS
_HALVINGS = 8
_REMAINDER_BITS = 100
"""A Taylor polynomial is off by less than 2⁻¹⁰⁰."""
END = Fraction(37, 4)
"""From here on 2⁶⁴·Φ rounds to 2⁶⁴: 1-Φ(9.25) < φ(9.25)/9.25 < 1.2e-20 < 2⁻⁶⁵."""
_POINTS_AT_ONCE = 256
"""At least this many points share a Taylor polynomial, where steps are small enough."""
_WIDEST = 3
"""No Taylor polynomial is used farther than 2⁻³ from its centre."""


def normal_thresholds(scale: Fraction) -> Thresholds:
    """2⁶⁴·Φ((i-½)/scale), rounded, for all whole i for which that is neither 0 nor 2⁶⁴; increasing in i.

    Those of i ≥ 1 are computed; the others are 2⁶⁴ minus these, because Φ(-x) = 1-Φ(x).

    Error: every entry is within 2⁻⁶⁵ + 2⁻⁹⁹ of the truth, as a fraction of 2⁶⁴. [0, 9.25) is cut into blocks of width
    2ρ ≤ ¼; a point x is at most ρ from the centre c of its block, and Φ(x) = Φ(c) + Σ a_k t^(k+1)/(k+1) with t = x-c
    and a_k = φ⁽ᵏ⁾(c)/k!. Truncation costs below 2⁻¹⁰⁰ (`_degree`). In units of 2⁻¹⁹²: the error of φ(c) is below 2¹⁴
    (`_density`), and that of Φ(c) below 2⁷⁹ (`_centre`). The recursion a_{k+1} = -(c·a_k + a_{k-1})/(k+1) adds at most
    3 at each step and carries errors on with the coefficients of exp(ct+t²/2), whose sum is below e^9.8 < 2¹⁵: the
    error of all a_k together is below 2³⁵. Horner's rule adds less than 2, the rounding of t less than 1. In
    total less than 2⁸⁰ units, which is 2⁻¹¹².
    """
    upper: list[Thresholds] = []
    radius_bits = max(_WIDEST, math.ceil(scale / _POINTS_AT_ONCE).bit_length())
    width = Fraction(2, 1 << radius_bits)
    first = 1
    for block in range(int(END / width)):
        end = width * (block + 1)
        last = math.ceil(scale * end + Fraction(1, 2)) - 1  # the last i with (i-½)/scale < end
        found = _thresholds_of_block(scale, centre=end - width / 2, radius_bits=radius_bits, i=(first, last))
        upper.append(as_thresholds(found))
        first = last + 1
    return mirror(np.concatenate(upper))


def _thresholds_of_block(scale: Fraction, *, centre: Fraction, radius_bits: int, i: tuple[int, int]) -> list[int]:
    """2⁶⁴·Φ((i-½)/scale), rounded, for the i from i[0] to i[1]: points at most 2^-radius_bits from the centre."""
    first, last = i
    if last < first:
        return []
    density, probability = _centre(centre)
    coefficients = _taylor(centre, density, degree=_degree(radius_bits))
    p, q, c = scale.numerator, scale.denominator, int(centre * _ONE)
    rounding = 1 << _BITS - WORD_BITS - 1
    found = []
    for point in range(2 * first - 1, 2 * last, 2):
        t = (point * q << _BITS - 1) // p - c
        value = 0
        for coefficient in coefficients:
            value = (value * t >> _BITS) + coefficient
        value = (value * t >> _BITS) + probability
        found.append(value + rounding >> _BITS - WORD_BITS)
    return found


@functools.cache
def _degree(radius_bits: int) -> int:
    """The number K of coefficients a_0 … a_{K-1} that is enough.

    φ is entire and |φ(z)| ≤ e^{r²/2}/√(2π) for |z-c| ≤ r, because Re z² ≥ -r². So |a_k| ≤ e^{r²/2} r⁻ᵏ/√(2π) (Cauchy),
    and with r = √K the truncation error, Σ_{k≥K} |a_k| ρ^(k+1)/(k+1), is below (e/K)^{K/2} ρ^(K+1).
    """
    degree = 2
    while 0.5 * degree * math.log2(math.e / degree) - radius_bits * (degree + 1) > -_REMAINDER_BITS:
        degree += 1
    return degree


def _taylor(centre: Fraction, density: int, *, degree: int) -> list[int]:
    """a_k/(k+1) for k = degree-1 … 0, highest first."""
    c = int(centre * _ONE)
    a = [density, -(c * density >> _BITS)]
    for k in range(1, degree - 1):
        a.append(-((c * a[k] >> _BITS) + a[k - 1]) // (k + 1))
    return [a[k] // (k + 1) for k in reversed(range(degree))]


def _centre(c: Fraction) -> tuple[int, int]:
    """φ(c) and Φ(c) for 2⁻²⁰ ≤ c < 9.25, c a multiple of 2⁻¹⁹².

    Φ(c) = ½ + φ(c)·S with S = Σ c^(2k+1)/(2k+1)!!, all terms positive. Every step of the sum loses less than one
    unit; a term passes an error on as it grows itself, at most by S/c. With fewer than 2⁹ terms S is off by less than
    2¹⁸·S/c units, and so φ·S ≤ ½ by less than 2¹⁷/c ≤ 2³⁷. The error of φ(c), below 2¹⁴ units, is multiplied by
    S ≤ ½/φ(c) < 2⁶³. Together less than 2⁷⁸ units.
    """
    density = _density(c)
    square = c * c
    top, bottom = square.numerator, square.denominator
    term = total = int(c * _ONE)
    odd = 1
    while term:
        odd += 2
        term = term * top // (bottom * odd)
        total += term
    return density, _ONE // 2 + (density * total >> _BITS)


def _density(c: Fraction) -> int:
    """φ(c) = exp(-c²/2)/√(2π). exp(-y/2⁸) by its series: fewer than 2⁶ terms, each off by less than a unit; eight
    squarings of a number below 1 at most double the error and add one each. Less than 2¹⁴ + 2⁸ units; the factor
    1/√(2π) < 0.4 brings it below 2¹⁴.
    """
    y = c * c / (2 << _HALVINGS)
    top, bottom = y.numerator, y.denominator
    term, value, k = _ONE, 0, 0
    while term:
        value += -term if k & 1 else term
        k += 1
        term = term * top // (bottom * k)
    for _ in range(_HALVINGS):
        value = value * value >> _BITS
    return value * _inverse_root_of_two_pi() >> _BITS


@functools.cache
def _inverse_root_of_two_pi() -> int:
    """1/√(2π), by Machin's formula for π with 32 more places; off by less than two units."""
    more = _BITS + 32
    pi = 4 * (4 * _arctangent_of_inverse(5, more) - _arctangent_of_inverse(239, more))
    return math.isqrt((1 << 2 * _BITS + more) // (2 * pi))


def _arctangent_of_inverse(n: int, bits: int) -> int:
    """arctan(1/n) in units of 2^-bits; off by less than the number of its terms."""
    power = (1 << bits) // n
    total, k = power, 1
    while power:
        power //= n * n
        k += 2
        total += -(power // k) if k & 2 else power // k
    return total
