"""The one place where noise laws are registered."""

from __future__ import annotations

from typing import assert_never

from smoothcert.errors import InputError
from smoothcert.noise.gaussian_law import GaussianLaw
from smoothcert.noise.law import AdditiveLaw, NoiseLaw
from smoothcert.noise.splitting_law import SplittingLaw
from smoothcert.noise.uniform_law import UniformLaw
from smoothcert.records import Noise

_GAUSSIAN, _UNIFORM, _SPLITTING = GaussianLaw(), UniformLaw(), SplittingLaw()


def law_of(noise: Noise) -> NoiseLaw:
    """Everything known about a noise."""
    match noise:
        case Noise.GAUSSIAN:
            return _GAUSSIAN
        case Noise.UNIFORM:
            return _UNIFORM
        case Noise.SPLITTING:
            return _SPLITTING
        case _:
            assert_never(noise)


def additive_law_of(noise: Noise) -> AdditiveLaw:
    """The law of a noise that is added to the input; an InputError for any other."""
    law = law_of(noise)
    if not isinstance(law, AdditiveLaw):
        raise InputError(f"{noise} is not added to an input: it cannot be used here")
    return law
