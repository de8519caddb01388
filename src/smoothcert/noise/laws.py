"""The one place where noise laws are registered."""

from __future__ import annotations

from typing import assert_never

from smoothcert.noise.gaussian_law import GaussianLaw
from smoothcert.noise.law import NoiseLaw
from smoothcert.noise.uniform_law import UniformLaw
from smoothcert.records import Noise

_GAUSSIAN, _UNIFORM = GaussianLaw(), UniformLaw()


def law_of(noise: Noise) -> NoiseLaw:
    """Everything known about a noise."""
    match noise:
        case Noise.GAUSSIAN:
            return _GAUSSIAN
        case Noise.UNIFORM:
            return _UNIFORM
        case _:
            assert_never(noise)
