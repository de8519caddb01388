"""Four uniform values from each block of random words in Triton operations: the same bits as `uniform_law`."""

# Triton compiles functions from their text, and would take annotations for names of its language.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from smoothcert.noise.uniform_law import BITS

_SHIFT = tl.constexpr(32 - BITS)
_MIDDLE = tl.constexpr((1 << BITS) - 1)
_STEP = tl.constexpr(2.0**-BITS)


@triton.jit
def _centre(word):
    return ((word >> _SHIFT).to(tl.int32) * 2 - _MIDDLE).to(tl.float32) * _STEP


@triton.jit
def centres(w0, w1, w2, w3):
    return _centre(w0), _centre(w1), _centre(w2), _centre(w3)
