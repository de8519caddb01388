"""Noise for host memory: compiled where numba is installed, plain numpy otherwise; the bits are the same."""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from typing import Any

import numpy as np

from smoothcert.errors import InputError
from smoothcert.noise import with_numpy
from smoothcert.records import InputArray, Noise, StreamId

COUNTER_LIMIT = 2**56
"""A stream has this many samples: 32 bits of the counter in one Philox word, 24 beside the stage in another."""

_WORD_BITS = 32
_SHORT, _BLOCKS_TOGETHER = 32, 256
"""Rows of so few blocks of four values are short: the compiled generator makes several together."""
_NUMPY_CHUNK = 1 << 18
"""Values made at once without numba, so that its temporaries stay small."""


_LEAST_SIGMA, _MOST_SIGMA = 1e-6, 1e6


def as_noise(noise: Noise | str) -> Noise:
    """The kind of noise meant by a word."""
    try:
        return Noise(noise)
    except ValueError as error:
        raise InputError(f"there is no noise {str(noise)!r}: use {' or '.join(Noise)}") from error


def check_sigma(sigma: float) -> None:
    """Refuse a noise level that float32 noise cannot carry: too small to change an input, or near overflow."""
    if not (isinstance(sigma, (int, float, np.floating)) and math.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma={sigma} must be a positive finite number, in the units of the input (0.25 is usual)")
    if not _LEAST_SIGMA <= sigma <= _MOST_SIGMA:
        raise InputError(f"sigma={sigma} is outside {_LEAST_SIGMA:g} … {_MOST_SIGMA:g}, what float32 noise can carry")


def scale_noise(unit: InputArray, *, sigma: float, out: InputArray | None = None) -> InputArray:
    """sigma · unit in float64, then as float32. unit: noise of level 1, any shape; out: the same, and may be `unit`.

    The product is taken in float64, so sigma is not rounded to float32 first: two sigmas that differ by less than
    float32 can tell apart still make noise of two levels. Where sigma is a float32 this is the float32 product. Uniform
    noise stays strictly between -sigma and sigma: its outermost value lies at least half a float32 step inside.
    """
    if out is None:
        out = np.empty_like(unit)
    return np.multiply(unit, np.float64(sigma), out=out, dtype=np.float64, casting="same_kind")


def check_counters(*, start: int, count: int) -> None:
    """Refuse samples that a stream does not have."""
    if not 0 <= start <= COUNTER_LIMIT - count:
        raise InputError(f"samples {start} … {start + count} are beyond the end of a stream (2^56)")


def split_seed(seed: int) -> tuple[int, int]:
    """The seed of a run, below 2¹²⁸, as the two words of the Philox key.

    A seed below 2⁶⁴ is the key itself; a larger one is folded by SHA-256.
    """
    if seed >> 2 * _WORD_BITS:
        seed = int.from_bytes(hashlib.sha256(seed.to_bytes(16, "little")).digest()[:8], "little")
    return seed & 0xFFFFFFFF, seed >> _WORD_BITS


def unit_noise(noise: Noise, stream: StreamId, *, start: int, count: int, size: int) -> InputArray:
    """Samples start … start+count-1 of a stream, at level 1. Returns (count, size) float32.

    Gaussian: standard normals. Uniform: on (-1, 1), each of the 2²⁴ odd multiples of 2⁻²⁴ equally likely; the mean is
    0 and the variance (1 - 2⁻⁴⁸)/3. Both kinds are made of the same words: they are not independent of each other.
    """
    out = np.empty((count, size), dtype=np.float32)
    add_noise(noise, out, np.zeros(size, dtype=np.float32), stream, sigma=1.0, start=start)
    return out


def add_noise(noise: Noise, out: InputArray, x: InputArray, stream: StreamId, *, sigma: float, start: int) -> None:
    """Write x + sigma · (sample start+i) into row i of `out`, in place: the noise of `scale_noise`, added in float32.

    out: (count, size) float32, C-contiguous; x: (size,) float32. No memory beyond a small scratch space is used.
    """
    count, size = out.shape
    check_counters(start=start, count=count)
    key0, key1 = split_seed(stream.seed)
    blocks = -(-size // 4)
    compiled = _compiled(noise, short=blocks <= _SHORT)
    if compiled is not None:
        named = _named(key0, key1, stream.index, stream.stage)
        compiled(out, x, np.float64(sigma), named, np.uint64(start), *_scratch(blocks, noise))
        return
    rows = max(1, _NUMPY_CHUNK // size)
    for at in range(0, count, rows):
        chunk = out[at : at + rows]
        unit = with_numpy.unit_noise(
            noise,
            key=(key0, key1),
            index=stream.index,
            stage=int(stream.stage),
            start=start + at,
            count=len(chunk),
            size=size,
        )
        np.add(x, scale_noise(unit, sigma=sigma), out=chunk)


@functools.cache
def _compiled(noise: Noise, *, short: bool) -> Any:
    """The compiled generator of this noise, for short rows or for any, if it is there and gives the same bits as the
    plain one.
    """
    try:
        from smoothcert.noise.with_numba import ADD_GAUSSIAN_TO_SHORT_ROWS, ADD_NOISE
    except ImportError:
        return None
    together = short and noise is Noise.GAUSSIAN
    compiled = ADD_GAUSSIAN_TO_SHORT_ROWS if together else ADD_NOISE[noise]
    size = 37 if short else 4 * _SHORT + 5
    # The upper word of the counter changes within these rows.
    place = {"index": 3, "stage": 1, "start": 2**33 - 5}
    sigma = np.float64(1.0 / 3.0)  # not a float32: the rounding of the product is tried too
    expected = scale_noise(with_numpy.unit_noise(noise, key=(7, 11), count=40, size=size, **place), sigma=sigma)
    made = np.empty_like(expected)
    zeros = np.zeros(size, dtype=np.float32)
    named = _named(7, 11, place["index"], place["stage"])
    compiled(made, zeros, sigma, named, np.uint64(place["start"]), *_scratch(-(-size // 4), noise))
    if not np.array_equal(made, expected):
        warnings.warn(
            f"the compiled generator of {noise} noise is not exact on this machine; plain numpy is used", stacklevel=2
        )
        return None
    return compiled


def _named(key0: int, key1: int, index: int, stage: int) -> tuple[Any, ...]:
    """A stream as the compiled generators take it."""
    return np.uint32(key0), np.uint32(key1), np.uint64(index), np.uint64(stage)


def _scratch(blocks: int, noise: Noise) -> tuple[Any, ...]:
    """What a compiled generator works in: the words and the noise of a row, or of several short ones."""
    if noise is not Noise.GAUSSIAN or blocks > _SHORT:
        return np.empty((4, blocks), dtype=np.uint32), np.empty((4, blocks), dtype=np.float32)
    together = _BLOCKS_TOGETHER // blocks * blocks
    row, block = np.divmod(np.arange(together, dtype=np.uint32), np.uint32(blocks))
    words, unit = np.empty((4, together), dtype=np.uint32), np.empty((4, together), dtype=np.float32)
    return words, unit, np.stack([row, block])
