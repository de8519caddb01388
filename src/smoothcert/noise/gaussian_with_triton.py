"""Four normals from each block of random words in Triton operations: the same bits as `gaussian_law`.

Every operation is rounded on its own, if kernels are launched without contraction to fused operations (`with_triton`).
Constants are at the right of operators, as in `grid_with_triton`. A sign is changed by a product with -1: Triton's
minus makes 0 of 0, not -0.
"""

# Triton compiles functions from their text, and would take annotations for names of its language.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from smoothcert.noise import gaussian_law as law

_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = (tl.constexpr(value) for value in law.LOG_POLYNOMIAL)
_S0, _S1, _S2 = (tl.constexpr(value) for value in law.SIN_POLYNOMIAL)
_K0, _K1, _K2 = (tl.constexpr(value) for value in law.COS_POLYNOMIAL)
_LOG_2 = tl.constexpr(law.LOG_2)
_TURN = tl.constexpr(law.TURN)
_SQRT_HALF_BITS = tl.constexpr(law.SQRT_HALF_BITS)
_MANTISSA_BITS = tl.constexpr(law.MANTISSA_BITS)
_RADIUS_BITS = tl.constexpr(law.RADIUS_BITS)


@triton.jit
def _radius(word):
    x = (word >> 1).to(tl.int32).to(tl.float32) + 0.5
    bits = x.to(tl.int32, bitcast=True)
    exponent = (bits - _SQRT_HALF_BITS) >> _MANTISSA_BITS
    t = (bits - (exponent << _MANTISSA_BITS)).to(tl.float32, bitcast=True) - 1.0
    square = t * t
    y = t * _L0 + _L1
    y = y * t + _L2
    y = y * t + _L3
    y = y * t + _L4
    y = y * t + _L5
    y = y * t + _L6
    y = y * t + _L7
    y = y * t + _L8
    y = y * t * square - square * 0.5
    log_u = t + y + (exponent - _RADIUS_BITS).to(tl.float32) * _LOG_2
    return tl.sqrt_rn(tl.maximum(log_u * -2.0, 0.0))


@triton.jit
def _sine_cosine(word):
    quarter = (word + (1 << 29)) >> 30
    t = (word - (quarter << 30)).to(tl.int32, bitcast=True).to(tl.float32) * _TURN
    square = t * t
    s = ((square * _S0 + _S1) * square + _S2) * square * t + t
    k = ((square * _K0 + _K1) * square + _K2) * square * square - square * 0.5 + 1.0
    odd = (quarter & 1) != 0
    sine = tl.where(odd, k, s) * tl.where((quarter & 2) != 0, -1.0, 1.0)
    cosine = tl.where(odd, s, k) * tl.where(((quarter + 1) & 2) != 0, -1.0, 1.0)
    return sine, cosine


@triton.jit
def normals(w0, w1, w2, w3):
    first, second = _radius(w0), _radius(w2)
    sine, cosine = _sine_cosine(w1)
    other_sine, other_cosine = _sine_cosine(w3)
    return first * cosine, first * sine, second * other_cosine, second * other_sine
