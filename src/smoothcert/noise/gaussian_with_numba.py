"""Float Gaussian noise compiled with numba: the same bits as `gaussian_law`.

The generators compute out[i] = x + sigma · (sample start+i of the stream) and release the GIL. out: (count, size) and
x: (size,) float32; sigma: float64; stream: the two words of the key, index and stage. words: uint32 and unit: float32,
both (4, blocks), are scratch space, with blocks = ceil(size/4).
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from smoothcert.noise import gaussian_law as law
from smoothcert.noise.with_numba import compile_cached, fill_words, fill_words_of_rows, rows_together, write, write_rows

_F = np.float32
_U4 = np.uint32
_U8 = np.uint64
_I4 = np.int32

_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = (_F(v) for v in law.LOG_POLYNOMIAL)
_S0, _S1, _S2 = (_F(v) for v in law.SIN_POLYNOMIAL)
_C0, _C1, _C2 = (_F(v) for v in law.COS_POLYNOMIAL)
_LOG_2 = _F(law.LOG_2)
_TURN = _F(law.TURN)
_SQRT_HALF_BITS = _I4(law.SQRT_HALF_BITS)
_MANTISSA_BITS = _I4(law.MANTISSA_BITS)
_RADIUS_BITS = _I4(law.RADIUS_BITS)


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
    # The sign bit is set directly: bit 1 of the quarter, shifted to bit 31.
    sine = _float_of(_bits_of(sine) ^ _I4((quarter & _U4(2)) << _U4(30)))
    cosine = _float_of(_bits_of(cosine) ^ _I4(((quarter + _U4(1)) & _U4(2)) << _U4(30)))
    return sine, cosine


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


def _add_gaussian(out: Any, x: Any, sigma: Any, stream: Any, start: Any, words: Any, unit: Any) -> None:
    flat = unit.reshape(unit.size)
    for i in range(out.shape[0]):
        fill_words(words, stream, _U8(start) + _U8(i))
        _make_gaussian(unit, words, words.shape[1])
        write(out[i], x, sigma, flat)


def _add_gaussian_to_short_rows(
    out: Any, x: Any, sigma: Any, stream: Any, start: Any, words: Any, unit: Any, places: Any
) -> None:
    """`_add_gaussian`, several rows at a time: one short row would not fill the processor's vectors.

    words and unit hold the blocks of several rows; places: (2, blocks) uint32, the row and block of each.
    """
    blocks = (out.shape[1] + 3) // 4
    at = 0
    while at < out.shape[0]:
        counter = _U8(start) + _U8(at)
        taken = rows_together(places.shape[1] // blocks, counter, out.shape[0] - at)
        fill_words_of_rows(words, taken * blocks, places, stream, counter)
        _make_gaussian(unit, words, taken * blocks)
        write_rows(out[at : at + taken], x, sigma, unit, blocks)
        at += taken


ADD_NOISE = compile_cached(_add_gaussian)
ADD_NOISE_TO_SHORT_ROWS = compile_cached(_add_gaussian_to_short_rows)
