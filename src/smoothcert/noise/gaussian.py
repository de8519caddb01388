"""Gaussian noise for host memory: compiled where numba is installed, plain numpy otherwise; the bits are the same."""

from __future__ import annotations

import functools
import importlib.util
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


def split_seed(seed: int) -> tuple[int, int]:
    """The seed of a run as the two words of the Philox key."""
    return seed & 0xFFFFFFFF, seed >> _WORD_BITS


def standard_normals(stream: StreamId, *, start: int, count: int, size: int) -> InputArray:
    """Samples start … start+count-1 of a stream, as standard normals. Returns (count, size) float32."""
    out = np.empty((count, size), dtype=np.float32)
    add_gaussian(out, np.zeros(size, dtype=np.float32), stream, sigma=1.0, start=start)
    return out


def add_gaussian(out: InputArray, x: InputArray, stream: StreamId, *, sigma: float, start: int) -> None:
    """Write x + sigma · (sample start+i) into row i of `out`, in place.

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
            out, x, np.float32(sigma), np.uint32(key0), np.uint32(key1), np.uint64(stream.index),
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
        np.add(x, np.float32(sigma) * normal, out=chunk)


@functools.cache
def _compiled() -> Any:
    if importlib.util.find_spec("numba") is None:
        return None
    from smoothcert.noise.with_numba import add_noise

    return add_noise


def _scratch(blocks: int) -> tuple[Any, InputArray]:
    return np.empty((4, blocks), dtype=np.uint32), np.empty((4, blocks), dtype=np.float32)
