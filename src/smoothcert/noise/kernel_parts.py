"""What the Triton kernels of noise on a grid and of float noise share."""

# Triton compiles functions from their text, and would take annotations for names of its language.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def as_word(number):
    """The 32 bits of a signed argument."""
    return number.to(tl.uint32, bitcast=True)


@triton.jit
def place_of_rows(row, start_low, start_high, stage):
    """The two words of the counters of rows that say which sample they are."""
    start = (as_word(start_high).to(tl.int64) << 32) | as_word(start_low).to(tl.int64)
    counter = start + row.to(tl.int64)
    low = counter.to(tl.uint32)
    high = ((counter >> 32) << 8).to(tl.uint32) | as_word(stage)
    return low, high


@triton.jit
def to_type(value, dtype: tl.constexpr):
    """Finite float32 values in this floating-point type: rounded to the nearest, to the even one of two.

    For bfloat16 that is done with whole numbers: not every version of Triton and its interpreter rounds like torch.
    """
    if dtype == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        result = rounded.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        result = value.to(dtype)
    return result
