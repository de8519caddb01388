"""Splitting (Levine and Feizi, ICML 2021) for inputs k/q, k = 0 … q: N evaluations, and nothing else is random.

For s = 0 … N-1, coordinate i is cut at (c+½)/q for all whole c ≡ s + v_i (mod N), and replaced by the middle of the
cell it lies in; cells end at 0 and 1. A step of 1/q in one coordinate crosses one possible cut, which is a cut for one
s only. So inputs at ℓ1 distance k/q are the same for all but k values of s.

The offsets v_i in 0 … N-1 are fixed: they are part of the classifier. Half-widths λ of cells and numbers of evaluations
are the same thing, N = ⌊2λq⌋. All numbers are whole but for one division in float32, rounded once. The compiled and the
torch version give the same bits.
"""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, NoiseError
from smoothcert.noise import constants as c
from smoothcert.noise.chacha import as_key, chacha
from smoothcert.noise.host import row_chunks
from smoothcert.records import InputArray

Whole = NDArray[np.int32]

LEAST_EVALUATIONS = 2
MOST_EVALUATIONS = 2**21
"""With at most 2¹⁶ levels, all sums stay below 2²⁴, which float32 holds exactly."""
_TESTED, _MOST_TESTED = 784, 2000
"""Coordinates and evaluations of the self-test."""
_PER_BLOCK = c.CHACHA_WORDS // 2


def evaluations_of(level: float, *, levels: int) -> int:
    """N = ⌊2λq⌋ with q = levels-1, computed exactly; an InputError unless it is a possible number of evaluations."""
    if not (math.isfinite(level) and level > 0):
        raise InputError(f"sigma={level} must be a positive finite number, half the width of a cell")
    evaluations = math.floor(2 * Fraction(float(level)) * (levels - 1))
    check_evaluations(evaluations, f"sigma={level:g} on a grid of {levels} levels makes")
    return evaluations


def level_of(evaluations: int, *, levels: int) -> float:
    """The smallest λ in float64 with this number of evaluations: N/2q, rounded up."""
    check_evaluations(evaluations, "this is")
    level = evaluations / (2 * (levels - 1))
    return level if 2 * Fraction(level) * (levels - 1) >= evaluations else math.nextafter(level, math.inf)


def required_levels(levels: int | None) -> int:
    """The levels of the inputs, which splitting needs."""
    if levels is None:
        raise InputError("splitting is for inputs on a grid: give grid=256 (--grid 256) for 8-bit inputs")
    return levels


def check_evaluations(evaluations: int, what: str) -> None:
    """Raise an InputError for a number of evaluations that splitting cannot have. what: the beginning of a sentence."""
    if not LEAST_EVALUATIONS <= evaluations <= MOST_EVALUATIONS:
        raise InputError(
            f"{what} {evaluations} evaluations, and splitting takes {LEAST_EVALUATIONS} to {MOST_EVALUATIONS:,}; 441 "
            "is usual for 8-bit inputs"
        )


@functools.lru_cache(maxsize=64)
def draw_offsets(seed: int, *, evaluations: int, size: int) -> Whole:
    """The offsets v: (size,) int32 in 0 … evaluations-1, not to be written to. A pure function of its arguments.

    v_i = ⌊u·N/2⁶⁴⌋, where u are the 64-bit numbers of ChaCha20 (RFC 8439) with SHA-256("smoothcert splitting offsets",
    seed in 16 bytes, lowest first) as the key: number i is pair i mod 8 of the words of block ⌊i/8⌋, the lower word
    first. Their law does not matter for a certificate.
    """
    key = as_key(hashlib.sha256(b"smoothcert splitting offsets" + seed.to_bytes(16, "little")).digest())
    block = np.arange(-(-size // _PER_BLOCK), dtype=np.uint32)
    nothing = np.zeros_like(block)
    words = np.stack(chacha((block, nothing, nothing, nothing), key), axis=1).astype(np.uint64).reshape(-1, 2)[:size]
    n = np.uint64(evaluations)
    offsets: Whole = ((words[:, 1] * n + ((words[:, 0] * n) >> np.uint64(32))) >> np.uint64(32)).astype(np.int32)
    offsets.setflags(write=False)
    return offsets


def split_inputs(out: InputArray, k: Whole, offsets: Whole, *, evaluations: int, levels: int, start: int) -> None:
    """Write what the base classifier sees in evaluation start+i into row i of `out`; they repeat after `evaluations`.

    out: (count, size) float32, C-contiguous; k: (size,) int32 in 0 … levels-1; offsets: as from `draw_offsets`.
    """
    compiled = _find_compiled()
    if compiled is not None:
        compiled(out, k, _phases(k, offsets, evaluations, start), np.int32(evaluations), np.int32(levels - 1))
        return
    for rows in row_chunks(*out.shape):
        numbers = np.arange(start + rows.start, start + rows.stop, dtype=np.int64)
        out[rows] = split_with_numpy(k, offsets, numbers, evaluations=evaluations, levels=levels)


def split_with_numpy(
    k: Whole, offsets: Whole, numbers: NDArray[np.int64], *, evaluations: int, levels: int
) -> InputArray:
    """(len(numbers), size) float32: the reference version. numbers: the evaluations s."""
    steps = k.astype(np.int64)
    below = steps - 1 - (steps - 1 - offsets - numbers[:, None]) % evaluations  # the cut before k is at below + ½
    lower = np.maximum(2 * below + 1, 0)
    upper = np.minimum(2 * (below + evaluations) + 1, 2 * (levels - 1))
    middles: InputArray = (lower + upper).astype(np.float32) / np.float32(4 * (levels - 1))
    return middles


def check_splitting(level: float, *, levels: int) -> None:
    """Raise a NoiseError if one step of a random input changes more than one of its evaluations on this machine."""
    evaluations, generator = evaluations_of(level, levels=levels), np.random.default_rng()
    k = generator.integers(0, levels, _TESTED, dtype=np.int32)
    offsets = draw_offsets(0, evaluations=evaluations, size=_TESTED)
    first, second = np.empty((2, min(evaluations, _MOST_TESTED), _TESTED), dtype=np.float32)
    start = int(generator.integers(0, evaluations))
    split_inputs(first, k, offsets, evaluations=evaluations, levels=levels, start=start)
    split_inputs(
        second,
        k + np.where(k == levels - 1, -1, 1).astype(np.int32),
        offsets,
        evaluations=evaluations,
        levels=levels,
        start=start,
    )
    changed = (first != second).sum(axis=0)
    if changed.max() > 1 or (len(first) == evaluations and evaluations > 1 and changed.sum() < 1):
        raise NoiseError(
            "self-test of splitting: a step in one coordinate changes several evaluations. Certificates would be "
            "invalid, so none is made. The machine or the installation is faulty"
        )


def _phases(k: Whole, offsets: Whole, evaluations: int, start: int) -> Whole:
    """How many steps the last possible cut before k lies before the nearest one, for evaluation `start`."""
    phases: Whole = ((k.astype(np.int64) - 1 - offsets - start) % evaluations).astype(np.int32)
    return phases


@functools.cache
def _find_compiled() -> Any:
    """The compiled version, if numba is installed and it gives the same bits as plain numpy."""
    try:
        from smoothcert.noise.splitting_with_numba import SPLIT_INPUTS
    except ImportError:
        return None
    k = np.arange(256, dtype=np.int32)
    for evaluations in (2, 7, 441):
        offsets = draw_offsets(5, evaluations=evaluations, size=len(k))
        numbers = np.arange(evaluations, dtype=np.int64)
        expected = split_with_numpy(k, offsets, numbers, evaluations=evaluations, levels=256)
        made = np.empty_like(expected)
        SPLIT_INPUTS(made, k, _phases(k, offsets, evaluations, 0), np.int32(evaluations), np.int32(255))
        if not np.array_equal(made, expected):
            warnings.warn("compiled splitting is not exact on this machine; plain numpy is used", stacklevel=2)
            return None
    return SPLIT_INPUTS
