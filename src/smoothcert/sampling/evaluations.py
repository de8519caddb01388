"""How many evaluations inputs take that are split: by the level, or given instead of it."""

from __future__ import annotations

from typing import Any

from smoothcert.errors import InputError
from smoothcert.noise import evaluations_of, level_of
from smoothcert.records import Noise
from smoothcert.sampling.grid_choice import EIGHT_BITS
from smoothcert.sigma import ConstantRule, OptimisedSigma, SigmaRule


def read_level(sigma: Any, evaluations: int | None, *, noise: Noise, grid: int | str | None) -> Any:
    """sigma, or the level that makes so many evaluations on the grid.

    An InputError unless one of them is given. With a rule for sigma, `evaluations` is the most that an input may take.
    """
    if sigma is None and evaluations is None:
        raise InputError("give sigma" if noise.sampled else "give sigma, or the number of evaluations that it makes")
    if evaluations is None:
        return sigma
    if noise.sampled:
        raise InputError(f"evaluations are counted for splitting, and the noise here is {noise}: give sigma instead")
    if sigma is None:
        return level_of(evaluations, levels=grid if isinstance(grid, int) else EIGHT_BITS)
    if isinstance(sigma, int | float):
        raise InputError("sigma and evaluations decide the same: give one of them")
    return sigma


def most_evaluations(sigma: SigmaRule | OptimisedSigma, given: int | None, *, levels: int) -> int:
    """The most evaluations that an input may take. given: for a rule whose levels are not known beforehand."""
    if isinstance(sigma, ConstantRule):
        return evaluations_of(sigma.sigma, levels=levels)
    if given is not None:
        return given
    if isinstance(sigma, OptimisedSigma):
        return evaluations_of(sigma.bounds[1], levels=levels)
    raise InputError("sigma is a rule: give evaluations too, the most that an input may take")
