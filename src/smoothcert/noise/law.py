"""What must be known about a noise law; each law is one final class in its own file, registered in `laws.py`.

Throughout, z is one coordinate of added noise at level 1. All such laws are symmetric: -z is as likely as z.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.records import FloatArray, InputArray, Noise, TallyKind

if TYPE_CHECKING:
    import torch

Thresholds = NDArray[np.uint64]
WORD_BITS = 64
"""A uniform number on [0, 1) is u/2⁶⁴, where u is a whole number of this many bits."""

Words = NDArray[np.uint64]
NumpyWords = tuple[Words, Words, Words, Words]
NumpyLanes = tuple[InputArray, InputArray, InputArray, InputArray]
TorchLanes = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor", "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class CompiledNoise:
    """A compiled generator. Arguments: see `gaussian_with_numba.py`. several_rows: it makes several rows at once."""

    add: Callable[..., None]
    several_rows: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SelfTestFacts:
    """What the self-test compares draws and tables with.

    float_reach: |z| in floating point when all random bits are 0. float_most: an upper bound of |z| in floating point.
    edges: where the distribution function of floating-point noise is compared. even_moments: E z², E z⁴, E z⁶, E z⁸.
    tail_from: grid tables are compared with `NoiseLaw.probability_below` from this |z| on.
    """

    float_reach: float
    float_most: float
    edges: FloatArray
    even_moments: tuple[float, float, float, float]
    tail_from: float


class NoiseLaw(abc.ABC):
    """What every noise law states.

    tallies: what may be counted under this noise. stays_after_linear_layer: whether a linear map of the noise is noise
    of the same law, up to its covariance.
    """

    noise: ClassVar[Noise]
    tallies: ClassVar[frozenset[TallyKind]]
    stays_after_linear_layer: ClassVar[bool]

    @abc.abstractmethod
    def estimated_radius(self, own: FloatArray, other: FloatArray, *, sigma: FloatArray, clamp: float) -> FloatArray:
        """The radius at which two mean scores meet, if they were known exactly: an estimate for searches, no bound.

        own, other, sigma: of one shape. Negative where `other` leads. clamp: scores are moved into [clamp, 1-clamp]
        where the formula is infinite at 0 and 1.
        """

    @abc.abstractmethod
    def steepest_estimate(self, *, clamp: float) -> float:
        """The derivative of `estimated_radius` by sigma where `own` is 1 and `other` is 0."""


class AdditiveLaw(NoiseLaw):
    """A law of noise that is added. All draws are pure functions of random words: the three versions of a draw give the
    same bits.

    farthest: no |z| on a grid is larger. least_scale: the smallest level, in steps of a grid, at which the noise is not
    almost always 0.
    """

    farthest: ClassVar[Fraction]
    least_scale: ClassVar[Fraction]
    self_test: ClassVar[SelfTestFacts]

    @abc.abstractmethod
    def grid_thresholds(self, scale: Fraction) -> Thresholds:
        """2⁶⁴·P(z < (i-½)/scale), rounded, for all whole i for which that is neither 0 nor 2⁶⁴; increasing in i."""

    @abc.abstractmethod
    def cell_means(self, j: FloatArray, scale: float) -> FloatArray:
        """E[z | z is between (j-½)/scale and (j+½)/scale], for whole j: off by at most 1e-13·(1+|mean|)."""

    @abc.abstractmethod
    def lanes_with_numpy(self, words: NumpyWords) -> NumpyLanes:
        """Four values z from each block of four 32-bit words, in float32. This is the reference version."""

    @abc.abstractmethod
    def lanes_with_torch(self, words: TorchLanes) -> TorchLanes:
        """The same in torch operations, on int64 tensors of 32-bit words."""

    def load_compiled(self, *, short: bool) -> CompiledNoise | None:
        """The generator compiled with numba, for short rows or for any; None if the law has none.

        Raises an ImportError without numba.
        """
        return None

    def load_triton(self) -> Any:
        """The function of Triton that does what `lanes_with_numpy` does, on uint32 words; None if the law has none."""
        return None

    @abc.abstractmethod
    def draw_with_generator(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Independent z of the shape, dtype and device of `like`, from torch's own generator: for training, attacks."""

    @abc.abstractmethod
    def probability_below(self, z: float) -> float:
        """P(noise < z) in floating point; accurate relative to its value for z ≤ 0."""

    @abc.abstractmethod
    def least_grid_reach(self, scale: float) -> float:
        """The extreme random words must give |z| of at least this on a grid."""


def mirror(above: Thresholds) -> Thresholds:
    """The thresholds of all i from those of i ≥ 1: the others are 2⁶⁴ minus these. None is 0."""
    return np.concatenate([(~above + np.uint64(1))[::-1], above])


def as_thresholds(values: list[int]) -> Thresholds:
    """The values below 2⁶⁴."""
    return np.array([value for value in values if value < 1 << WORD_BITS], dtype=np.uint64)
