"""Philox compiled with numba, and what all compiled float generators share: the same bits as `with_numpy`.

Compiled generators are twenty to thirty times faster. No fast-math: a fused or reassociated operation would change bits
between machines. The Philox words are kept in 64-bit lanes whose upper halves may hold anything (the multiplication
reads the lower half only), so that the compiler needs no shuffles.

numba caches the machine code of a law's generator until that law's file changes: after a change of this file, delete
the `__pycache__` folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import binding as llvm
from numba.core.registry import cpu_target

from smoothcert.noise import constants as c

_F = np.float32
_U4 = np.uint32
_U8 = np.uint64
_I8 = np.int64

_M0, _M1 = _U8(c.MULTIPLIER_0), _U8(c.MULTIPLIER_1)
_W0, _W1 = _U4(c.WEYL_0), _U4(c.WEYL_1)
_WORD = _U8(c.WORD)
_HALF_WORD = _U8(32)
_ROUNDS = c.ROUNDS


def compile_cached(generator: Callable[..., None]) -> Any:
    """Compile on the first call; the machine code is cached on disk if the cache folder is writable."""
    try:
        return numba.njit(nogil=True, error_model="numpy", cache=True)(generator)
    except RuntimeError:  # an installation without a writable cache folder
        return numba.njit(nogil=True, error_model="numpy")(generator)


def has_feature(name: str) -> bool:
    """Whether numba compiles for a processor with these instructions, and this one has them."""
    _, _, compiled_for = cpu_target.target_context.codegen().magic_tuple()
    return llvm.get_host_cpu_features().get(name, False) and f"+{name}" in compiled_for.split(",")


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    for _ in range(_ROUNDS):
        p0 = _M0 * (c0 & _WORD)
        p1 = _M1 * (c2 & _WORD)
        c0, c1, c2, c3 = (p1 >> _HALF_WORD) ^ c1 ^ _U8(k0), p1, (p0 >> _HALF_WORD) ^ c3 ^ _U8(k1), p0
        k0 = _U4(k0 + _W0)
        k1 = _U4(k1 + _W1)
    return _U4(c0), _U4(c1), _U4(c2), _U4(c3)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def fill_words(words: Any, stream: Any, counter: Any) -> None:
    """Write the Philox words of one row. words: (4, blocks); stream: the two words of the key, index and stage."""
    key0, key1, index, stage = stream
    low = counter & _WORD
    high = ((counter >> _HALF_WORD) << _U8(8)) | _U8(stage)
    for j in range(words.shape[1]):
        words[0, j], words[1, j], words[2, j], words[3, j] = _philox(_U8(j), low, _U8(index), high, key0, key1)


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def fill_words_of_rows(words: Any, used: Any, places: Any, stream: Any, counter: Any) -> None:
    """Write the Philox words of several rows into the first `used` blocks. places: (2, …), row and block of each."""
    key0, key1, index, stage = stream
    low = counter & _WORD
    high = ((counter >> _HALF_WORD) << _U8(8)) | _U8(stage)
    for j in range(used):
        words[0, j], words[1, j], words[2, j], words[3, j] = _philox(
            _U8(places[1, j]), low + _U8(places[0, j]), _U8(index), high, key0, key1
        )


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def rows_together(most: Any, counter: Any, left: Any) -> Any:
    """How many rows to make at once: at most `most`, up to where the upper word of the counter changes."""
    until_carry = _I8(_WORD - (counter & _WORD)) + 1
    return min(_I8(most), min(_I8(left), until_carry))


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def write(row: Any, x: Any, sigma: Any, flat: Any) -> None:
    for j in range(row.shape[0]):
        row[j] = x[j] + _F(sigma * flat[j])


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def write_rows(out: Any, x: Any, sigma: Any, unit: Any, blocks: Any) -> None:
    """unit: (4, blocks of all rows); the values of a row are those of its first words, then of its second …"""
    count, size = out.shape
    for i in range(count):
        row = out[i]
        for lane in range(4):
            first = lane * blocks
            noise = unit[lane, i * blocks : i * blocks + blocks]
            for j in range(min(blocks, size - first)):
                row[first + j] = x[first + j] + _F(sigma * noise[j])
