"""Constants of the random generators, shared by their numpy, numba and torch versions.

Philox4x32-10: multipliers and key increments of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3" (2011). ChaCha20: RFC 8439.
"""

from __future__ import annotations

ROUNDS = 10
MULTIPLIER_0 = 0xD2511F53
MULTIPLIER_1 = 0xCD9E8D57
WEYL_0 = 0x9E3779B9
WEYL_1 = 0xBB67AE85
WORD = 0xFFFFFFFF

GRID_GENERATOR = "chacha20"
"""The name of the generator of noise on a grid, as stored in a manifest."""
CHACHA_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
"""The first four words of a ChaCha state (RFC 8439): "expand 32-byte k"."""
CHACHA_DOUBLE_ROUNDS = 10
CHACHA_QUARTERS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
"""The words of the state that the eight quarter rounds of a double round mix: the columns, then the diagonals."""
CHACHA_WORDS = 16
DRAWS_PER_BLOCK = 32
"""Noise on a grid: each word of a block gives two draws of 16 bits."""
FURTHER_BLOCKS = 1 << 31
"""Blocks of a row from this number on hold the further bits of draws that 16 bits do not settle."""
FURTHER_PER_BLOCK = 8
GREATEST_WHOLE = 2**24 - 1
"""Sums of a level and noise are clipped to ± this, so that float32 holds them."""
