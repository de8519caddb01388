"""Noise on a grid in one Triton kernel: ChaCha20, table look-up, sum, division and cast; the bits of `grid_with_numpy`.

One program makes whole rows, several if they are short, tile by tile: the number of earlier draws of the row that 16
bits did not settle is carried from tile to tile. Only whole numbers and one division, rounded correctly, are used.
Arithmetic on tensors of the type uint32 wraps. Constants are at the right of operators: Triton's interpreter, which
tests run this with, needs that.
"""

# Triton compiles functions from their text, and would take annotations for names of its language.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from smoothcert.noise import constants as c
from smoothcert.noise.kernel_parts import as_word, place_of_rows, to_type

_C0, _C1, _C2, _C3 = (tl.constexpr(word) for word in c.CHACHA_CONSTANTS)
_DOUBLE_ROUNDS = tl.constexpr(c.CHACHA_DOUBLE_ROUNDS)
_WORDS = tl.constexpr(c.CHACHA_WORDS)
_DRAWS = tl.constexpr(c.DRAWS_PER_BLOCK)
_FURTHER = tl.constexpr(c.FURTHER_BLOCKS)
_FURTHER_DRAWS = tl.constexpr(c.FURTHER_PER_BLOCK)
_GREATEST = tl.constexpr(c.GREATEST_WHOLE)
_LAST_ENTRY = tl.constexpr((1 << 16) - 1)

NUMBERS = (
    "least",
    "count",
    "divisor",
    "rows",
    "size",
    "start_low",
    "start_high",
    "index",
    "stage",
    *(f"key{i}" for i in range(8)),
)
"""Arguments that must not be compiled into a kernel: 32-bit words as signed numbers, and numbers below 2³¹."""
POINTERS = ("plus", "minus", "draws", "place")
"""Rows of a batch begin anywhere: what is compiled must not depend on where."""


@triton.jit
def _quarter_rounds(
    a0, a1, a2, a3, b0, b1, b2, b3,
    c0, c1, c2, c3, d0, d1, d2, d3,
):  # fmt: skip
    """Four quarter rounds: of a0 b0 c0 d0, of a1 b1 c1 d1, …; one call, because calls are slow in the interpreter."""
    a0, a1, a2, a3 = a0 + b0, a1 + b1, a2 + b2, a3 + b3
    d0, d1, d2, d3 = d0 ^ a0, d1 ^ a1, d2 ^ a2, d3 ^ a3
    d0, d1, d2, d3 = (d0 << 16) | (d0 >> 16), (d1 << 16) | (d1 >> 16), (d2 << 16) | (d2 >> 16), (d3 << 16) | (d3 >> 16)
    c0, c1, c2, c3 = c0 + d0, c1 + d1, c2 + d2, c3 + d3
    b0, b1, b2, b3 = b0 ^ c0, b1 ^ c1, b2 ^ c2, b3 ^ c3
    b0, b1, b2, b3 = (b0 << 12) | (b0 >> 20), (b1 << 12) | (b1 >> 20), (b2 << 12) | (b2 >> 20), (b3 << 12) | (b3 >> 20)
    a0, a1, a2, a3 = a0 + b0, a1 + b1, a2 + b2, a3 + b3
    d0, d1, d2, d3 = d0 ^ a0, d1 ^ a1, d2 ^ a2, d3 ^ a3
    d0, d1, d2, d3 = (d0 << 8) | (d0 >> 24), (d1 << 8) | (d1 >> 24), (d2 << 8) | (d2 >> 24), (d3 << 8) | (d3 >> 24)
    c0, c1, c2, c3 = c0 + d0, c1 + d1, c2 + d2, c3 + d3
    b0, b1, b2, b3 = b0 ^ c0, b1 ^ c1, b2 ^ c2, b3 ^ c3
    b0, b1, b2, b3 = (b0 << 7) | (b0 >> 25), (b1 << 7) | (b1 >> 25), (b2 << 7) | (b2 >> 25), (b3 << 7) | (b3 >> 25)
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3


@triton.jit
def _interleave(w0, w1, w2, w3, w4, w5, w6, w7):
    """(…, 2, 2, 2): eight arrays as one, the first index in the last place but two."""
    w04, w15, w26, w37 = tl.join(w0, w4), tl.join(w1, w5), tl.join(w2, w6), tl.join(w3, w7)
    return tl.join(tl.join(w04, w26), tl.join(w15, w37))


@triton.jit
def _make_words(block, low, index, high, key, ROWS: tl.constexpr, BLOCKS: tl.constexpr):
    """(ROWS, 16·BLOCKS): the words of some blocks of ChaCha20, in order. All arguments: uint32 of (ROWS, BLOCKS)."""
    k0, k1, k2, k3, k4, k5, k6, k7 = key
    zero = tl.zeros((ROWS, BLOCKS), tl.uint32)
    i0, i1, i2, i3 = zero + _C0, zero + _C1, zero + _C2, zero + _C3
    i4, i5, i6, i7, i8, i9, i10, i11 = (
        zero + k0, zero + k1, zero + k2, zero + k3, zero + k4, zero + k5, zero + k6, zero + k7,
    )  # fmt: skip
    i12, i13, i14, i15 = zero + block, zero + low, zero + index, zero + high
    x0, x1, x2, x3, x4, x5, x6, x7 = i0, i1, i2, i3, i4, i5, i6, i7
    x8, x9, x10, x11, x12, x13, x14, x15 = i8, i9, i10, i11, i12, i13, i14, i15
    for _ in range(_DOUBLE_ROUNDS):  # the columns, then the diagonals
        x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = _quarter_rounds(
            x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15
        )
        x0, x1, x2, x3, x5, x6, x7, x4, x10, x11, x8, x9, x15, x12, x13, x14 = _quarter_rounds(
            x0, x1, x2, x3, x5, x6, x7, x4, x10, x11, x8, x9, x15, x12, x13, x14
        )
    even = _interleave(x0 + i0, x2 + i2, x4 + i4, x6 + i6, x8 + i8, x10 + i10, x12 + i12, x14 + i14)
    odd = _interleave(x1 + i1, x3 + i3, x5 + i5, x7 + i7, x9 + i9, x11 + i11, x13 + i13, x15 + i15)
    return tl.reshape(tl.join(even, odd), (ROWS, BLOCKS * _WORDS))


@triton.jit
def _take(words, index):
    """The words at these places of all rows together. Triton compiles `gather` reliably for one dimension only."""
    return tl.reshape(tl.gather(tl.ravel(words), tl.ravel(index), 0), index.shape)


@triton.jit
def _settle(draws, second, third, table, thresholds, count, entry):
    """The number of thresholds up to all 64 bits of each draw; `entry`, where that is settled.

    It lies between those up to the first number with these 16 bits, and those up to the first one with the next.
    """
    unsettled = entry < 0
    following = tl.load(table + draws + 1, mask=unsettled & (draws < _LAST_ENTRY), other=0).to(tl.int32)
    following = tl.where(following < 0, -1 - following, following)
    following = tl.where(draws == _LAST_ENTRY, count, following)
    low = tl.where(unsettled, -1 - entry, entry)
    high = tl.where(unsettled, following, entry)
    bits = (draws.to(tl.uint64) << 48) | (second.to(tl.uint64) << 16) | (third >> 16).to(tl.uint64)
    while tl.max(tl.max(high - low, 1), 0) > 0:
        searched = low < high
        middle = (low + high) >> 1
        limit = tl.load(thresholds + middle, mask=searched, other=0).to(tl.uint64, bitcast=True)
        passes = searched & (limit <= bits)
        high = tl.where(searched & (limit > bits), middle, high)
        low = tl.where(passes, middle + 1, low)
    return low


@triton.jit
def _write(out, at, steps, divisor, mask):
    """`from_grid`, in the type of `out`."""
    inside = tl.minimum(tl.maximum(steps, -_GREATEST), _GREATEST).to(tl.float32)
    value = tl.div_rn(inside, tl.zeros_like(inside) + divisor.to(tl.float32))
    tl.store(out + at, to_type(value, out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=POINTERS)
def add_noise_on_grid(
    plus, minus, draws, place, table, thresholds, least, count, divisor,
    rows, size, start_low, start_high, index, stage,
    key0, key1, key2, key3, key4, key5, key6, key7,
    ROWS: tl.constexpr, BLOCKS: tl.constexpr, FURTHER: tl.constexpr,
    ADD: tl.constexpr, SUBTRACT: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Write rows of x+ε (if ADD), x-ε (if SUBTRACT) and the steps of ε (if KEEP); each (rows, size), contiguous.

    plus, minus: floating-point; draws: int32. place: (size,) int32. table: (2¹⁶,) int16 or int32; thresholds: int64
    with the bits of the uint64 numbers, `count` of them. ROWS, BLOCKS: what a program makes at once, and FURTHER: the
    blocks of further bits for each row of it; powers of two.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    low, high = place_of_rows(row, start_low, start_high, stage)
    low, high = low[:, None], high[:, None]
    key = (
        as_word(key0), as_word(key1), as_word(key2), as_word(key3),
        as_word(key4), as_word(key5), as_word(key6), as_word(key7),
    )  # fmt: skip
    passed = tl.zeros((ROWS,), tl.int32)  # draws of the row that 16 bits did not settle, in earlier tiles
    for first in range(0, (size + _DRAWS - 1) // _DRAWS, BLOCKS):
        block = (first + tl.arange(0, BLOCKS)).to(tl.uint32)[None, :]
        words = _make_words(block, low, as_word(index), high, key, ROWS, BLOCKS)
        drawn = tl.reshape(tl.join(words & 0xFFFF, words >> 16), (ROWS, BLOCKS * _DRAWS)).to(tl.int32)
        column = first * _DRAWS + tl.arange(0, BLOCKS * _DRAWS)
        wanted = (row < rows)[:, None] & (column < size)[None, :]
        entry = tl.load(table + drawn, mask=wanted, other=0).to(tl.int32)
        unsettled = entry < 0
        begun = (passed // _FURTHER_DRAWS)[:, None]  # the first block of further bits that this tile needs
        number = passed[:, None] + tl.cumsum(unsettled.to(tl.int32), 1) - 1 - begun * _FURTHER_DRAWS
        last = tl.max(tl.max(tl.where(unsettled, number, -1), 1), 0)
        second = tl.zeros((ROWS, BLOCKS * _DRAWS), tl.uint32)
        third = second
        done = 0
        while done * _FURTHER_DRAWS <= last:
            further_block = (begun + done + tl.arange(0, FURTHER)[None, :]).to(tl.uint32) + _FURTHER
            further = _make_words(further_block, low, as_word(index), high, key, ROWS, FURTHER)
            word = (number - done * _FURTHER_DRAWS) * 2
            here = unsettled & (word >= 0) & (word < FURTHER * _WORDS)
            word = tl.where(here, word, 0) + (tl.arange(0, ROWS) * (FURTHER * _WORDS))[:, None]
            second = tl.where(here, _take(further, word), second)
            third = tl.where(here, _take(further, word + 1), third)
            done += FURTHER
        steps = _settle(drawn, second, third, table, thresholds, count, entry) + least
        at = row.to(tl.int64)[:, None] * size + column[None, :]
        if KEEP:
            tl.store(draws + at, steps, mask=wanted)
        if ADD or SUBTRACT:
            k = tl.load(place + column, mask=column < size, other=0)[None, :]
        if ADD:
            _write(plus, at, k + steps, divisor, wanted)
        if SUBTRACT:
            _write(minus, at, k - steps, divisor, wanted)
        passed += tl.sum(unsettled.to(tl.int32), 1)
