"""Splitting: the deterministic ℓ1 certificate of Levine and Feizi (ICML 2021), for inputs on a grid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.certificates.certificate import check_constant
from smoothcert.errors import InputError
from smoothcert.records import FloatArray, Noise, Norm, Proof, Quantity, Smoothing


def splitting_l1_radius(steps: ArrayLike, *, levels: int) -> FloatArray:
    """R = steps/q with q = levels-1: no input k/q at an ℓ1 distance of at most R has another answer (Theorem 2).

    steps: changes of single votes that the class survives (`statistics.vote_bounds.safe_steps`), whole numbers. A step
    of 1/q in one coordinate changes at most one vote. The ball is closed, and nothing is random. Returns the largest
    float64 ≤ R; 0 where steps < 1 or not a finite number.
    """
    count = np.asarray(steps, dtype=np.float64)
    count = np.floor(np.where(np.isfinite(count) & (count >= 1), count, 0.0))
    distinct, place = np.unique(count, return_inverse=True)
    radii: FloatArray = np.array([_round_down(Fraction(int(one), levels - 1)) for one in distinct])[place]
    return radii.reshape(count.shape)


def _round_down(exact: Fraction) -> float:
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0)


@dataclass(frozen=True, slots=True)
class SplittingL1:
    """For a constant number of evaluations, or one that a memory of regions keeps for each input."""

    name: str = "splitting-l1"
    family: str = "splitting-l1"
    noise: Noise = Noise.SPLITTING
    needs: tuple[Quantity, ...] = (Quantity.SAFE_STEPS,)
    proofs: tuple[Proof, ...] = (Proof.EVERY_EVALUATION,)
    varying_sigma: bool = False

    @property
    def norm(self) -> Norm:
        return self.noise.norm

    def check_suits(self, smoothing: Smoothing, /) -> None:
        check_constant(self.name, smoothing)
        if smoothing.grid is None:
            raise InputError(f"{self.name} is about inputs on a grid: give --grid 256 (grid=256) for 8-bit inputs")

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        assert smoothing.grid is not None
        return splitting_l1_radius(quantities[Quantity.SAFE_STEPS], levels=smoothing.grid)


SPLITTING_L1 = (SplittingL1(),)
