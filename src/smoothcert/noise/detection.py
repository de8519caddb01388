"""Detecting the grid that inputs lie on from their values.

Two grids are tried: 256 levels, k/255, and 65536 levels, k/65535. Grids of 2 or 16 levels need no search: since
255 = 15·17 and 65535 = 255·257, values on a coarser one of these grids lie on every finer one, also in float32, because
both quotients are the float32 number nearest to the same value. So an image of zeros and ones is taken as 8 bits, which
it nearly always is. If two grids fit, noise in smaller steps is just as sound.

A value lies on a grid only if it is exactly the float32 number nearest to k/(L-1): the result of a division in float32
or float64, by numpy, by torch or by `ToTensor`. A product with 1/255 in float32 is off in the last bit for half of all
k. Such values are recognised, but not moved to the grid: the certificate would be about another point.
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
"""May be given instead of a number of levels: detect the grid, or add noise in float32."""
COMMON_LEVELS = (256, 65536)
_LAST_BITS = 2.0**-22
"""Four times the float32 rounding error of numbers in [½, 1]: larger than the error of values rounded twice."""


@dataclass(frozen=True, slots=True)
class DetectedGrid:
    """The result of a detection. levels: None for noise in float32; `reason` then says why."""

    levels: int | None
    reason: str = ""


def parse_grid(grid: int | str | None) -> int | str:
    """Check the setting of the grid: "detect" (the default), "float" or a number of levels."""
    if grid is None or grid in (DETECT, FLOAT):
        return DETECT if grid is None else grid
    if isinstance(grid, bool) or not isinstance(grid, (int, np.integer)):
        raise InputError(
            f"grid={grid!r} is invalid: give the number of levels of the inputs (256 for 8-bit images), {DETECT!r} to "
            f"detect it, or {FLOAT!r} for noise in floating point"
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

    parts: the inputs, float32, in pieces of any shape, read only as far as needed. sigmas: returns noise levels, of
    which the smallest and the largest are used, or none if they are not known; called only if a grid fits.
    in_unit_range: whether inputs must lie in [0, 1]. If they may lie anywhere, zeros and ones alone do not show a grid.
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
        return DetectedGrid(None, "zeros and ones alone show no grid, because inputs may lie outside [0, 1]")
    needed = sigmas()
    fitting = [levels for levels in found if _suits(levels, noise, needed)]
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
    """The nearest levels; values outside [0, 1] are clipped, and NaN becomes 0."""
    inside = np.clip(np.nan_to_num(inputs.astype(np.float64)), 0.0, 1.0)
    nearest: Levels = np.rint(inside * (levels - 1)).astype(np.int32)
    return nearest


def _suits(levels: int, noise: Noise, sigmas: Sequence[float]) -> bool:
    """Whether the noise level is at least one step, and the noise has no more steps than float32 holds."""
    if not sigmas:
        return True
    least, most = min(sigmas), max(sigmas)
    try:
        check_suits_grid(noise, sigma=least, levels=levels)
        check_suits_grid(noise, sigma=most, levels=levels)
    except InputError:
        return False
    return least * (levels - 1) >= 1.0
