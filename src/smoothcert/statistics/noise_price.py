"""The price of noise on a grid: the probability that one of the draws differs from a draw of the exact law."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from smoothcert.errors import InputError
from smoothcert.numerics.grid import law_error
from smoothcert.records import AnyTally, Smoothing

_MOST_OF_ALPHA = Fraction(1, 2)


def price_of(tally: AnyTally, smoothing: Smoothing) -> float:
    """`noise_price` of the draws of a tally. A draw that is used twice, at x+ε and x-ε, counts once."""
    return noise_price(smoothing, draws=sum(stop - start for start, stop in tally.ranges), sigma=tally.sigma)


def noise_price(smoothing: Smoothing, *, draws: int, sigma: float) -> float:
    """An upper bound on the probability that any of `draws` noisy copies of an input differs from the exact law.

    Each copy can be coupled with a copy of the exact law such that they differ with probability at most δ, their
    distance in total variation (`numerics.grid.law_error`). Every statement about draws of the exact law at level
    α - draws·δ then holds for the actual draws at level α. Rounded up to a power of two, so that inputs with nearly the
    same σ have the same price, and α minus the price is exact. 0 for noise in float32, for which no bound is known, and
    where nothing is sampled.
    """
    if smoothing.grid is None or not smoothing.noise.sampled:
        return 0.0
    if smoothing.dimension is None:
        raise InputError("the price of noise on a grid depends on the dimension of an input, which is not known")
    return _price(smoothing.grid, smoothing.dimension, draws, sigma, smoothing.noise.facts.table_reach)


@functools.lru_cache(maxsize=1024)  # with a constant sigma it is the same for all inputs of a run
def _price(levels: int, dimension: int, draws: int, sigma: float, reach: Fraction) -> float:
    error = draws * law_error(levels=levels, sigma=sigma, dimension=dimension, reach=reach)
    return float(2.0 ** math.ceil(math.log2(error * (1.0 + 1e-9))))


def alpha_after_noise(alpha: float, price: float) -> float:
    """The part of α left for the proofs, rounded down; an InputError if it is less than half of α."""
    if Fraction(price) > _MOST_OF_ALPHA * Fraction(alpha):
        raise InputError(
            f"alpha={alpha:g} is too small for noise on a grid: with so many samples its finite tables alone may be "
            f"wrong with probability {price:.2g}; use fewer samples, a larger alpha, or float noise (grid='float'; on "
            "the command line --noise float)"
        )
    left = alpha - price
    while Fraction(left) + Fraction(price) > Fraction(alpha):
        left = math.nextafter(left, 0.0)
    return left
