"""The grid that the inputs of one smoothed classifier lie on: given, or found from the first inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from smoothcert.errors import InputError
from smoothcert.noise.detection import DETECT, FLOAT, DetectedGrid, detect_grid, parse_grid
from smoothcert.noise.grid_noise import from_grid, to_grid
from smoothcert.records import InputArray, Noise
from smoothcert.records.sentences import describe_noise

MEMORY_NEEDS_A_GRID = "a memory keeps the regions of one grid, which must be given by its number of levels"
"""Why a grid is not detected for a memory: two processes that use it may see different inputs first."""


class InputGrid:
    """grid: a number of levels, "detect" or "float". The first inputs decide, where it is to be detected.

    rounds: inputs are rounded to the grid, which must be given; otherwise those that are off it are refused.
    """

    def __init__(self, grid: int | str | None, *, with_memory: bool, rounds: bool = False) -> None:
        self._requested = parse_grid(grid)
        self._rounds = rounds
        self._known: DetectedGrid | None = None
        if self._requested != DETECT:
            self._known = DetectedGrid(None if isinstance(self._requested, str) else self._requested)
        elif with_memory:
            self._known = DetectedGrid(None, MEMORY_NEEDS_A_GRID)

    @property
    def is_known(self) -> bool:
        return self._known is not None

    @property
    def levels(self) -> int | None:
        """None for noise in float32; an InputError while the grid is not known."""
        if self._known is None:
            raise InputError(
                "the grid of the inputs is not known yet: give grid=256 for 8-bit images (or another number of levels) "
                f"or grid={FLOAT!r}, or certify something first"
            )
        return self._known.levels

    @property
    def levels_so_far(self) -> int | None:
        """None also while the grid is not known."""
        return None if self._known is None else self._known.levels

    def __str__(self) -> str:
        if self._known is None:
            return "on the grid of the first inputs"
        why = f": {self._known.reason}" if self._known.reason else ""
        return describe_noise(self._known.levels) + why

    def refuse(self, reason: str) -> None:
        """Use float32, for this reason, unless the grid is known already."""
        if self._known is None:
            self._known = DetectedGrid(None, reason)

    def detect(
        self,
        inputs: InputArray,
        *,
        noise: Noise,
        sigmas: Callable[[], Sequence[float]],
        input_range: tuple[float, float] | None,
    ) -> None:
        """Take the grid of these inputs, unless it is known already."""
        if self._known is None:
            in_unit_range = input_range is not None and input_range[0] >= 0 and input_range[1] <= 1
            self._known = detect_grid([inputs], noise=noise, sigmas=sigmas, in_unit_range=in_unit_range)

    def place(self, inputs: InputArray) -> InputArray:
        """The inputs on the grid; an InputError if they are not, and are not to be rounded."""
        if self.levels is None:
            return inputs
        if self._rounds:
            return from_grid(np.rint(inputs.astype(np.float64) * (self.levels - 1)).astype(np.int32), self.levels)
        try:
            to_grid(inputs, self.levels)
        except InputError as error:
            if self._requested != DETECT:
                raise
            raise InputError(
                f"the first inputs lay on a grid of {self.levels} levels, so the noise of this classifier goes in its "
                f"steps, and these inputs are not on it. Use another SmoothedClassifier for them, or grid={FLOAT!r} "
                f"for all, with noise in floating point. ({error})"
            ) from error
        return inputs
