"""Exact noise on a grid, in host memory: compiled where numba is installed, plain numpy otherwise; the same values."""

from __future__ import annotations

import functools
import threading
import warnings
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.noise import constants as c
from smoothcert.noise import grid_with_numpy
from smoothcert.noise.grid_curve import curve_of
from smoothcert.noise.grid_law import FARTHEST, GridLaw, check_levels, grid_law
from smoothcert.noise.grid_with_numpy import grid_key
from smoothcert.noise.host import check_counters, row_chunks
from smoothcert.records import InputArray, Noise, Stage, StreamId

Levels = NDArray[np.int32]
"""Whole numbers k that represent k/(L-1)."""

_BLOCKS_TOGETHER = 512
"""Blocks of ChaCha20 that the compiled generator makes together, at least: 32 KB of random bits."""
_of_thread = threading.local()
"""The scratch space that a thread used last."""
_MOST_TOGETHER = 32
"""The compiled generator makes this many blocks at once, or a divisor of it."""
_MOST_SPLIT = 2**20


def grid_draws(law: GridLaw, stream: StreamId, *, start: int, count: int, size: int) -> Levels:
    """Samples start … start+count-1 of a stream: steps j of this law. Returns (count, size) int32."""
    check_counters(start=start, count=count)
    out = np.empty((count, size), dtype=np.int32)
    compiled = _find_compiled(wide=law.table.dtype != np.int16)
    if compiled is not None:
        compiled[1](out, *_arguments(law, stream, start=start, count=count, size=size))
        return out
    for rows in row_chunks(count, size):
        first, many = start + rows.start, rows.stop - rows.start
        out[rows] = grid_with_numpy.grid_draws(law, stream, start=first, count=many, size=size)
    return out


def add_grid_noise(out: InputArray, k: Levels, law: GridLaw, stream: StreamId, *, start: int) -> None:
    """Write the noisy copy of levels k with sample start+i of the stream into row i of `out`.

    The result is `from_grid(k + grid_draws(…))`. out: (count, size) float32, C-contiguous; k: (size,) int32, |k| ≤ 2²³.
    """
    count, size = out.shape
    check_counters(start=start, count=count)
    compiled = _find_compiled(wide=law.table.dtype != np.int16)
    if compiled is not None:
        shared = _arguments(law, stream, start=start, count=count, size=size)
        compiled[0](out, k, split_inverse(law.levels - 1), *shared)
        return
    for rows in row_chunks(count, size):
        first, many = start + rows.start, rows.stop - rows.start
        j = grid_with_numpy.grid_draws(law, stream, start=first, count=many, size=size)
        from_grid(k + j, law.levels, out=out[rows])


def from_grid(integers: Levels, levels: int, out: InputArray | None = None) -> InputArray:
    """float32(k) / float32(levels-1), k clipped to ±(2²⁴-1): one division, rounded once, as in datasets.

    integers: int32 of any shape; out: float32 of the same shape.
    """
    inside = np.clip(integers, -c.GREATEST_WHOLE, c.GREATEST_WHOLE).astype(np.float32)
    return np.divide(inside, np.float32(levels - 1), out=out)


def to_grid(inputs: InputArray, levels: int) -> Levels:
    """The level k of each value: the inverse of `from_grid`. inputs: float32 of any shape.

    Raises an InputError if a value is not exactly float32(k)/float32(levels-1) for a whole number |k| ≤ 2²³. Whether
    values may lie outside [0, 1] is not checked here.
    """
    check_levels(levels)
    given = np.asarray(inputs, dtype=np.float32)
    nearest = np.rint(given.astype(np.float64) * (levels - 1))
    if not (np.abs(nearest) <= FARTHEST).all():  # NaN and infinity are off the grid too
        nearest = np.clip(np.nan_to_num(nearest), -FARTHEST, FARTHEST)
    k: Levels = nearest.astype(np.int32)
    # |k| ≤ 2²³, so nothing is to be clipped as in `from_grid`.
    off = k.astype(np.float32) / np.float32(levels - 1) != given
    if off.any():
        at = tuple(int(i) for i in np.argwhere(off)[0])
        raise InputError(
            f"{int(off.sum())} of {given.size} input values are not on the grid of {levels} levels, 0, 1/{levels - 1}, "
            f"2/{levels - 1} … 1, the first being {float(given[at])!r} at {list(at)}: round the inputs to the grid "
            f"(numpy.rint(x * {levels - 1}).astype('float32') / numpy.float32({levels - 1})), or use noise in floating "
            "point (grid='float'; on the command line --noise float)"
        )
    return k


@functools.cache
def _find_compiled(*, wide: bool) -> Any:
    """The compiled generators of noisy inputs and of draws, if numba is installed and they agree with plain numpy.

    wide: for tables of int32, else of int16.
    """
    try:
        from smoothcert.noise.grid_with_numba import ADD_GRID_NOISE, GRID_DRAWS
    except ImportError:
        return None
    # In the narrow law 16 bits settle most draws, in the wide one hardly any. The upper word of the counter changes
    # within these rows.
    law = grid_law(Noise.UNIFORM, sigma=0.5, levels=2**16) if wide else grid_law(Noise.GAUSSIAN, sigma=0.5, levels=256)
    stream, size = StreamId(seed=11, index=3, stage=Stage.ESTIMATION), 2 * c.DRAWS_PER_BLOCK + 5
    start, k = 2**33 - 5, np.arange(size, dtype=np.int32)
    expected = grid_with_numpy.grid_draws(law, stream, start=start, count=40, size=size)
    draws, noisy = np.empty_like(expected), np.empty(expected.shape, dtype=np.float32)
    shared = _arguments(law, stream, start=start, count=len(expected), size=size)
    GRID_DRAWS(draws, *shared)
    ADD_GRID_NOISE(noisy, k, split_inverse(law.levels - 1), *shared)
    if not (np.array_equal(draws, expected) and np.array_equal(noisy, from_grid(k + expected, law.levels))):
        warnings.warn(
            "the compiled generator of noise on a grid is not exact on this machine; plain numpy is used", stacklevel=2
        )
        return None
    return ADD_GRID_NOISE, GRID_DRAWS


def _arguments(law: GridLaw, stream: StreamId, *, start: int, count: int, size: int) -> tuple[Any, ...]:
    """A law, samples of a stream and scratch space, as the compiled generators take them."""
    scratch = _scratch(law, count=count, size=size)
    return *_list_tables(law), _list_words(stream), np.uint64(start), scratch


@functools.lru_cache(maxsize=16)
def _list_tables(law: GridLaw) -> tuple[Any, ...]:
    """(table, thresholds, least step), and the curve of the law if this processor can follow it."""
    from smoothcert.noise.curve_with_numba import CURVES_WORK

    has_curve = CURVES_WORK and law.table.dtype == np.int16
    return (law.table, law.thresholds, law.table.dtype.type(law.least)), curve_of(law) if has_curve else None


@functools.lru_cache(maxsize=64)
def split_inverse(steps: int) -> tuple[np.float32, np.float32, np.float32]:
    """steps, and 1/steps as high + low: with them k·high + k·low, the sum rounded once, is the float32 of k/steps.

    high and low are float32; |k| < 2²⁴ is whole. Why it is the same: the rounding of low, and that of k·low, change
    the sum by at most 2⁻⁴⁷ of its size. If k/steps = M/2ᵉ with an odd M of 25 bits, the middle between two float32,
    then M divides k, which is too small. So k/steps differs from every such middle by at least 1/(steps·2ᵉ), which is
    2⁻²⁵/steps of its size: more than 2⁻⁴⁷, if steps ≤ 2²⁰. For more steps both parts are 0, which says to divide.
    """
    high = np.float32(1.0 / steps)
    low = np.float32(float(Fraction(1, steps) - Fraction(float(high))))
    zero = np.float32(0.0)
    return (np.float32(steps), high, low) if steps <= _MOST_SPLIT else (np.float32(steps), zero, zero)


@functools.lru_cache(maxsize=256)
def _list_words(stream: StreamId) -> tuple[Any, ...]:
    """The key, the index and the stage of a stream."""
    key = tuple(np.uint32(word) for word in grid_key(stream.seed))
    return key, np.uint32(stream.index), np.uint32(stream.stage)


def _scratch(law: GridLaw, *, count: int, size: int) -> tuple[Any, ...]:
    """The scratch space of a compiled generator.

    The space is that of the last call of this thread, if it has the right size: a small network takes little longer for
    a batch than making it anew.
    """
    blocks = -(-size // c.DRAWS_PER_BLOCK)
    rows = max(1, min(count, _BLOCKS_TOGETHER // blocks))
    wanted = law.table.dtype, rows, blocks
    if getattr(_of_thread, "shape", None) != wanted:
        _of_thread.scratch, _of_thread.shape = _make_scratch(*wanted), wanted
    return cast(tuple[Any, ...], _of_thread.scratch)


def _make_scratch(kind: np.dtype[Any], rows: int, blocks: int) -> tuple[Any, ...]:
    """Steps, words, listed draws; words, places, rows and blocks of further bits; row and block of each block."""
    draws = rows * blocks * c.DRAWS_PER_BLOCK
    words, further = (-(-n // _MOST_TOGETHER) * _MOST_TOGETHER for n in (rows * blocks, draws // c.FURTHER_PER_BLOCK))
    of_further = (
        np.empty(further * c.CHACHA_WORDS, dtype=np.uint32),
        np.empty(draws + 1, dtype=np.uint32),
        np.zeros(further + 1, dtype=np.uint32),
        np.zeros(further + 1, dtype=np.uint32),
    )
    return (
        np.empty(draws, dtype=kind),
        np.empty(words * c.CHACHA_WORDS, dtype=np.uint32),
        np.empty(draws + c.DRAWS_PER_BLOCK, dtype=np.uint32),
        of_further,
        *_number_blocks(words, blocks),
    )


@functools.lru_cache(maxsize=64)
def _number_blocks(words: int, blocks: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The row and the block in its row, by number. Both are only read."""
    row, block = np.divmod(np.arange(words, dtype=np.uint32), np.uint32(blocks))
    return row, block
