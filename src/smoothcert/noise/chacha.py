"""The ChaCha20 block function (RFC 8439) in plain numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.noise import constants as c

Key = tuple[int, int, int, int, int, int, int, int]
Words = NDArray[np.uint32]


def as_key(octets: bytes) -> Key:
    """32 bytes as the eight words of a ChaCha key, lowest byte first (RFC 8439)."""
    k0, k1, k2, k3, k4, k5, k6, k7 = np.frombuffer(octets, dtype="<u4").tolist()
    return k0, k1, k2, k3, k4, k5, k6, k7


def chacha(position: tuple[Words, Words, Words, Words], key: Key) -> list[Words]:
    """The ChaCha20 block function (RFC 8439): 16 arrays of words. position: counter and nonce, of one shape."""
    shape = position[0].shape
    start = [np.full(shape, word, dtype=np.uint32) for word in (*c.CHACHA_CONSTANTS, *key)]
    start += [np.asarray(word, dtype=np.uint32) for word in position]
    state = list(start)
    for _ in range(c.CHACHA_DOUBLE_ROUNDS):
        for at in c.CHACHA_QUARTERS:
            state[at[0]], state[at[1]], state[at[2]], state[at[3]] = _quarter_round(*(state[i] for i in at))
    return [mixed + first for mixed, first in zip(state, start, strict=True)]


def _quarter_round(a: Words, b: Words, c: Words, d: Words) -> tuple[Words, Words, Words, Words]:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


def _rotate(word: Words, places: int) -> Words:
    return (word << np.uint32(places)) | (word >> np.uint32(32 - places))
