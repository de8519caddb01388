"""Noise on a grid compiled with numba: the same values as `grid_with_numpy`, many times faster.

Several rows are made together, so that short rows and the few further blocks also fill the processor's vectors. The
block function is written in vectors of words, one for each block that is made at once.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from smoothcert.noise import constants as c
from smoothcert.noise.with_numba import compile_cached, rows_together

_U4 = np.uint32
_U8 = np.uint64
_I4 = np.int32
_I8 = np.int64
_F = np.float32

_WORD = _U8(c.WORD)
_LANES = 16 if llvm.get_host_cpu_features().get("avx512f") else 8
"""Blocks made at once: as many words as a vector of the processor holds, at least eight."""
_WORDS = c.CHACHA_WORDS
_PER_BLOCK = c.DRAWS_PER_BLOCK
_FURTHER_BLOCKS = _U4(c.FURTHER_BLOCKS)
_FURTHER_PER_BLOCK = c.FURTHER_PER_BLOCK
_MOST = _I4(c.GREATEST_WHOLE)


@intrinsic  # type: ignore[untyped-decorator]
def _make_blocks(typing_context: Any, words: Any, at: Any, blocks: Any, low: Any, stream: Any, high: Any) -> Any:
    """_LANES blocks of ChaCha20 at once: word w of block n goes to words[at + w·_LANES + n].

    blocks, low: (≥ _LANES,) uint32, the first two words of the positions; high: the last word. The code is written in
    vectors of _LANES words; the compiler maps them to the vectors of the processor.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def data(argument: int) -> Any:
            return make_array(signature.args[argument])(context, builder, arguments[argument]).data

        def splat(value: Any) -> Any:
            single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
            return builder.shuffle_vector(single, single, ir.Constant(vector, [0] * _LANES))

        def load(argument: int) -> Any:
            return builder.load(builder.bitcast(data(argument), vector.as_pointer()), align=4)

        def add_mix_rotate(state: list[Any], a: int, b: int, d: int, places: int) -> None:
            state[a] = builder.add(state[a], state[b])
            mixed = builder.xor(state[d], state[a])
            left, right = ir.Constant(vector, [places] * _LANES), ir.Constant(vector, [32 - places] * _LANES)
            state[d] = builder.or_(builder.shl(mixed, left), builder.lshr(mixed, right))

        vector = ir.VectorType(ir.IntType(32), _LANES)
        key, index, _ = cgutils.unpack_tuple(builder, arguments[4], 3)
        start = [ir.Constant(vector, [value] * _LANES) for value in c.CHACHA_CONSTANTS]
        start += [splat(word) for word in cgutils.unpack_tuple(builder, key, 8)]
        start += [load(2), load(3), splat(index), splat(arguments[5])]
        kept = [cgutils.alloca_once_value(builder, word) for word in start]
        with cgutils.for_range(builder, ir.IntType(32)(c.CHACHA_DOUBLE_ROUNDS)):
            state = [builder.load(word) for word in kept]
            for a, b, third, d in c.CHACHA_QUARTERS:
                add_mix_rotate(state, a, b, d, 16)
                add_mix_rotate(state, third, d, b, 12)
                add_mix_rotate(state, a, b, d, 8)
                add_mix_rotate(state, third, d, b, 7)
            for word, place in zip(state, kept, strict=True):
                builder.store(word, place)
        for w in range(c.CHACHA_WORDS):
            place = builder.gep(data(0), [builder.add(arguments[1], arguments[1].type(w * _LANES))])
            target = builder.bitcast(place, vector.as_pointer())
            builder.store(builder.add(builder.load(kept[w]), start[w]), target, align=4)
        return context.get_dummy_value()

    return types.void(words, types.int64, blocks, low, stream, types.uint32), generate


@compile_cached
def _fill_words(words: Any, used: Any, rows: Any, blocks: Any, stream: Any, counter: Any) -> None:
    """Write block blocks[n] of row counter + rows[n] for the first `used` n, rounded up to a multiple of _LANES.

    The place of its words: `_word_place`. The upper word of the counter must be the same for all of these rows.
    """
    low = np.empty(_LANES, dtype=np.uint32)
    high = _U4(((counter >> _U8(32)) << _U8(8)) | _U8(stream[2]))
    for first in range(0, used, _LANES):
        for lane in range(_LANES):
            low[lane] = _U4(_U4(counter & _WORD) + rows[first + lane])
        _make_blocks(words, first * _WORDS, blocks[first : first + _LANES], low, stream, high)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _word_place(n: Any, w: Any) -> Any:
    """The index at which `_fill_words` writes word w of block n."""
    return (_U8(n) // _U8(_LANES)) * _U8(_LANES * _WORDS) + _U8(w) * _U8(_LANES) + _U8(n) % _U8(_LANES)


@intrinsic  # type: ignore[untyped-decorator]
def _signs(typing_context: Any, values: Any, at: Any) -> Any:
    """The sign bits of values[at : at+_PER_BLOCK], the first in the lowest place of a uint32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = make_array(signature.args[0])(context, builder, arguments[0]).data
        vector = ir.VectorType(context.get_value_type(signature.args[0].dtype), _PER_BLOCK)
        here = builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer())
        negative = builder.icmp_signed("<", builder.load(here, align=1), ir.Constant(vector, [0] * _PER_BLOCK))
        return builder.bitcast(negative, ir.IntType(_PER_BLOCK))

    return types.uint32(values, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _lowest_set(typing_context: Any, bits: Any) -> Any:
    """The position of the lowest set bit of a uint32, which must not be 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.uint32(types.uint32), generate


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _look_up(draws: Any, pending: Any, table: Any, words: Any, first_block: Any) -> Any:
    """Write the table entry for the first 16 bits of every draw of a row into draws: (32 · blocks,).

    Draws that are not settled are listed in `pending`; returns their number.
    """
    found = 0
    for block in range(draws.shape[0] // _PER_BLOCK):
        e = _U8(block * _PER_BLOCK)
        place = _word_place(first_block + block, 0)
        for _ in range(_WORDS):
            word = words[place]
            draws[e] = table[word & _U4(0xFFFF)]
            draws[e + _U8(1)] = table[word >> _U4(16)]
            e += _U8(2)
            place += _U8(_LANES)
        unsettled = _signs(draws, block * _PER_BLOCK)
        while unsettled != _U4(0):
            pending[found] = _I4(block * _PER_BLOCK + _lowest_set(unsettled))
            found += 1
            unsettled = _U4(unsettled & _U4(unsettled - _U4(1)))
    return found


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _first_bits(words: Any, first_block: Any, e: Any) -> Any:
    """The first 16 bits of draw e of the row whose blocks begin at first_block."""
    at = _U8(e)
    place = _word_place(_U8(first_block) + at // _U8(_PER_BLOCK), at % _U8(_PER_BLOCK) // _U8(2))
    return (words[place] >> _U4(_U8(16) * (at % _U8(2)))) & _U4(0xFFFF)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _settle(draw: Any, first: Any, second: Any, third: Any, thresholds: Any) -> Any:
    """j - least from all 64 bits, starting at the threshold given by the table entry."""
    u = (_U8(first) << _U8(48)) | (_U8(second) << _U8(16)) | (_U8(third) >> _U8(16))
    below = _I8(-1 - draw)
    # There is one threshold to compare with, rarely another. The first is added without an (unpredictable) branch.
    below += _I8(thresholds[below] <= u)
    while below < thresholds.shape[0] and thresholds[below] <= u:
        below += 1
    return below


@compile_cached
def _draw_rows(draws: Any, law: Any, stream: Any, counter: Any, places: Any, scratch: Any) -> None:
    """Write rows of j - least, from `counter` on, into draws: (rows, 32 · blocks), of the dtype of the table.

    Draws beyond the end of a row are made and settled like the others. Other arguments: see `_add_grid_noise`.
    """
    table, thresholds = law
    rows_of_blocks, blocks_of_rows = places
    words, further_words, further_rows, further_blocks, pending, counts = scratch
    rows, size = draws.shape
    blocks = size // _PER_BLOCK
    _fill_words(words, rows * blocks, rows_of_blocks, blocks_of_rows, stream, counter)
    needed = 0
    for i in range(rows):
        counts[i] = _look_up(draws[i], pending[i * size :], table, words, i * blocks)
        for block in range((counts[i] + _FURTHER_PER_BLOCK - 1) // _FURTHER_PER_BLOCK):
            further_rows[needed] = _U4(i)
            further_blocks[needed] = _U4(_FURTHER_BLOCKS + _U4(block))
            needed += 1
    _fill_words(further_words, needed, further_rows, further_blocks, stream, counter)
    used = 0
    for i in range(rows):
        row, unsettled = draws[i], pending[i * size :]
        for rank in range(counts[i]):
            e = unsettled[rank]
            place = _word_place(used + rank // _FURTHER_PER_BLOCK, 2 * (rank % _FURTHER_PER_BLOCK))
            first = _first_bits(words, i * blocks, e)
            second, third = further_words[place], further_words[place + _U8(_LANES)]
            row[e] = _settle(row[e], first, second, third, thresholds)
        used += (counts[i] + _FURTHER_PER_BLOCK - 1) // _FURTHER_PER_BLOCK


def _grid_draws(out: Any, law: Any, least: Any, stream: Any, start: Any, places: Any, scratch: Any) -> None:
    """out[i] = sample start+i of the stream: out (count, size) int32. Other arguments: see `_add_grid_noise`."""
    draws, working = scratch
    at = 0
    while at < out.shape[0]:
        counter = _U8(start) + _U8(at)
        taken = rows_together(draws.shape[0], counter, out.shape[0] - at)
        _draw_rows(draws[:taken], law, stream, counter, places, working)
        for i in range(taken):
            row, made = out[at + i], draws[i]
            for e in range(row.shape[0]):
                row[e] = _I4(made[e] + least)
        at += taken


def _add_grid_noise(
    out: Any, k: Any, steps: Any, law: Any, least: Any, stream: Any, start: Any, places: Any, scratch: Any
) -> None:
    """out[i] = (k + sample start+i of the stream, clipped to ±(2²⁴-1)) / steps. Releases the GIL.

    out: (count, size) float32; k: (size,) int32; steps: float32; law: table and thresholds; stream: the key, index and
    stage; places: row and block numbers of the blocks made together; scratch: scratch space.
    """
    draws, working = scratch
    at = 0
    while at < out.shape[0]:
        counter = _U8(start) + _U8(at)
        taken = rows_together(draws.shape[0], counter, out.shape[0] - at)
        _draw_rows(draws[:taken], law, stream, counter, places, working)
        for i in range(taken):
            row, made = out[at + i], draws[i]
            for e in range(row.shape[0]):
                whole = _I4(_I4(k[e] + made[e]) + least)
                row[e] = _F(max(-_MOST, min(_MOST, whole))) / steps
        at += taken


ADD_GRID_NOISE = compile_cached(_add_grid_noise)
GRID_DRAWS = compile_cached(_grid_draws)
