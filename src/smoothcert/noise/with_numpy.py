"""Float noise in plain numpy: the reference that the other versions are tested against, and the fallback."""

from __future__ import annotations

import hashlib

import numpy as np

from smoothcert.noise import constants as c
from smoothcert.noise.law import NumpyWords
from smoothcert.noise.laws import additive_law_of
from smoothcert.records import InputArray, Noise, StreamId


def split_seed(seed: int) -> tuple[int, int]:
    """The seed of a run, below 2¹²⁸, as the two words of the Philox key.

    A seed below 2⁶⁴ is the key itself; a larger one is folded by SHA-256.
    """
    if seed >> 64:
        seed = int.from_bytes(hashlib.sha256(seed.to_bytes(16, "little")).digest()[:8], "little")
    return seed & c.WORD, seed >> 32


def philox(counter: NumpyWords, key: tuple[int, int]) -> NumpyWords:
    """Philox4x32-10 on arrays of 32-bit words stored in uint64. Shapes broadcast; key: two 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    word = np.uint64(c.WORD)
    half = np.uint64(32)
    for _ in range(c.ROUNDS):
        p0 = np.uint64(c.MULTIPLIER_0) * c0
        p1 = np.uint64(c.MULTIPLIER_1) * c2
        c0, c1, c2, c3 = (
            (p1 >> half) ^ c1 ^ np.uint64(k0),
            p1 & word,
            (p0 >> half) ^ c3 ^ np.uint64(k1),
            p0 & word,
        )
        k0 = (k0 + c.WEYL_0) & c.WORD
        k1 = (k1 + c.WEYL_1) & c.WORD
    return c0, c1, c2, c3


def unit_noise(noise: Noise, stream: StreamId, *, start: int, count: int, size: int) -> InputArray:
    """Samples start … start+count-1 of a stream, at level 1. Returns (count, size) float32.

    A sample consists of ceil(size/4) blocks of four values: the first values of all blocks, then the second, …
    """
    blocks = -(-size // 4)
    counter = start + np.arange(count, dtype=np.uint64)[:, None]
    block = np.arange(blocks, dtype=np.uint64)[None, :]
    zero = np.zeros((count, blocks), dtype=np.uint64)
    low = counter & np.uint64(c.WORD)
    high = (counter >> np.uint64(32)) << np.uint64(8) | np.uint64(stream.stage)
    words = philox((block + zero, low + zero, np.uint64(stream.index) + zero, high + zero), split_seed(stream.seed))
    return np.concatenate(additive_law_of(noise).lanes_with_numpy(words), axis=1)[:, :size]
