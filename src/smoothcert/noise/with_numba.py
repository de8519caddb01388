"""The generator compiled with numba: the same bits as `with_numpy`, twenty to thirty times faster.

No fast-math: a fused or reassociated operation would change bits between machines. The Philox words are kept in
64-bit lanes whose upper halves may hold rubbish (the multiplication reads the lower half only), which spares the
compiler all shuffling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from smoothcert.noise import constants as c
from smoothcert.records import Noise

_F = np.float32
_U4 = np.uint32
_U8 = np.uint64
_I4 = np.int32
_I8 = np.int64

_M0, _M1 = _U8(c.MULTIPLIER_0), _U8(c.MULTIPLIER_1)
_W0, _W1 = _U4(c.WEYL_0), _U4(c.WEYL_1)
_WORD = _U8(c.WORD)
_HALF_WORD = _U8(32)
_ROUNDS = c.ROUNDS

_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = (_F(v) for v in c.LOG_POLYNOMIAL)
_S0, _S1, _S2 = (_F(v) for v in c.SIN_POLYNOMIAL)
_C0, _C1, _C2 = (_F(v) for v in c.COS_POLYNOMIAL)
_LOG_2 = _F(c.LOG_2)
_TURN = _F(c.TURN)
_SQRT_HALF_BITS = _I4(c.SQRT_HALF_BITS)
_MANTISSA_BITS = _I4(c.MANTISSA_BITS)
_RADIUS_BITS = _I4(c.RADIUS_BITS)
_DROPPED_BITS = _U4(32 - c.UNIFORM_BITS)
_LEAST_ODD = _I4(1 - (1 << c.UNIFORM_BITS))
_UNIFORM_STEP = _F(2.0**-c.UNIFORM_BITS)


@intrinsic  # type: ignore[untyped-decorator]
def _bits_of(typing_context: Any, value: Any) -> Any:
    """The 32 bits of a float32, as int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def _float_of(typing_context: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    for _ in range(_ROUNDS):
        p0 = _M0 * (c0 & _WORD)
        p1 = _M1 * (c2 & _WORD)
        c0, c1, c2, c3 = (p1 >> _HALF_WORD) ^ c1 ^ _U8(k0), p1, (p0 >> _HALF_WORD) ^ c3 ^ _U8(k1), p0
        k0 = _U4(k0 + _W0)
        k1 = _U4(k1 + _W1)
    return _U4(c0), _U4(c1), _U4(c2), _U4(c3)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _radius(word: Any) -> Any:
    x = _F(_I4(word >> _U4(1))) + _F(0.5)
    bits = _bits_of(x)
    exponent = (bits - _SQRT_HALF_BITS) >> _MANTISSA_BITS
    t = _float_of(_I4(bits - (exponent << _MANTISSA_BITS))) - _F(1.0)
    square = t * t
    y = _L0 * t + _L1
    y = y * t + _L2
    y = y * t + _L3
    y = y * t + _L4
    y = y * t + _L5
    y = y * t + _L6
    y = y * t + _L7
    y = y * t + _L8
    y = y * t * square - _F(0.5) * square
    log_u = t + y + _F(_I4(exponent - _RADIUS_BITS)) * _LOG_2
    return _F(math.sqrt(max(_F(-2.0) * log_u, _F(0.0))))


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _sine_cosine(word: Any) -> Any:
    quarter = _U4(word + _U4(1 << 29)) >> _U4(30)
    t = _F(_I4(_U4(word - (quarter << _U4(30))))) * _TURN
    square = t * t
    s = ((_S0 * square + _S1) * square + _S2) * square * t + t
    k = ((_C0 * square + _C1) * square + _C2) * square * square - _F(0.5) * square + _F(1.0)
    odd = (quarter & _U4(1)) != _U4(0)
    sine = k if odd else s
    cosine = s if odd else k
    # The sign goes straight into the sign bit: bit 1 of the quarter decides, shifted to bit 31.
    sine = _float_of(_bits_of(sine) ^ _I4((quarter & _U4(2)) << _U4(30)))
    cosine = _float_of(_bits_of(cosine) ^ _I4(((quarter + _U4(1)) & _U4(2)) << _U4(30)))
    return sine, cosine


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _centred(word: Any) -> Any:
    return _F(_I4((_I4(word >> _DROPPED_BITS) << _I4(1)) + _LEAST_ODD)) * _UNIFORM_STEP


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _fill_words(words: Any, stream: Any, counter: Any) -> None:
    """The Philox words of one row. words: (4, blocks); stream: the two words of the key, index and stage."""
    key0, key1, index, stage = stream
    low = counter & _WORD
    high = ((counter >> _HALF_WORD) << _U8(8)) | _U8(stage)
    for j in range(words.shape[1]):
        words[0, j], words[1, j], words[2, j], words[3, j] = _philox(_U8(j), low, _U8(index), high, key0, key1)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _fill_words_of_rows(words: Any, used: Any, places: Any, stream: Any, counter: Any) -> None:
    """The Philox words of some rows, end to end in the first `used` blocks. places: (2, …), row and block of each."""
    key0, key1, index, stage = stream
    low = counter & _WORD
    high = ((counter >> _HALF_WORD) << _U8(8)) | _U8(stage)
    for j in range(used):
        words[0, j], words[1, j], words[2, j], words[3, j] = _philox(
            _U8(places[1, j]), low + _U8(places[0, j]), _U8(index), high, key0, key1
        )


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _rows_together(places: Any, blocks: Any, counter: Any, left: Any) -> Any:
    """How many rows are made at once: as there is room for, and none beyond where the counter's upper word changes."""
    until_carry = _I8(_WORD - (counter & _WORD)) + 1
    return min(_I8(places.shape[1] // blocks), min(_I8(left), until_carry))


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _make_gaussian(unit: Any, words: Any, used: Any) -> None:
    for j in range(used):
        r = _radius(words[0, j])
        s, k = _sine_cosine(words[1, j])
        unit[0, j] = r * k
        unit[1, j] = r * s
    for j in range(used):
        r = _radius(words[2, j])
        s, k = _sine_cosine(words[3, j])
        unit[2, j] = r * k
        unit[3, j] = r * s


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _make_uniform(unit: Any, words: Any, used: Any) -> None:
    for lane in range(4):
        for j in range(used):
            unit[lane, j] = _centred(words[lane, j])


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _write(row: Any, x: Any, sigma: Any, flat: Any) -> None:
    for j in range(row.shape[0]):
        row[j] = x[j] + _F(sigma * flat[j])


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _write_rows(out: Any, x: Any, sigma: Any, unit: Any, blocks: Any) -> None:
    """unit: (4, blocks of all rows); the values of a row are those of its first words, then of its second …"""
    count, size = out.shape
    for i in range(count):
        row = out[i]
        for lane in range(4):
            first = lane * blocks
            noise = unit[lane, i * blocks : i * blocks + blocks]
            for j in range(min(blocks, size - first)):
                row[first + j] = x[first + j] + _F(sigma * noise[j])


def _add_gaussian(out: Any, x: Any, sigma: Any, stream: Any, start: Any, words: Any, unit: Any) -> None:
    """out[i] = x + sigma · (sample start+i of the stream). out (count, size), x (size,) float32; sigma float64;
    stream: the two words of the key, index and stage; the rest is scratch space.

    words: (4, blocks) uint32, unit: (4, blocks) float32 with blocks = ceil(size/4). Releases the GIL.
    """
    flat = unit.reshape(unit.size)
    for i in range(out.shape[0]):
        _fill_words(words, stream, _U8(start) + _U8(i))
        _make_gaussian(unit, words, words.shape[1])
        _write(out[i], x, sigma, flat)


def _add_uniform(out: Any, x: Any, sigma: Any, stream: Any, start: Any, words: Any, unit: Any) -> None:
    """The same for uniform noise."""
    flat = unit.reshape(unit.size)
    for i in range(out.shape[0]):
        _fill_words(words, stream, _U8(start) + _U8(i))
        _make_uniform(unit, words, words.shape[1])
        _write(out[i], x, sigma, flat)


def _add_gaussian_to_short_rows(
    out: Any, x: Any, sigma: Any, stream: Any, start: Any, words: Any, unit: Any, places: Any
) -> None:
    """`_add_gaussian`, some rows at a time: a short one alone would not fill the processor's vectors.

    words and unit have room for the blocks of several rows; places: (2, the same) uint32, row and block of each.
    """
    blocks = (out.shape[1] + 3) // 4
    at = 0
    while at < out.shape[0]:
        counter = _U8(start) + _U8(at)
        taken = _rows_together(places, blocks, counter, out.shape[0] - at)
        _fill_words_of_rows(words, taken * blocks, places, stream, counter)
        _make_gaussian(unit, words, taken * blocks)
        _write_rows(out[at : at + taken], x, sigma, unit, blocks)
        at += taken


def compiled(generator: Callable[..., None]) -> Any:
    """Compiled when first called; the machine code is kept on disk where there is a place for it."""
    try:
        return numba.njit(nogil=True, error_model="numpy", cache=True)(generator)
    except RuntimeError:  # an installation without a writable cache folder
        return numba.njit(nogil=True, error_model="numpy")(generator)


ADD_NOISE = {Noise.GAUSSIAN: compiled(_add_gaussian), Noise.UNIFORM: compiled(_add_uniform)}
ADD_GAUSSIAN_TO_SHORT_ROWS = compiled(_add_gaussian_to_short_rows)
