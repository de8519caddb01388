"""The law of exact noise on a grid, and the tables it is drawn with.

Values k/(L-1), k = 0 … L-1, get noise j/(L-1), where the whole number j is distributed as round((L-1)·σ·z): z standard
normal, or uniform on [-1, 1]. As k is whole, k + j is distributed as round((L-1)·(x + σz)) for x = k/(L-1). So what a
base classifier sees of x is what it would see of x + σz in real numbers behind a rounding step, and the theorems hold
as they stand for the classifier with that step in front. How far the tables are from this law:
`numerics.grid.law_error`.
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
from smoothcert.noise.thresholds import Thresholds, normal_thresholds, uniform_thresholds
from smoothcert.records import FloatArray, Noise

FIRST_BITS = 16
"""Random bits that settle most draws; the others read so many more that it is 64 in all."""
MORE_BITS = 48
MOST_LEVELS = 2**23 + 1
FARTHEST = 2**23
"""No |j| is larger: with |k| ≤ 2²³ the sum is a float32."""
_LAST_STANDARD_DEVIATION = Fraction(37, 4)
_LEAST_SCALE = {Noise.GAUSSIAN: Fraction(1, 10), Noise.UNIFORM: Fraction(1, 2) + Fraction(1, 2**20)}
"""Of (L-1)·σ. Below it at most two in a million values of the noise are not 0."""
_HEAVY_NODES, _LIGHT_NODES, _LIGHT = 80, 12, 0.5
"""Nodes of an integral; few are enough where the logarithm of the density changes by less than _LIGHT."""


@dataclass(frozen=True, slots=True, eq=False)
class GridLaw:
    """Noise of one level on one grid. With u = 0 … 2⁶⁴-1 all equally likely, j = least + (how many thresholds are ≤ u).

    thresholds: (m,) uint64, increasing; j takes the values least … least+m, and least = -m/2: -j is as likely as j.
    table: (2¹⁶,) int16 or int32, by the upper 16 bits of u. Where they settle j the entry is j - least; where a
    threshold lies in between it is -1-i, i the number of thresholds up to the least such u.
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
    def means(self) -> FloatArray:
        """E[z | j] at place j - least, z being noise of level 1: float64, off by at most 1e-13·(1+|mean|)."""
        return _means(self)


@functools.lru_cache(maxsize=16)
def grid_law(noise: Noise, *, sigma: float, levels: int) -> GridLaw:
    """The law of j = round((levels-1)·sigma·z). noise: of z; sigma: σ, or λ of uniform noise, in units of the input.

    The tables of the last few are kept. A level that does not suit the grid is refused.
    """
    check_suits_grid(noise, sigma=sigma, levels=levels)
    scale = Fraction(float(sigma)) * (levels - 1)
    thresholds = normal_thresholds(scale) if noise is Noise.GAUSSIAN else uniform_thresholds(scale)
    law = GridLaw(noise, float(sigma), levels, -(len(thresholds) // 2), thresholds, _table(thresholds))
    for array in (law.thresholds, law.table):
        array.setflags(write=False)
    return law


def check_levels(levels: int) -> None:
    """Refuse a number of levels that no grid can have."""
    if not (isinstance(levels, (int, np.integer)) and 2 <= levels <= MOST_LEVELS):
        raise InputError(f"a grid has 2 … 2^23+1 levels, not {levels}: 256 for 8-bit images")


def check_suits_grid(noise: Noise, *, sigma: float, levels: int) -> None:
    """Refuse a level of noise that a grid cannot carry: of steps that float32 does not hold, or of hardly any."""
    check_levels(levels)
    check_sigma(sigma)
    scale = Fraction(float(sigma)) * (levels - 1)
    farthest = scale * (_LAST_STANDARD_DEVIATION if noise is Noise.GAUSSIAN else 1)
    if farthest > FARTHEST:
        raise InputError(
            f"{noise} noise of sigma={sigma} on a grid of {levels} levels is up to {math.ceil(farthest)} steps, and "
            "float32 holds whole numbers up to 2^24: use a smaller sigma, or noise in floating point (grid='float'; on "
            "the command line --noise float)"
        )
    if scale < _LEAST_SCALE[noise]:
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
    """E[z | j] for all j: z is in the cell from (j-½)/scale to (j+½)/scale."""
    scale = float(Fraction(law.sigma) * (law.levels - 1))
    j = np.arange(law.least, law.most + 1, dtype=np.float64)
    if law.noise is Noise.UNIFORM:
        means = (np.minimum((j + 0.5) / scale, 1.0) + np.maximum((j - 0.5) / scale, -1.0)) / 2
    else:
        means = _normal_means(j / scale, 0.5 / scale)
    means.setflags(write=False)
    return means


def _normal_means(centre: FloatArray, half_width: float) -> FloatArray:
    """Means of a standard normal given that it is at most half_width from centre; half_width is at most 5.

    At a distance t from the end of the cell that is nearer to 0, at a ≥ 0, the density is proportional to
    exp(-at-t²/2). Both integrals of the mean, a + E[t], are sums of positive terms (Gauss and Legendre): no cancelling.
    """
    near, width = np.abs(centre) - half_width, 2 * half_width
    light = (near.max() + width) * width < _LIGHT
    nodes, weights = np.polynomial.legendre.leggauss(_LIGHT_NODES if light else _HEAVY_NODES)
    mass, moment = np.zeros_like(centre), np.zeros_like(centre)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        t = half_width * (1.0 + node)
        part = weight * np.exp(-t * (near + t / 2))
        mass += part
        moment += t * part
    means: FloatArray = np.sign(centre) * (near + moment / mass)  # of the cell around 0: 0
    return means
