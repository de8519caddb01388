"""Noise on a grid in plain numpy: the reference that the other versions are tested against, and the fallback.

Row `counter` of a stream (key, input index, stage) consists of ChaCha20 blocks of 16 words of 32 bits. The first 16
bits of draw e are half of word ⌊(e mod 32)/2⌋ of block ⌊e/32⌋: the lower half for even e, the upper for odd e. If they
do not settle the draw, and i earlier draws of the row were not settled either, its other 48 bits are taken from block
2³¹+⌊i/8⌋: all of word 2(i mod 8), then the upper half of word 2(i mod 8)+1.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np
from numpy.typing import NDArray

from smoothcert.noise import constants as c
from smoothcert.noise.chacha import Key, Words, as_key, chacha
from smoothcert.noise.grid_law import MORE_BITS, GridLaw
from smoothcert.records import StreamId


@functools.lru_cache(maxsize=16)
def grid_key(seed: int) -> Key:
    """The seed of a run, below 2¹²⁸, as the eight words of a ChaCha key."""
    return as_key(hashlib.sha256(b"smoothcert grid noise" + seed.to_bytes(16, "little")).digest())


def row_words(stream: StreamId, *, counter: NDArray[np.uint64], block: NDArray[np.uint64]) -> Words:
    """The words of some blocks: (n, 16). counter: (n,) of the row, block: (n,) in the row."""
    low = (counter & np.uint64(c.WORD)).astype(np.uint32)
    high = ((counter >> np.uint64(32)) << np.uint64(8) | np.uint64(stream.stage)).astype(np.uint32)
    place = (block.astype(np.uint32), low, np.full_like(low, stream.index), high)
    return np.stack(chacha(place, grid_key(stream.seed)), axis=1)


def grid_draws(law: GridLaw, stream: StreamId, *, start: int, count: int, size: int) -> NDArray[np.int32]:
    """Samples start … start+count-1 of a stream. Returns (count, size) int32."""
    blocks = -(-size // c.DRAWS_PER_BLOCK)
    counter = start + np.arange(count, dtype=np.uint64)
    block = np.tile(np.arange(blocks, dtype=np.uint64), count)
    words = row_words(stream, counter=np.repeat(counter, blocks), block=block)
    halves = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=2)
    first = halves.reshape(count, blocks * c.DRAWS_PER_BLOCK)[:, :size]
    place = law.table[first].astype(np.int32)
    row, column = np.nonzero(place < 0)
    if len(row):
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        further_block = (c.FURTHER_BLOCKS + rank // c.FURTHER_PER_BLOCK).astype(np.uint64)
        further = row_words(stream, counter=counter[row], block=further_block)
        pair = 2 * (rank % c.FURTHER_PER_BLOCK)
        here = np.arange(len(row))
        place[row, column] = settle(law, first[row, column], further[here, pair], further[here, pair + 1])
    return place + np.int32(law.least)


def settle(law: GridLaw, first: Words, second: Words, third: Words) -> NDArray[np.int32]:
    """j - least from all 64 bits: 16 in `first`, the word `second`, and the upper half of the word `third`."""
    more = (second.astype(np.uint64) << np.uint64(16)) | (third.astype(np.uint64) >> np.uint64(16))
    u = (first.astype(np.uint64) << np.uint64(MORE_BITS)) | more
    return np.searchsorted(law.thresholds, u, side="right").astype(np.int32)
