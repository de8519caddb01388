"""Numbers shared by the numpy, numba and torch versions of the generator.

Philox4x32-10: multipliers and key increments of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3" (2011). The polynomials are the single-precision minimax approximations of log(1+t), sin and cos tabulated in
Moshier's Cephes library.
"""

from __future__ import annotations

import math

ROUNDS = 10
MULTIPLIER_0 = 0xD2511F53
MULTIPLIER_1 = 0xCD9E8D57
WEYL_0 = 0x9E3779B9
WEYL_1 = 0xBB67AE85
WORD = 0xFFFFFFFF

# log(1+t) = t - t²/2 + t³ P(t) for 1+t in [√½, √2), highest power first.
LOG_POLYNOMIAL = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
# sin t = t + t³ P(t²), cos t = 1 - t²/2 + t⁴ Q(t²) for |t| ≤ π/4, highest power first.
SIN_POLYNOMIAL = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS_POLYNOMIAL = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)

LOG_2 = math.log(2.0)
SQRT_HALF_BITS = 0x3F3504F3
"""float32 bits of √½: subtracting them splits a float into a power of two and a mantissa in [√½, √2)."""
MANTISSA_BITS = 23
RADIUS_BITS = 31
"""A radius uses 31 random bits: u = (k + ½) / 2³¹, so no draw is beyond sqrt(2·32·log 2) = 6.66 standard deviations."""
TURN = 2.0 * math.pi / 2.0**32
"""One step of the 32-bit angle, in radians."""
UNIFORM_BITS = 24
"""Uniform noise uses the upper 24 bits k of a word: (2k + 1 - 2²⁴) / 2²⁴, which float32 holds exactly."""

GRID_GENERATOR = "chacha20"
"""What makes the noise on a grid, as a manifest says it."""
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
"""Noise on a grid: every word of a block gives two draws of 16 bits."""
FURTHER_BLOCKS = 1 << 31
"""The blocks of a row from here on hold the further bits of draws that 16 bits do not settle."""
FURTHER_PER_BLOCK = 8
GREATEST_WHOLE = 2**24 - 1
"""Sums of a level and noise are kept within ± this, so that float32 holds them."""
