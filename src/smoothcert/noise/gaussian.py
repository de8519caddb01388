"""Gaussian noise for host memory: compiled where numba is installed, plain numpy otherwise; the bits are the same."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np

from smoothcert.errors import InputError
from smoothcert.noise import with_numpy
from smoothcert.records import InputArray, StreamId

COUNTER_LIMIT = 2**56
"""A stream has this many samples: 32 bits of the counter in one Philox word, 24 beside the stage in another."""

_WORD_BITS = 32
_NUMPY_CHUNK = 1 << 18
"""Values made at once without numba, so that its temporaries stay small."""


_LEAST_SIGMA, _MOST_SIGMA = 1e-6, 1e6


def check_sigma(sigma: float) -> None:
    """Refuse a noise level that float32 noise cannot carry: too small to change an input, or near overflow."""
    if not (isinstance(sigma, (int, float, np.floating)) and math.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma={sigma} must be a positive finite number, in the units of the input (0.25 is usual)")
    if not _LEAST_SIGMA <= sigma <= _MOST_SIGMA:
        raise InputError(f"sigma={sigma} is outside {_LEAST_SIGMA:g} … {_MOST_SIGMA:g}, what float32 noise can carry")


def scale_normals(normals: InputArray, *, sigma: float, out: InputArray | None = None) -> InputArray:
    """sigma · normals in float64, then as float32. normals: any shape, float32; out: the same, and may be `normals`.

    The product is taken in float64, so sigma is not rounded to float32 first: two sigmas that differ by less than
    float32 can tell apart still make noise of two levels. Where sigma is a float32 this is the float32 product.
    """
    if out is None:
        out = np.empty_like(normals)
    return np.multiply(normals, np.float64(sigma), out=out, dtype=np.float64, casting="same_kind")


def split_seed(seed: int) -> tuple[int, int]:
    """The seed of a run as the two words of the Philox key."""
    return seed & 0xFFFFFFFF, seed >> _WORD_BITS


def standard_normals(stream: StreamId, *, start: int, count: int, size: int) -> InputArray:
    """Samples start … start+count-1 of a stream, as standard normals. Returns (count, size) float32."""
    out = np.empty((count, size), dtype=np.float32)
    add_gaussian(out, np.zeros(size, dtype=np.float32), stream, sigma=1.0, start=start)
    return out


def add_gaussian(out: InputArray, x: InputArray, stream: StreamId, *, sigma: float, start: int) -> None:
    """Write x + sigma · (sample start+i) into row i of `out`, in place: the noise of `scale_normals`, added in float32.

    out: (count, size) float32, C-contiguous; x: (size,) float32. No memory beyond a small scratch space is used.
    """
    count, size = out.shape
    if not 0 <= start <= COUNTER_LIMIT - count:
        raise InputError(f"samples {start} … {start + count} are beyond the end of a stream (2^56)")
    key0, key1 = split_seed(stream.seed)
    compiled = _compiled()
    if compiled is not None:
        words, normals = _scratch(-(-size // 4))
        compiled(
            out, x, np.float64(sigma), np.uint32(key0), np.uint32(key1), np.uint64(stream.index),
            np.uint64(stream.stage), np.uint64(start), words, normals,
        )  # fmt: skip
        return
    rows = max(1, _NUMPY_CHUNK // size)
    for at in range(0, count, rows):
        chunk = out[at : at + rows]
        normal = with_numpy.standard_normals(
            key=(key0, key1),
            index=stream.index,
            stage=int(stream.stage),
            start=start + at,
            count=len(chunk),
            size=size,
        )
        np.add(x, scale_normals(normal, sigma=sigma), out=chunk)


@functools.cache
def _compiled() -> Any:
    """The compiled generator, if it is there and gives the same bits as the plain one."""
    try:
        from smoothcert.noise.with_numba import add_noise
    except ImportError:
        return None
    place = {"index": 3, "stage": 1, "start": 2**33 + 5}
    sigma = np.float64(1.0 / 3.0)  # not a float32: the rounding of the product is tried too
    normal = with_numpy.standard_normals(key=(7, 11), count=3, size=37, **place)
    expected = scale_normals(normal, sigma=sigma)
    made = np.empty_like(expected)
    zeros = np.zeros(37, dtype=np.float32)
    arguments = (np.uint64(place["index"]), np.uint64(place["stage"]), np.uint64(place["start"]), *_scratch(10))
    add_noise(made, zeros, sigma, np.uint32(7), np.uint32(11), *arguments)
    if not np.array_equal(made, expected):
        warnings.warn("the compiled noise generator is not exact on this machine; plain numpy is used", stacklevel=2)
        return None
    return add_noise


def _scratch(blocks: int) -> tuple[Any, InputArray]:
    return np.empty((4, blocks), dtype=np.uint32), np.empty((4, blocks), dtype=np.float32)
