"""Random words: which of them belong to a sample, and the block function of ChaCha20 (RFC 8439)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
WideWords = NDArray[np.uint64]
Position = tuple[WideWords, WideWords, WideWords, WideWords]

_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Stream:
    """Which samples: the seed of the run, the index of the input (or of shared noise), and the number of the stage."""

    seed: int
    index: int
    stage: int


def find_position(stream: Stream, counters: WideWords, blocks: WideWords) -> Position:
    """The four words that name a block of a sample, each of the broadcast shape, in uint64."""
    counters, blocks = np.broadcast_arrays(counters, blocks)
    high = (counters >> np.uint64(32)) << np.uint64(8) | np.uint64(stream.stage)
    return blocks, counters & _LOW, np.full_like(blocks, stream.index), high


def chacha(words: list[Words], key: list[int]) -> list[Words]:
    """The 16 words of each block. words: the four of the position, of one shape; key: eight."""
    names = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key)
    first = [np.full(words[0].shape, word, dtype=np.uint32) for word in names] + words
    state = [word.copy() for word in first]
    columns = [(i, i + 4, i + 8, i + 12) for i in range(4)]
    diagonals = [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for _ in range(10):
        for a, b, c, d in columns + diagonals:
            for one, two, other, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                state[one] += state[two]
                mixed = state[other] ^ state[one]
                state[other] = mixed << np.uint32(turn) | mixed >> np.uint32(32 - turn)
    return [mixed + begun for mixed, begun in zip(state, first, strict=True)]


def make_key(purpose: bytes, seed: int) -> list[int]:
    """The key of ChaCha20 for numbers of this purpose: SHA-256 of it and of the seed in 16 bytes, lowest first."""
    digest = hashlib.sha256(purpose + seed.to_bytes(16, "little")).digest()
    return [int.from_bytes(digest[at : at + 4], "little") for at in range(0, 32, 4)]
