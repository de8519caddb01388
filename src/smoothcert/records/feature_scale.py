"""A noise level for each feature: inputs are divided by a scale; noise, distances and radii belong to the quotients.

Feature j gets noise of the level σ·s_j. That is noise of the level σ on u = x/s, for the classifier u ↦ f(u·s). So all
theorems hold as they are, in the norm ‖(x'-x)/s‖.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records.class_names import clip_name
from smoothcert.records.tallies import InputArray

_SMALLEST, _LARGEST = 2.0**-126, 2.0**127
"""Numbers of the scale are normal numbers of float32: a smaller one would become 0, or lose digits."""


@dataclass(frozen=True, slots=True)
class FeatureScale:
    """One positive number for each feature of a flat input, in the order in which the model takes them."""

    numbers: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.numbers:
            raise InputError("a scale without numbers was given: one positive number for each feature is needed")
        object.__setattr__(self, "numbers", tuple(map(float, self.numbers)))  # equal scales have equal digests
        for place, number in enumerate(self.numbers):
            if not (math.isfinite(number) and _SMALLEST <= number <= _LARGEST):
                raise InputError(
                    f"the scale of feature {place} is {number:g}: a positive finite number is needed, from "
                    f"{_SMALLEST:.3g} to {_LARGEST:.3g}"
                )

    def check_fits(self, input_shape: tuple[int, ...]) -> None:
        """InputError unless inputs are flat and have one value for each number."""
        count = f"{len(self.numbers)} {'number was' if len(self.numbers) == 1 else 'numbers were'} given"
        if len(input_shape) != 1:
            raise InputError(
                f"a sigma for each feature is for tables, and inputs here have the shape {input_shape}: give one sigma "
                "for all values"
            )
        if input_shape[0] != len(self.numbers):
            raise InputError(f"inputs have {input_shape[0]} features, and {count} for the scale: give one for each")

    def divide(self, inputs: InputArray) -> InputArray:
        """x/s, (m, d) for (m, d): divided in float64, then rounded to float32; InputError if that overflows."""
        with np.errstate(over="ignore"):
            scaled: InputArray = (inputs.astype(np.float64) / np.array(self.numbers)).astype(np.float32)
        if not np.isfinite(scaled).all():
            place = int(np.argmin(np.isfinite(scaled).all(axis=0)))
            raise InputError(
                f"values of feature {place} divided by its scale {self.numbers[place]:g} are too large for float32: "
                "give it a larger scale"
            )
        return scaled

    def multiply(self, scaled: InputArray) -> InputArray:
        """u·s in float32, (m, d) for (m, d), or (d,) for one row. What overflows is infinite, as any other input."""
        with np.errstate(over="ignore"):
            inputs: InputArray = scaled * self.factors
        return inputs

    @property
    def factors(self) -> InputArray:
        """The numbers in float32, by which models multiply."""
        return np.array(self.numbers, dtype=np.float32)


def name_norm(norm: str, scale: FeatureScale | None) -> str:
    """A norm as people read it: "l2", or "scaled l2" where features are divided by a scale first."""
    return norm if scale is None else f"scaled {norm}"


def measure_deviations(inputs: InputArray, names: Sequence[str] = ()) -> FeatureScale:
    """The standard deviation of every feature of (m, d) inputs, divided by m, correctly rounded on every machine.

    names: of the features, for the message about one that is constant.
    """
    if inputs.ndim != 2:
        raise InputError(
            f"standard deviations of features are for tables, and inputs here have the shape {inputs.shape[1:]}: give "
            "one sigma for all values"
        )
    numbers = [_measure_deviation(column.tolist()) for column in inputs.astype(np.float64).T]
    constant = [place for place, number in enumerate(numbers) if not number >= _SMALLEST]
    if constant:
        named = ", ".join(clip_name(names[place]) if names else str(place) for place in constant[:5])
        more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
        raise InputError(
            f"the standard deviation of feature {named}{more} is 0, because it is constant, and noise cannot be scaled "
            "by it: give the scale in numbers, one for each feature, as in --sigma-scale 0.1,2,30"
        )
    return FeatureScale(tuple(numbers))


def _measure_deviation(values: list[float]) -> float:
    # Sums are exact, so the numbers do not depend on the order of summation of a version of numpy.
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
