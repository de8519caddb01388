"""Float noise in one Triton kernel: Philox, the law's own part, scaling, sum and cast; the bits of `with_numpy`.

The law's part is a function of Triton, given to the kernel as a constant (`AdditiveLaw.load_triton`).
"""

# Triton compiles functions from their text, and would take annotations for names of its language.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from smoothcert.noise import constants as c
from smoothcert.noise.kernel_parts import as_word, place_of_rows, to_type

_M0, _M1 = tl.constexpr(c.MULTIPLIER_0), tl.constexpr(c.MULTIPLIER_1)
_W0, _W1 = tl.constexpr(c.WEYL_0), tl.constexpr(c.WEYL_1)
_ROUNDS = tl.constexpr(c.ROUNDS)

NUMBERS = (
    "rows", "size", "sigma_low", "sigma_high", "start_low", "start_high", "index", "stage", "key0", "key1",
)  # fmt: skip
"""As in `grid_with_triton`. sigma_low, sigma_high: the two halves of the bits of a float64."""
POINTERS = ("plus", "minus", "draws", "x")


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    for _ in range(_ROUNDS):
        upper0, lower0 = tl.umulhi(c0, tl.zeros_like(c0) + _M0), c0 * _M0
        upper1, lower1 = tl.umulhi(c2, tl.zeros_like(c2) + _M1), c2 * _M1
        c0, c1, c2, c3 = upper1 ^ c1 ^ k0, lower1, upper0 ^ c3 ^ k1, lower0
        k0 = k0 + _W0
        k1 = k1 + _W1
    return c0, c1, c2, c3


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=POINTERS)
def add_float_noise(
    plus, minus, draws, x, rows, size, sigma_low, sigma_high,
    start_low, start_high, index, stage, key0, key1,
    LANES: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
    ADD: tl.constexpr, SUBTRACT: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Write rows of x+ε (if ADD), x-ε (if SUBTRACT) and ε at level 1 (if KEEP); each (rows, size), contiguous.

    plus, minus: floating-point; draws and x, (size,): float32. ROWS, BLOCKS: what a program makes, powers of two.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    low, high = place_of_rows(row, start_low, start_high, stage)
    zero = tl.zeros((ROWS, BLOCKS), tl.uint32)
    c0, c1, c2, c3 = (
        zero + block.to(tl.uint32)[None, :],
        zero + low[:, None],
        zero + as_word(index),
        zero + high[:, None],
    )
    w0, w1, w2, w3 = _philox(c0, c1, c2, c3, as_word(key0), as_word(key1))
    z0, z1, z2, z3 = LANES(w0, w1, w2, w3)
    sigma = (as_word(sigma_high).to(tl.int64) << 32) | as_word(sigma_low).to(tl.int64)
    sigma = sigma.to(tl.float64, bitcast=True)
    blocks = (size + 3) // 4
    first = row.to(tl.int64)[:, None] * size
    for lane in tl.static_range(4):
        z = z0 if lane == 0 else z1 if lane == 1 else z2 if lane == 2 else z3
        column = (block + blocks * lane)[None, :]
        wanted = (row < rows)[:, None] & (block < blocks)[None, :] & (column < size)
        at = first + column
        if KEEP:
            tl.store(draws + at, z, mask=wanted)
        if ADD or SUBTRACT:
            noise = (z.to(tl.float64) * sigma).to(tl.float32)
            value = tl.load(x + column, mask=column < size, other=0.0)
        if ADD:
            tl.store(plus + at, to_type(value + noise, plus.dtype.element_ty), mask=wanted)
        if SUBTRACT:
            tl.store(minus + at, to_type(value - noise, minus.dtype.element_ty), mask=wanted)
