"""The law of exact noise on a grid, and the tables it is drawn with.

Values k/(L-1), k = 0 … L-1, get noise j/(L-1), where the whole number j is distributed as round((L-1)·σ·z) and z is
noise of level 1. Since k is whole, k + j is distributed as round((L-1)·(x + σz)) for x = k/(L-1). So a base classifier
sees x + σz in real numbers behind a rounding step, and the theorems hold as they stand for the classifier with that
step in front. The distance of the tables from this law: `numerics.grid.law_error`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.noise.host import check_sigma
from smoothcert.noise.law import AdditiveLaw, Thresholds
from smoothcert.noise.laws import additive_law_of, law_of
from smoothcert.noise.splitting import evaluations_of
from smoothcert.records import FloatArray, Noise

FIRST_BITS = 16
"""Random bits that settle most draws; the others read MORE_BITS, 64 in total."""
MORE_BITS = 48
MOST_LEVELS = 2**23 + 1
FARTHEST = 2**23
"""No |j| is larger: with |k| ≤ 2²³ the sum is a float32."""


@dataclass(frozen=True, slots=True, eq=False)
class GridLaw:
    """Noise of one level on one grid. For u uniform on 0 … 2⁶⁴-1, j = least + (number of thresholds ≤ u).

    thresholds: (m,) uint64, increasing; j takes the values least … least+m with least = -m/2; the law is symmetric.
    table: (2¹⁶,) int16 or int32, indexed by the upper 16 bits of u. Where they settle j the entry is j - least. Where a
    threshold lies in between it is -1-i, with i the number of thresholds up to the least such u.
    """

    noise: Noise
    sigma: float
    levels: int
    least: int
    thresholds: Thresholds
    table: NDArray[Any]

    @property
    def most(self) -> int:
        """The largest j."""
        return -self.least

    @property
    def scale(self) -> float:
        """The noise level in steps of the grid."""
        return float(Fraction(self.sigma) * (self.levels - 1))

    @property
    def means(self) -> FloatArray:
        """E[z | j] at index j - least, where z is noise of level 1: float64, off by at most 1e-13·(1+|mean|)."""
        return _means(self)


@functools.lru_cache(maxsize=16)
def grid_law(noise: Noise, *, sigma: float, levels: int) -> GridLaw:
    """The law of j = round((levels-1)·sigma·z). sigma: σ, or λ of uniform noise, in units of the input.

    Raises an InputError if the level does not suit the grid. The last few tables are cached.
    """
    check_suits_grid(noise, sigma=sigma, levels=levels)
    thresholds = additive_law_of(noise).grid_thresholds(Fraction(float(sigma)) * (levels - 1))
    law = GridLaw(noise, float(sigma), levels, -(len(thresholds) // 2), thresholds, _table(thresholds))
    for array in (law.thresholds, law.table):
        array.setflags(write=False)
    return law


def check_levels(levels: int) -> None:
    """Raise an InputError for a number of levels that no grid can have."""
    if not (isinstance(levels, (int, np.integer)) and 2 <= levels <= MOST_LEVELS):
        raise InputError(f"a grid has 2 … 2^23+1 levels, not {levels}: 256 for 8-bit images")


def check_suits_grid(noise: Noise, *, sigma: float, levels: int) -> None:
    """Raise an InputError if the noise has more steps on the grid than float32 holds, or is almost always 0."""
    check_levels(levels)
    check_sigma(sigma)
    law, scale = law_of(noise), Fraction(float(sigma)) * (levels - 1)
    if not isinstance(law, AdditiveLaw):
        evaluations_of(sigma, levels=levels)
        return
    farthest = scale * law.farthest
    if farthest > FARTHEST:
        raise InputError(
            f"{noise} noise of sigma={sigma} on a grid of {levels} levels is up to {math.ceil(farthest)} steps, and "
            "float32 holds whole numbers up to 2^24: use a smaller sigma, or noise in floating point (grid='float'; on "
            "the command line --noise float)"
        )
    if scale < law.least_scale:
        raise InputError(
            f"{noise} noise of sigma={sigma} is almost always 0 on a grid of {levels} levels, which are "
            f"{1 / (levels - 1):.3g} apart: use a larger sigma, or noise in floating point (grid='float'; on the "
            "command line --noise float)"
        )


def _table(thresholds: Thresholds) -> NDArray[Any]:
    """See `GridLaw`."""
    first = np.arange(1 << FIRST_BITS, dtype=np.uint64) << np.uint64(MORE_BITS)
    below = np.searchsorted(thresholds, first, side="right")
    through = np.searchsorted(thresholds, first | np.uint64((1 << MORE_BITS) - 1), side="right")
    kind = np.int16 if len(thresholds) < np.iinfo(np.int16).max else np.int32
    return np.where(below == through, below, -1 - below).astype(kind)


@functools.lru_cache(maxsize=16)
def _means(law: GridLaw) -> FloatArray:
    j = np.arange(law.least, law.most + 1, dtype=np.float64)
    means = additive_law_of(law.noise).cell_means(j, law.scale)
    means.setflags(write=False)
    return means
