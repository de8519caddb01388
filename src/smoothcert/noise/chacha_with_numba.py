"""ChaCha20 compiled with numba: many blocks at once, in vectors of words, one lane for each block.

One round waits for the one before it. So two vectors of blocks are made in turn where the processor has registers for
both (AVX-512), which takes three quarters of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from smoothcert.noise import constants as c
from smoothcert.noise.with_numba import compile_cached, has_feature

LANES = 16 if has_feature("avx512f") else 8
"""Blocks in a vector: as many words as a vector of the processor holds, at least eight."""
_VECTORS = 2 if has_feature("avx512f") else 1
"""Vectors made in turn."""
_WORD = np.uint64(c.WORD)
_WORDS = c.CHACHA_WORDS
_U4 = np.uint32
_U8 = np.uint64

_VECTOR = ir.VectorType(ir.IntType(32), LANES)
_STEPS = ((0, 1, 3, 16), (2, 3, 1, 12), (0, 1, 3, 8), (2, 3, 1, 7))
"""Of a quarter round: a += b; d ^= a; rotate d. Places of a, b and d in the quarter, and the bits to rotate by."""


def array_data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """The pointer to the first element of an array."""
    return make_array(kind)(context, builder, array).data


def load_vector(builder: Any, data: Any, at: Any, vector: Any) -> Any:
    """The vector that begins at element `at`."""
    return builder.load(builder.bitcast(builder.gep(data, [at]), vector.as_pointer()), align=1)


def store_vector(builder: Any, value: Any, data: Any, at: Any) -> None:
    builder.store(value, builder.bitcast(builder.gep(data, [at]), value.type.as_pointer()), align=1)


def splat(builder: Any, value: Any, vector: Any) -> Any:
    """The value in every lane."""
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
    return builder.shuffle_vector(single, single, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None))


def _mix_and_rotate(builder: Any, states: Sequence[list[Any]], quarters: Sequence[Sequence[int]]) -> None:
    """Quarter rounds that do not depend on each other, of several vectors of blocks, step by step."""
    independent = [(state, quarter) for state in states for quarter in quarters]
    for a, b, d, bits in _STEPS:
        left, right = (ir.Constant(_VECTOR, [n] * LANES) for n in (bits, 32 - bits))
        for state, at in independent:
            state[at[a]] = builder.add(state[at[a]], state[at[b]])
        for state, at in independent:
            mixed = builder.xor(state[at[d]], state[at[a]])
            state[at[d]] = builder.or_(builder.shl(mixed, left), builder.lshr(mixed, right))


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """LANES vectors: lane j of vector i becomes lane i of vector j. In each turn, half of the lanes are exchanged."""
    step = 1
    while step < LANES:
        upper = [i if i & step == 0 else LANES + i - step for i in range(LANES)]
        lower = [i + step if i & step == 0 else LANES + i for i in range(LANES)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), mask) for mask in (upper, lower)]
        exchanged = list(rows)
        for i in range(LANES):
            if i & step == 0:
                for place, mask in zip((i, i + step), masks, strict=True):
                    exchanged[place] = builder.shuffle_vector(rows[i], rows[i + step], mask)
        rows, step = exchanged, 2 * step
    return rows


def _block_maker(vectors: int) -> Any:
    """A function that makes vectors·LANES blocks."""

    @intrinsic  # type: ignore[untyped-decorator]
    def make_blocks(typing_context: Any, words: Any, at: Any, blocks: Any, low: Any, stream: Any, high: Any) -> Any:
        """Write the words of a block, then those of the next, to words[at …].

        blocks, low: (≥ vectors·LANES,) uint32, the first two words of the positions; high: the last word.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = [array_data(context, builder, signature.args[n], arguments[n]) for n in (0, 2, 3)]
            long = ir.IntType(64)
            key, index, _ = cgutils.unpack_tuple(builder, arguments[4], 3)
            shared = [ir.Constant(_VECTOR, [value] * LANES) for value in c.CHACHA_CONSTANTS]
            shared += [splat(builder, word, _VECTOR) for word in cgutils.unpack_tuple(builder, key, 8)]
            last = [splat(builder, word, _VECTOR) for word in (index, arguments[5])]
            starts = [
                [*shared, *(load_vector(builder, array, long(n * LANES), _VECTOR) for array in data[1:]), *last]
                for n in range(vectors)
            ]
            kept = [[cgutils.alloca_once_value(builder, word) for word in start] for start in starts]
            with cgutils.for_range(builder, ir.IntType(32)(c.CHACHA_DOUBLE_ROUNDS)):
                states = [[builder.load(word) for word in places] for places in kept]
                for quarters in (c.CHACHA_QUARTERS[:4], c.CHACHA_QUARTERS[4:]):
                    _mix_and_rotate(builder, states, quarters)
                for state, places in zip(states, kept, strict=True):
                    for word, place in zip(state, places, strict=True):
                        builder.store(word, place)
            for n, (start, places) in enumerate(zip(starts, kept, strict=True)):
                made = [builder.add(builder.load(place), word) for place, word in zip(places, start, strict=True)]
                for half in range(0, _WORDS, LANES):
                    for lane, vector in enumerate(_transpose(builder, made[half : half + LANES])):
                        place = (n * LANES + lane) * _WORDS + half
                        store_vector(builder, vector, data[0], builder.add(arguments[1], long(place)))
            return context.get_dummy_value()

        return types.void(words, types.int64, blocks, low, stream, types.uint32), generate

    return make_blocks


_make_one, _make_several = _block_maker(1), _block_maker(_VECTORS)
_MOST = LANES * _VECTORS


@compile_cached
def fill_words(words: Any, used: Any, rows: Any, blocks: Any, stream: Any, counter: Any) -> None:
    """Write block blocks[n] of row counter + rows[n] to words[16n …] for n < used, rounded up to a multiple of LANES.

    The upper word of the counter must be the same for all of these rows. stream: key, index and stage.
    """
    low = np.empty(_MOST, dtype=np.uint32)
    high = _U4(((counter >> _U8(32)) << _U8(8)) | _U8(stream[2]))
    first = 0
    while first < used:
        taken = _MOST if used - first > LANES else LANES
        for lane in range(taken):
            low[lane] = _U4(_U4(counter & _WORD) + rows[first + lane])
        if taken == LANES:
            _make_one(words, first * _WORDS, blocks[first:], low, stream, high)
        else:
            _make_several(words, first * _WORDS, blocks[first:], low, stream, high)
        first += taken
