"""Noise on a grid compiled with numba: the same values as `grid_with_numpy`, many times faster.

Several rows are made together, so that short rows and the few further blocks also fill the processor's vectors. What
decides is listed without branches: whether 16 bits settle a draw cannot be guessed, and a wrong guess costs as much as
twenty draws.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from smoothcert.noise import constants as c
from smoothcert.noise.chacha_with_numba import fill_words
from smoothcert.noise.curve_with_numba import follow_curve
from smoothcert.noise.with_numba import compile_cached, has_feature, rows_together

_U4 = np.uint32
_U8 = np.uint64
_I4 = np.int32
_I8 = np.int64
_F = np.float32

# Places are unsigned: for a signed one, numba asks whether it counts from the end.
_ONE = _U8(1)
_WORDS = _U8(c.CHACHA_WORDS)
_PER_BLOCK = _U8(c.DRAWS_PER_BLOCK)
_FURTHER_BLOCKS = _U8(c.FURTHER_BLOCKS)
_FURTHER_PER_BLOCK = _U8(c.FURTHER_PER_BLOCK)
_MOST = _I4(c.GREATEST_WHOLE)
_HAS_FMA = has_feature("fma")


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _first_bits(words: Any, place: Any) -> Any:
    """The first 16 bits of the draw at this place. words: those of whole blocks, two draws in each."""
    at = _U8(place)
    return _U8(words[at >> _ONE] >> _U4((at & _ONE) << _U8(4))) & _U8(0xFFFF)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _look_up_all(draws: Any, listed: Any, words: Any, law: Any, rows: Any, blocks: Any, size: Any) -> Any:
    """Look up the draws of all rows. List those that 16 bits do not settle, in order; return their number."""
    table, _, least = law
    kept = _U8(0)
    for row in range(rows):
        first = row * blocks * c.DRAWS_PER_BLOCK
        for place in range(first, first + size):
            entry = table[_first_bits(words, place)]
            draws[_U8(place)] = entry + least
            listed[kept] = _U4(place)
            kept += _U8(entry < 0)
    return _I8(kept)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _look_up_listed(draws: Any, listed: Any, found: Any, words: Any, law: Any) -> Any:
    """Look up the listed draws. Keep those in the list that 16 bits do not settle; return their number."""
    table, _, least = law
    kept = _U8(0)
    for n in range(found):
        place = _U8(listed[_U8(n)])
        entry = table[_first_bits(words, place)]
        draws[place] = entry + least
        listed[kept] = _U4(place)
        kept += _U8(entry < 0)
    return _I8(kept)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _place_further(listed: Any, kept: Any, rows_of_blocks: Any, further: Any) -> Any:
    """Decide where the further bits of the listed draws are; return the number of blocks they need."""
    _, places, rows, blocks = further
    needed, rank, last_row = _U8(0), _U8(0), _U4(0)
    for n in range(kept):
        row = rows_of_blocks[_U8(listed[_U8(n)]) // _PER_BLOCK]
        rank = rank if row == last_row else _U8(0)
        last_row = row
        # Written for every draw, and the same for all that share a block.
        at = needed - _U8(rank % _FURTHER_PER_BLOCK != _U8(0))
        rows[at], blocks[at] = row, _U4(_FURTHER_BLOCKS + rank // _FURTHER_PER_BLOCK)
        places[_U8(n)] = _U4(at * _WORDS + rank % _FURTHER_PER_BLOCK * _U8(2))
        needed = at + _ONE
        rank += _ONE
    return _I8(needed)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _settle(entry: Any, first: Any, second: Any, third: Any, thresholds: Any) -> Any:
    """j - least from all 64 bits, starting at the threshold given by the table entry."""
    u = (_U8(first) << _U8(48)) | (_U8(second) << _U8(16)) | (_U8(third) >> _U8(16))
    below = _U8(-1 - entry)
    # There is one threshold to compare with, rarely another. The first is added without an (unpredictable) branch.
    below += _U8(thresholds[below] <= u)
    while below < _U8(thresholds.shape[0]) and thresholds[below] <= u:
        below += _ONE
    return below


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _settle_listed(draws: Any, listed: Any, kept: Any, words: Any, law: Any, further: Any) -> None:
    """Write the listed draws, which 16 bits do not settle."""
    table, thresholds, least = law
    further_words, places, _, _ = further
    for n in range(kept):
        place, at = _U8(listed[_U8(n)]), _U8(places[_U8(n)])
        first = _first_bits(words, place)
        second, third = further_words[at], further_words[at + _ONE]
        draws[place] = _I8(_settle(table[first], first, second, third, thresholds)) + least


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _stride(size: Any) -> Any:
    """From the first draw of a row to that of the next: a row begins with a block."""
    return (size + c.DRAWS_PER_BLOCK - 1) // c.DRAWS_PER_BLOCK * c.DRAWS_PER_BLOCK


@compile_cached
def _draw_rows(rows: Any, size: Any, law: Any, curve: Any, stream: Any, counter: Any, scratch: Any) -> None:
    """Write the steps of so many rows from `counter` on to draws, the first array of the scratch space.

    A row has `size` draws, and begins at a multiple of 32. law: table, thresholds and least step. curve: that of the
    law, or None.
    """
    draws, words, listed, further, rows_of_blocks, blocks_of_rows = scratch
    blocks = _stride(size) // c.DRAWS_PER_BLOCK
    fill_words(words, rows * blocks, rows_of_blocks, blocks_of_rows, stream, counter)
    if curve is not None:
        found = follow_curve(draws, listed, words, curve, rows, blocks, size)
        kept = _look_up_listed(draws, listed, found, words, law)
    else:
        kept = _look_up_all(draws, listed, words, law, rows, blocks, size)
    needed = _place_further(listed, kept, rows_of_blocks, further)
    fill_words(further[0], needed, further[2], further[3], stream, counter)
    _settle_listed(draws, listed, kept, words, law, further)


def _grid_draws(out: Any, law: Any, curve: Any, stream: Any, start: Any, scratch: Any) -> None:
    """out[i] = sample start+i of the stream: out (count, size) int32. Other arguments: see `_add_grid_noise`."""
    draws, size = scratch[0], out.shape[1]
    stride = _stride(size)
    at = 0
    while at < out.shape[0]:
        counter = _U8(start) + _U8(at)
        taken = rows_together(draws.shape[0] // stride, counter, out.shape[0] - at)
        _draw_rows(taken, size, law, curve, stream, counter, scratch)
        for i in range(taken):
            row, made = out[at + i], draws[i * stride :]
            for e in range(size):
                row[e] = _I4(made[e])
        at += taken


@intrinsic  # type: ignore[untyped-decorator]
def _multiply_add(typing_context: Any, a: Any, b: Any, added: Any) -> Any:
    """a·b + added, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _write_row(row: Any, k: Any, made: Any, parts: Any) -> None:
    """row = (k + made, clipped) / steps. parts: steps, then 1/steps as a sum of two numbers, or zeros.

    With two parts of 1/steps the quotient is k·high + k·low, of which only the second product and the sum are rounded:
    the same bits as the division (`grid_noise.split_inverse`), in a third of the time.
    """
    steps, high, low = parts
    if _HAS_FMA and high != _F(0.0):
        for e in range(row.shape[0]):
            whole = _F(max(-_MOST, min(_MOST, _I4(k[e] + _I4(made[e])))))
            row[e] = _multiply_add(whole, high, _F(whole * low))
    else:
        for e in range(row.shape[0]):
            row[e] = _F(max(-_MOST, min(_MOST, _I4(k[e] + _I4(made[e]))))) / steps


def _add_grid_noise(out: Any, k: Any, parts: Any, law: Any, curve: Any, stream: Any, start: Any, scratch: Any) -> None:
    """out[i] = (k + sample start+i of the stream, clipped to ±(2²⁴-1)) / steps. Releases the GIL.

    out: (count, size) float32; k: (size,) int32; parts: see `_write_row`; law, curve, scratch: see `_draw_rows`;
    stream: the key, index and stage.
    """
    draws, size = scratch[0], out.shape[1]
    stride = _stride(size)
    at = 0
    while at < out.shape[0]:
        counter = _U8(start) + _U8(at)
        taken = rows_together(draws.shape[0] // stride, counter, out.shape[0] - at)
        _draw_rows(taken, size, law, curve, stream, counter, scratch)
        for i in range(taken):
            _write_row(out[at + i], k, draws[i * stride :], parts)
        at += taken


ADD_GRID_NOISE = compile_cached(_add_grid_noise)
GRID_DRAWS = compile_cached(_grid_draws)
