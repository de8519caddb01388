"""The generator in plain numpy: the reference the other versions are tested against, and the fallback."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from smoothcert.noise import constants as c
from smoothcert.records import InputArray, Noise

_F = np.float32
Words = NDArray[np.uint64]
Lanes = tuple[InputArray, InputArray, InputArray, InputArray]


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10 on arrays of 32-bit words kept in uint64. Shapes broadcast; key: two 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    word = np.uint64(c.WORD)
    half = np.uint64(32)
    for _ in range(c.ROUNDS):
        p0 = np.uint64(c.MULTIPLIER_0) * c0
        p1 = np.uint64(c.MULTIPLIER_1) * c2
        c0, c1, c2, c3 = (
            (p1 >> half) ^ c1 ^ np.uint64(k0),
            p1 & word,
            (p0 >> half) ^ c3 ^ np.uint64(k1),
            p0 & word,
        )
        k0 = (k0 + c.WEYL_0) & c.WORD
        k1 = (k1 + c.WEYL_1) & c.WORD
    return c0, c1, c2, c3


def unit_noise(
    noise: Noise, *, key: tuple[int, int], index: int, stage: int, start: int, count: int, size: int
) -> InputArray:
    """Samples start … start+count-1 of a stream, at level 1. Returns (count, size) float32.

    A sample is made of ceil(size/4) blocks of four values; the first values of all blocks come first, then the second.
    """
    blocks = -(-size // 4)
    counter = start + np.arange(count, dtype=np.uint64)[:, None]
    block = np.arange(blocks, dtype=np.uint64)[None, :]
    zero = np.zeros((count, blocks), dtype=np.uint64)
    high = (counter >> np.uint64(32)) << np.uint64(8)
    words = philox(
        (
            block + zero,
            (counter & np.uint64(c.WORD)) + zero,
            np.uint64(index) + zero,
            (high | np.uint64(stage)) + zero,
        ),
        key,
    )
    return np.concatenate(from_words(noise, *words), axis=1)[:, :size]


def from_words(noise: Noise, w0: Words, w1: Words, w2: Words, w3: Words) -> Lanes:
    """The four values of level 1 that each block of four words gives."""
    return _LANES[noise](w0, w1, w2, w3)


def _normals(w0: Words, w1: Words, w2: Words, w3: Words) -> Lanes:
    return *_box_muller(w0, w1), *_box_muller(w2, w3)


def _uniform(w0: Words, w1: Words, w2: Words, w3: Words) -> Lanes:
    return _centred(w0), _centred(w1), _centred(w2), _centred(w3)


_LANES: dict[Noise, Callable[[Words, Words, Words, Words], Lanes]] = {
    Noise.GAUSSIAN: _normals,
    Noise.UNIFORM: _uniform,
}


def _centred(word: Words) -> InputArray:
    """(2k + 1 - 2²⁴)/2²⁴ with k the upper 24 bits: an odd multiple of 2⁻²⁴ in (-1, 1), with no rounding."""
    k = (word >> np.uint64(32 - c.UNIFORM_BITS)).astype(np.int32)
    odd = np.int32(2) * k + np.int32(1 - (1 << c.UNIFORM_BITS))
    return odd.astype(_F) * _F(2.0**-c.UNIFORM_BITS)


def _box_muller(for_radius: Words, for_angle: Words) -> tuple[InputArray, InputArray]:
    radius = _radius(for_radius)
    sine, cosine = _sine_cosine(for_angle)
    return radius * cosine, radius * sine


def _radius(word: Words) -> InputArray:
    """sqrt(-2 log u), u = (k + ½)/2³¹ with k the upper 31 bits."""
    x = (word >> np.uint64(1)).astype(np.int32).astype(_F) + _F(0.5)
    bits = x.view(np.int32)
    exponent = (bits - np.int32(c.SQRT_HALF_BITS)) >> np.int32(c.MANTISSA_BITS)
    t = (bits - (exponent << np.int32(c.MANTISSA_BITS))).view(_F) - _F(1.0)
    square = t * t
    y = _horner(c.LOG_POLYNOMIAL, t) * t * square - _F(0.5) * square
    log_u = t + y + (exponent - np.int32(c.RADIUS_BITS)).astype(_F) * _F(c.LOG_2)
    return np.sqrt(np.maximum(_F(-2.0) * log_u, _F(0.0)))


def _sine_cosine(word: Words) -> tuple[InputArray, InputArray]:
    """Sine and cosine of 2π·word/2³², reduced to a quarter turn around a multiple of it."""
    quarter = ((word + np.uint64(1 << 29)) & np.uint64(c.WORD)) >> np.uint64(30)
    rest = (word - (quarter << np.uint64(30))) & np.uint64(c.WORD)
    t = rest.astype(np.uint32).view(np.int32).astype(_F) * _F(c.TURN)
    square = t * t
    s = _horner(c.SIN_POLYNOMIAL, square) * square * t + t
    k = _horner(c.COS_POLYNOMIAL, square) * square * square - _F(0.5) * square + _F(1.0)
    odd = (quarter & np.uint64(1)) != 0
    sine = np.where(odd, k, s)
    cosine = np.where(odd, s, k)
    negative_sine = (quarter & np.uint64(2)) != 0
    negative_cosine = ((quarter + np.uint64(1)) & np.uint64(2)) != 0
    return np.where(negative_sine, -sine, sine), np.where(negative_cosine, -cosine, cosine)


def _horner(coefficients: tuple[float, ...], x: InputArray) -> InputArray:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + _F(coefficient)
    return value
