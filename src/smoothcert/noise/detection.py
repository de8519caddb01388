"""Which grid inputs lie on, where nobody says it: found from their values.

Two grids are looked for: 256 levels, k/255, and 65536 levels, k/65535. Two or 16 levels need no search of their own:
since 255 = 15·17 and 65535 = 255·257, what lies on a coarser one of these grids lies on every finer one, in float32
too, as both quotients are the float32 number nearest to the same value. So a black image, or one of zeros and ones, is
taken for what it nearly always is, 8 bits, and images with more shades may follow it; and of two grids that both fit,
noise in smaller steps is as sound.

A value lies on a grid only if it is exactly the float32 number nearest to k/(L-1): what a division in float32 or
float64 gives, by numpy, by torch or by `ToTensor`. A product with 1/255 in float32 is off in the last bit for half of
all k, and is told apart from values on no grid, but not put on one: then the certificate would be about another point
than the one that was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.errors import InputError
from smoothcert.noise.grid_law import check_levels, check_suits_grid
from smoothcert.noise.grid_noise import Levels, from_grid
from smoothcert.records import InputArray, Noise

DETECT, FLOAT = "detect", "float"
"""What may be said of a grid instead of its number of levels: look for it, or add noise in float32."""
COMMON_LEVELS = (256, 65536)
_LAST_BITS = 2.0**-22
"""Four times what rounding to float32 moves a number of [½, 1] by: within it lies what was rounded twice."""


@dataclass(frozen=True, slots=True)
class DetectedGrid:
    """What was found. levels: None for noise in float32, and then `reason` says why."""

    levels: int | None
    reason: str = ""


def asked_grid(grid: int | str | None) -> int | str:
    """ "detect", "float" or a number of levels, as somebody asks for it; an InputError for anything else."""
    if grid is None or grid in (DETECT, FLOAT):
        return DETECT if grid is None else grid
    if isinstance(grid, bool) or not isinstance(grid, (int, np.integer)):
        raise InputError(
            f"grid={grid!r} is none: give the number of levels of the inputs (256 for 8-bit images), {DETECT!r} to "
            f"look for it, or {FLOAT!r} for noise in floating point"
        )
    check_levels(grid)
    return int(grid)


def detect_grid(
    parts: Iterable[InputArray],
    *,
    noise: Noise,
    sigmas: Callable[[], Sequence[float]],
    in_unit_range: bool = True,
) -> DetectedGrid:
    """The coarsest common grid that all values lie on and whose steps are no larger than sigma.

    parts: the inputs, float32, in pieces of any shape; no more of them are read than it takes. sigmas: gives noise
    levels, of which the smallest and the largest count, if they are asked for; none where they are not known.
    in_unit_range: whether inputs must lie in [0, 1]. Where they may lie anywhere, zeros and ones alone are no sign of
    a grid.
    """
    found, nearly, between = list(COMMON_LEVELS), True, in_unit_range
    for part in parts:
        found = [levels for levels in found if lies_on_grid(part, levels)]
        nearly = nearly and _nearly_on_grid(part, COMMON_LEVELS[0])
        between = between or bool(((part > 0) & (part < 1)).any())
        if not found and not nearly:
            break
    if not found:
        return DetectedGrid(None, _last_bits(COMMON_LEVELS[0]) if nearly else _NO_GRID)
    if not between:
        return DetectedGrid(None, "inputs of zeros and ones that may lie anywhere show no grid")
    needed = sigmas()
    fitting = [levels for levels in found if _carries(levels, noise, needed)]
    if fitting:
        return DetectedGrid(fitting[0])
    known = " or ".join(str(levels) for levels in found)
    return DetectedGrid(None, f"sigma from {min(needed):g} to {max(needed):g} does not suit a grid of {known} levels")


_NO_GRID = f"the inputs lie on no grid of {' or '.join(map(str, COMMON_LEVELS))} levels"


def _last_bits(levels: int) -> str:
    steps = levels - 1
    return (
        f"the inputs are multiples of 1/{steps} but for their last bits, as a product with 1/{steps} in float32 leaves "
        f"them (divide by {steps} instead)"
    )


def lies_on_grid(inputs: InputArray, levels: int) -> bool:
    """Whether every value is exactly one of 0, 1/(levels-1), … 1 as a float32. inputs: float32 of any shape."""
    return _in_unit_range(inputs) and bool((from_grid(_nearest(inputs, levels), levels) == inputs).all())


def _nearly_on_grid(inputs: InputArray, levels: int) -> bool:
    beside = np.abs(from_grid(_nearest(inputs, levels), levels) - inputs)
    return _in_unit_range(inputs) and bool((beside <= np.float32(_LAST_BITS)).all())


def _in_unit_range(inputs: InputArray) -> bool:
    return bool(((inputs >= 0) & (inputs <= 1)).all())


def _nearest(inputs: InputArray, levels: int) -> Levels:
    """The nearest levels; what is beyond 0 … 1, or no number, is none of them and comes out as one all the same."""
    inside = np.clip(np.nan_to_num(inputs.astype(np.float64)), 0.0, 1.0)
    nearest: Levels = np.rint(inside * (levels - 1)).astype(np.int32)
    return nearest


def _carries(levels: int, noise: Noise, sigmas: Sequence[float]) -> bool:
    """Whether the noise is at least one step and not more of them than float32 holds."""
    if not sigmas:
        return True
    least, most = min(sigmas), max(sigmas)
    try:
        check_suits_grid(noise, sigma=least, levels=levels)
        check_suits_grid(noise, sigma=most, levels=levels)
    except InputError:
        return False
    return least * (levels - 1) >= 1.0
