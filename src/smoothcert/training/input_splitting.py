"""Copies of training inputs that are split (`noise.splitting`), as certification evaluates them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from smoothcert.data import Dataset
from smoothcert.errors import DataError, InputError
from smoothcert.models.devices import in_float64
from smoothcert.noise import evaluations_of
from smoothcert.noise.grid_law import check_levels
from smoothcert.noise.splitting_with_torch import offsets_on, split_with_torch
from smoothcert.records import InputArray
from smoothcert.sampling.grid_choice import EIGHT_BITS
from smoothcert.settings_text import as_counts

_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Splitting:
    """What decides the cells besides the level of the noise. Certification must use the same numbers.

    levels: of the grid that inputs are rounded to. offset_seed: of the offsets of the cells; the seed of a certified
    run. It is not the seed of the training.
    """

    levels: int = EIGHT_BITS
    offset_seed: int = 0

    def __post_init__(self) -> None:
        check_levels(self.levels)
        if not 0 <= self.offset_seed < 2**128:
            raise InputError(f"the seed of the offsets is {self.offset_seed}: expected 0 … 2^128-1; 0 is usual")

    def count_evaluations(self, level: float) -> int:
        """How many evaluations certification makes at this level; an InputError if it is no possible level."""
        return evaluations_of(level, levels=self.levels)

    def draw_copies(self, inputs: Tensor, count: int, *, level: float, generator: torch.Generator) -> Tensor:
        """`count` random evaluations of every input, out of all evaluations: (count, B, *input_shape)."""
        numbers = torch.randint(
            self.count_evaluations(level), (count, len(inputs)), generator=generator, device=inputs.device
        )
        return self.split(inputs, numbers, level=level)

    def split(self, inputs: Tensor, numbers: Tensor, *, level: float) -> Tensor:
        """The evaluations with these numbers: (count, B, *input_shape). inputs: in [0, 1]; numbers: (count, B)."""
        k = round_to_steps(inputs, self.levels).flatten(1)
        evaluations = self.count_evaluations(level)
        offsets = offsets_on(k.device, self.offset_seed, evaluations=evaluations, size=k.shape[1])
        copies = split_with_torch(k, offsets, numbers.unsqueeze(2), evaluations=evaluations, levels=self.levels)
        return copies.view(*numbers.shape, *inputs.shape[1:])

    def to_json(self, level: float) -> dict[str, Any]:
        """JSON facts of a training at this level."""
        return {
            "evaluations": self.count_evaluations(level),
            "grid": self.levels,
            "offset_seed": self.offset_seed,
        }


def read_splitting(grid: int | None, offset_seed: int | None) -> Splitting | None:
    """What was said of how inputs are split; None if nothing was said."""
    if grid is None and offset_seed is None:
        return None
    levels, seed = as_counts(grid=grid, offset_seed=offset_seed)
    return Splitting(levels=EIGHT_BITS if levels is None else levels, offset_seed=seed or 0)


def round_to_steps(inputs: Tensor, levels: int) -> Tensor:
    """The nearest k of inputs k/(levels-1), int64, as certification rounds them."""
    return (in_float64(inputs) * (levels - 1)).round_().long().to(inputs.device)


def check_can_be_split(dataset: Dataset) -> None:
    """Refuse inputs that are not in [0, 1]."""
    if dataset.input_range is not None and dataset.input_range[0] >= 0 and dataset.input_range[1] <= 1:
        return
    for part in _read_parts(dataset):
        if not (part.min() >= 0 and part.max() <= 1):  # also where a value is NaN
            raise DataError(
                f"splitting is for inputs in [0, 1], and those of {dataset.name} have values from {part.min():g} to "
                f"{part.max():g}: divide them by their range first"
            )


def _read_parts(dataset: Dataset) -> Iterator[InputArray]:
    for start in range(0, len(dataset), _CHUNK):
        yield dataset.inputs(slice(start, start + _CHUNK))
