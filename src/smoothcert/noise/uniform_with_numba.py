"""Float uniform noise compiled with numba: the same bits as `uniform_law`. Arguments: see `gaussian_with_numba`."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from smoothcert.noise import uniform_law as law
from smoothcert.noise.with_numba import compile_cached, fill_words, write

_F = np.float32
_U4 = np.uint32
_U8 = np.uint64
_I4 = np.int32

_DROPPED_BITS = _U4(32 - law.BITS)
_LEAST_ODD = _I4(1 - (1 << law.BITS))
_UNIFORM_STEP = _F(2.0**-law.BITS)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _centre(word: Any) -> Any:
    return _F(_I4((_I4(word >> _DROPPED_BITS) << _I4(1)) + _LEAST_ODD)) * _UNIFORM_STEP


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _make_uniform(unit: Any, words: Any, used: Any) -> None:
    for lane in range(4):
        for j in range(used):
            unit[lane, j] = _centre(words[lane, j])


def _add_uniform(out: Any, x: Any, sigma: Any, stream: Any, start: Any, words: Any, unit: Any) -> None:
    flat = unit.reshape(unit.size)
    for i in range(out.shape[0]):
        fill_words(words, stream, _U8(start) + _U8(i))
        _make_uniform(unit, words, words.shape[1])
        write(out[i], x, sigma, flat)


ADD_NOISE = compile_cached(_add_uniform)
