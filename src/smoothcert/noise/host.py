"""Float noise in host memory: compiled where numba is installed, plain numpy otherwise; the bits are the same."""

from __future__ import annotations

import functools
import math
import secrets
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from smoothcert.errors import InputError
from smoothcert.noise import with_numpy
from smoothcert.noise.law import CompiledNoise
from smoothcert.noise.laws import additive_law_of
from smoothcert.records import InputArray, Noise, Stage, StreamId

COUNTER_LIMIT = 2**56
"""The number of samples of a stream: 32 bits of the counter in one Philox word, 24 beside the stage in another."""

_SHORT, _BLOCKS_TOGETHER = 32, 256
"""Rows of at most 32 blocks of four values are short: a compiled generator may make several together."""
_NUMPY_CHUNK = 1 << 18
"""Values made at once without numba, which bounds the temporary memory."""
_LEAST_SIGMA, _MOST_SIGMA = 1e-6, 1e6


def as_noise(noise: Noise | str) -> Noise:
    """The noise of this name."""
    try:
        return Noise(noise)
    except ValueError as error:
        raise InputError(f"there is no noise {str(noise)!r}: use {' or '.join(Noise)}") from error


def new_seed(noise: Noise) -> int:
    """A seed from the operating system; 0 where it would make another classifier, and not only other samples."""
    return secrets.randbits(128) if noise.sampled else 0


def check_sigma(sigma: float) -> None:
    """Raise an InputError if sigma is not a positive number that float32 noise can represent."""
    if not (isinstance(sigma, (int, float, np.floating)) and math.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma={sigma} must be a positive finite number, in the units of the input (0.25 is usual)")
    if not _LEAST_SIGMA <= sigma <= _MOST_SIGMA:
        raise InputError(f"sigma={sigma} is outside {_LEAST_SIGMA:g} … {_MOST_SIGMA:g}, what float32 noise can carry")


def scale_noise(unit: InputArray, *, sigma: float, out: InputArray | None = None) -> InputArray:
    """sigma · unit, multiplied in float64 and rounded to float32. unit: noise of level 1, any shape; out may be `unit`.

    sigma itself is not rounded to float32, so two levels that float32 cannot distinguish still give different noise. If
    sigma is a float32, the result is the float32 product. Uniform noise stays strictly between -sigma and sigma: its
    outermost value lies at least half a float32 step inside.
    """
    if out is None:
        out = np.empty_like(unit)
    return np.multiply(unit, np.float64(sigma), out=out, dtype=np.float64, casting="same_kind")


def check_counters(*, start: int, count: int) -> None:
    """Raise an InputError if the samples lie beyond the end of a stream."""
    if not 0 <= start <= COUNTER_LIMIT - count:
        raise InputError(f"samples {start} … {start + count} are beyond the end of a stream (2^56)")


def row_chunks(count: int, size: int) -> Iterator[slice]:
    """Slices of `count` rows of `size` values, small enough to be made at once without numba."""
    rows = max(1, _NUMPY_CHUNK // size)
    return (slice(at, min(at + rows, count)) for at in range(0, count, rows))


def unit_noise(noise: Noise, stream: StreamId, *, start: int, count: int, size: int) -> InputArray:
    """Samples start … start+count-1 of a stream, at level 1. Returns (count, size) float32.

    All noises are made of the same random words: they are not independent of each other.
    """
    out = np.empty((count, size), dtype=np.float32)
    add_noise(noise, out, np.zeros(size, dtype=np.float32), stream, sigma=1.0, start=start)
    return out


def add_noise(noise: Noise, out: InputArray, x: InputArray, stream: StreamId, *, sigma: float, start: int) -> None:
    """Write x + sigma · (sample start+i) into row i of `out`: scaled as by `scale_noise`, added in float32.

    out: (count, size) float32, C-contiguous; x: (size,) float32. Only a small scratch space is allocated.
    """
    count, size = out.shape
    check_counters(start=start, count=count)
    blocks = -(-size // 4)
    compiled = _find_compiled(noise, short=blocks <= _SHORT)
    if compiled is not None:
        compiled.add(out, x, np.float64(sigma), _as_words(stream), np.uint64(start), *_scratch(blocks, compiled))
        return
    for rows in row_chunks(count, size):
        first, many = start + rows.start, rows.stop - rows.start
        unit = with_numpy.unit_noise(noise, stream, start=first, count=many, size=size)
        np.add(x, scale_noise(unit, sigma=sigma), out=out[rows])


@functools.cache
def _find_compiled(noise: Noise, *, short: bool) -> CompiledNoise | None:
    """The compiled generator for short or for long rows, if there is one and it gives the same bits as plain numpy."""
    try:
        generator = additive_law_of(noise).load_compiled(short=short)
    except ImportError:
        return None
    if generator is None:
        return None
    size = 37 if short else 4 * _SHORT + 5
    stream = StreamId(seed=7 | 11 << 32, index=3, stage=Stage.ESTIMATION)
    start = 2**33 - 5  # the upper word of the counter changes within these rows
    sigma = np.float64(1.0 / 3.0)  # not a float32: the rounding of the product is tested too
    expected = scale_noise(with_numpy.unit_noise(noise, stream, start=start, count=40, size=size), sigma=sigma)
    made = np.empty_like(expected)
    zeros = np.zeros(size, dtype=np.float32)
    generator.add(made, zeros, sigma, _as_words(stream), np.uint64(start), *_scratch(-(-size // 4), generator))
    if not np.array_equal(made, expected):
        warnings.warn(
            f"the compiled generator of {noise} noise is not exact on this machine; plain numpy is used", stacklevel=2
        )
        return None
    return generator


def _as_words(stream: StreamId) -> tuple[Any, ...]:
    """A stream as the compiled generators take it."""
    key0, key1 = with_numpy.split_seed(stream.seed)
    return np.uint32(key0), np.uint32(key1), np.uint64(stream.index), np.uint64(stream.stage)


def _scratch(blocks: int, generator: CompiledNoise) -> tuple[Any, ...]:
    """The scratch space of a compiled generator: the words and the noise of one row, or of several short ones."""
    if not generator.several_rows:
        return np.empty((4, blocks), dtype=np.uint32), np.empty((4, blocks), dtype=np.float32)
    together = _BLOCKS_TOGETHER // blocks * blocks
    row, block = np.divmod(np.arange(together, dtype=np.uint32), np.uint32(blocks))
    words, unit = np.empty((4, together), dtype=np.uint32), np.empty((4, together), dtype=np.float32)
    return words, unit, np.stack([row, block])
