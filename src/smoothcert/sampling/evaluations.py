"""The number of evaluations of inputs that are split, instead of the level that decides it."""

from __future__ import annotations

from typing import Any

from smoothcert.errors import InputError
from smoothcert.noise import level_of
from smoothcert.records import Noise
from smoothcert.sampling.grid_choice import EIGHT_BITS


def read_level(sigma: Any, evaluations: int | None, *, noise: Noise, grid: int | str | None) -> Any:
    """sigma, or the level that makes so many evaluations on the grid; an InputError unless one of the two is given."""
    if (sigma is None) == (evaluations is None):
        either = "" if noise.sampled else ", or the number of evaluations that it makes"
        raise InputError(f"give sigma{either}" if sigma is None else "sigma and evaluations decide the same: give one")
    if evaluations is None:
        return sigma
    if noise.sampled:
        raise InputError(f"evaluations are counted for splitting, and the noise here is {noise}: give sigma instead")
    return level_of(evaluations, levels=grid if isinstance(grid, int) else EIGHT_BITS)
