"""Splitting (Levine and Feizi 2021): what the base classifier sees in each evaluation of an input on a grid.

For q = L-1 and N = ⌊2λq⌋ evaluations s = 0 … N-1, the range of coordinate i is cut at (c+½)/q for all whole numbers c
with c ≡ s + v_i (mod N), and at its ends 0 and 1. The classifier sees the middle of the piece in which the coordinate
lies, in float32. A step of 1/q in one coordinate passes one place for a cut, which is one for a single s: so at most
one vote changes.

The offsets v_i = ⌊u_i·N/2^64⌋ are those of the run, the same for all inputs. u_i is number i of 64 bits in the stream
of ChaCha20 with the key SHA-256("smoothcert splitting offsets", seed in 16 bytes), the nonce 0 and the counter 0, 1, …
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.noise_kinds import Floats, NoiseForm, Whole, divide_places, read_places
from smoothcert_verify.noise_streams import Stream, chacha, make_key

LEAST_EVALUATIONS, MOST_EVALUATIONS = 2, 2**21
_NUMBERS_OF_A_BLOCK = 8


@dataclass(frozen=True, slots=True)
class SplittingForm(NoiseForm):
    """Nothing is added, and nothing is sampled."""

    @property
    def is_sampled(self) -> bool:
        return False

    def has_room(self, *, sigma: float, levels: int) -> bool:
        return LEAST_EVALUATIONS <= self.count_evaluations(sigma=sigma, levels=levels) <= MOST_EVALUATIONS

    def count_evaluations(self, *, sigma: float, levels: int) -> int:
        return math.floor(2 * Fraction(sigma) * (levels - 1))

    def copies_on_grid(self, x: Floats, *, sigma: float, levels: int) -> SplitInput:
        return SplitInput(x, evaluations=self.count_evaluations(sigma=sigma, levels=levels), levels=levels)


class SplitInput:
    """An input whose coordinates k/q are in [0, 1]; a ValueError for another one."""

    def __init__(self, x: Floats, *, evaluations: int, levels: int) -> None:
        self._k, self._evaluations, self._steps = read_places(x, levels), evaluations, levels - 1
        if self._k.size and not 0 <= self._k.min() <= self._k.max() <= self._steps:
            raise ValueError("the input does not lie in [0, 1], where it could be split")

    def copies(self, stream: Stream, start: int, count: int) -> Floats:
        """Evaluations start … start+count-1: (count, d). Only the seed of the stream matters."""
        offsets = find_offsets(stream.seed, evaluations=self._evaluations, size=self._k.size)
        numbers = np.arange(start, start + count, dtype=np.int64)[:, None]
        first = (numbers + offsets) % self._evaluations  # the least c ≥ 0 of a cut at c+½
        pieces = -((first - self._k) // self._evaluations)  # cuts from that one on which are below k
        left = 2 * (first + (pieces - 1) * self._evaluations) + 1
        right = left + 2 * self._evaluations
        return divide_places(np.maximum(left, 0) + np.minimum(right, 2 * self._steps), 4 * self._steps)

    def pairs(self, stream: Stream, start: int, count: int) -> tuple[Floats, Floats]:
        raise ValueError("an input that is split has no pairs of noisy copies")

    def normals(self, stream: Stream, start: int, count: int) -> NDArray[np.float64]:
        raise ValueError("to an input that is split no noise is added")


@functools.lru_cache(maxsize=8)
def find_offsets(seed: int, *, evaluations: int, size: int) -> Whole:
    """The offsets v: (size,), from 0 to evaluations-1."""
    counter = np.arange(-(-size // _NUMBERS_OF_A_BLOCK), dtype=np.uint32)
    zeros = np.zeros_like(counter)
    blocks = np.stack(chacha([counter, zeros, zeros, zeros], make_key(b"smoothcert splitting offsets", seed)), axis=-1)
    low, high = blocks.reshape(-1, 2)[:size].T.tolist()
    return np.array([(b << 32 | a) * evaluations >> 64 for a, b in zip(low, high, strict=True)], dtype=np.int64)
