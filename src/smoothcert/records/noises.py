"""The noises that may be added to an input, and the facts about each that every room may use.

How a noise is drawn is known to `smoothcert.noise` alone. This file holds the facts needed by rooms that must not
import it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import assert_never

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records.tallies import FloatArray


class Norm(enum.StrEnum):
    """The norm a radius is measured in."""

    L1 = "l1"
    L2 = "l2"


@dataclass(frozen=True, slots=True)
class NoiseFacts:
    """What is known about one noise without drawing it.

    norm: of the radii that its theorems give. title: its name in a sentence. level_symbol: the letter of its level.
    unit_variance: of one coordinate at level 1. constant_sigma_certificate and varying_sigma_certificate: the
    certificates used when none is named. soft_two_class_certificate: proves that one class has a larger mean score than
    every other; None if scores cannot be counted. table_reach: beyond this |z| either tail of the law is below 2⁻⁶⁵ -
    2⁻⁹⁹ (`numerics.grid.law_error`). illustrate: draws an array of the given shape at level 1 with numpy's own
    generator, for pictures. sampled: whether votes are samples; otherwise every evaluation there is, is made.
    """

    norm: Norm
    title: str
    level_symbol: str
    unit_variance: float
    constant_sigma_certificate: str
    varying_sigma_certificate: str
    soft_two_class_certificate: str | None
    table_reach: Fraction
    illustrate: Callable[[np.random.Generator, tuple[int, ...]], FloatArray]
    sampled: bool = True


class Noise(enum.StrEnum):
    """The noise added to an input before the base classifier sees it; the value is the word on the command line.

    Its level, called sigma throughout, is the standard deviation σ of each coordinate of Gaussian noise N(0, σ²I), and
    the half-width λ of uniform noise on [-λ, λ]^d. Splitting replaces every coordinate by the middle of a cell around
    it, of width 2λ (`smoothcert.noise.splitting`); it has ⌊2λq⌋ outcomes for inputs k/q, which are all evaluated.
    """

    GAUSSIAN = "gaussian"
    UNIFORM = "uniform"
    SPLITTING = "splitting"

    @property
    def facts(self) -> NoiseFacts:
        match self:
            case Noise.GAUSSIAN:
                return _GAUSSIAN
            case Noise.UNIFORM:
                return _UNIFORM
            case Noise.SPLITTING:
                return _SPLITTING
            case _:
                assert_never(self)

    @property
    def norm(self) -> Norm:
        return self.facts.norm

    @property
    def sampled(self) -> bool:
        """Whether votes under this noise are samples; if not, they are certain."""
        return self.facts.sampled

    @property
    def soft_certificate(self) -> str:
        """The certificate that one class has a larger mean score than every other; an InputError without one."""
        name = self.facts.soft_two_class_certificate
        if name is None:
            raise InputError(f"scores cannot be counted under {self}: only votes can")
        return name

    def usual_certificate(self, *, constant_sigma: bool) -> str:
        """The certificate used when none is named."""
        return self.facts.constant_sigma_certificate if constant_sigma else self.facts.varying_sigma_certificate


_GAUSSIAN = NoiseFacts(
    norm=Norm.L2,
    title="Gaussian",
    level_symbol="σ",
    unit_variance=1.0,
    constant_sigma_certificate="gaussian",
    varying_sigma_certificate="envelope",
    soft_two_class_certificate="gaussian-soft-two-class",
    table_reach=Fraction(92, 10),
    illustrate=lambda generator, shape: generator.standard_normal(shape),
)
_UNIFORM = NoiseFacts(
    norm=Norm.L1,
    title="uniform",
    level_symbol="λ",
    unit_variance=1.0 / 3.0,
    constant_sigma_certificate="uniform-l1",
    varying_sigma_certificate="uniform-l1",
    soft_two_class_certificate="uniform-l1-soft-two-class",
    table_reach=Fraction(92, 10),  # 1 would suffice: kept, so that prices do not change
    illustrate=lambda generator, shape: generator.uniform(-1.0, 1.0, shape),
)
_SPLITTING = NoiseFacts(
    norm=Norm.L1,
    title="splitting",
    level_symbol="λ",
    unit_variance=1.0 / 3.0,
    constant_sigma_certificate="splitting-l1",
    varying_sigma_certificate="splitting-l1",
    soft_two_class_certificate=None,
    table_reach=Fraction(92, 10),  # no table is used
    illustrate=lambda generator, shape: generator.uniform(-1.0, 1.0, shape),
    sampled=False,
)
