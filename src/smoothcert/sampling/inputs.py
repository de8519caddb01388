"""The inputs of one call or run with labels and indices, and the checks that make them float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.records import InputArray

InputRange = tuple[float, float]
_LARGEST_BYTE = 255


@dataclass(frozen=True, slots=True)
class InputSource:
    """Inputs with the indices of their noise streams and their labels, if known.

    load: gives the inputs at some positions, (k, *input_shape) float32; they may be read from disk only then. announce:
    called with the positions that are loaded next, or with none, so that they can be read meanwhile. is_kept: they are
    in memory. feature_names: of the columns, in the order the model takes them; empty if they have none.
    """

    indices: Sequence[int]
    labels: Sequence[int | None]
    load: Callable[[Sequence[int]], InputArray]
    announce: Callable[[Sequence[int]], None] = lambda _: None
    is_kept: bool = True
    feature_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.indices)


def check_shape(array: NDArray[Any], input_shape: tuple[int, ...] | None) -> None:
    """input_shape: what the model takes; None if it takes any."""
    if array.ndim < 2 or (input_shape is not None and array.shape[1:] != input_shape):
        wanted = "(m, features…)" if input_shape is None else str(("m", *input_shape)).replace("'", "")
        single = ". A single input becomes a batch with x[None]" if array.ndim < 2 else ""
        raise InputError(f"inputs have shape {array.shape}; a batch of shape {wanted} was expected{single}")
    if len(array) == 0:
        raise InputError("there are no inputs to work on: the batch is empty")


def to_float32(array: NDArray[Any], input_range: InputRange | None) -> InputArray:
    """float32 inputs within the range. uint8 is divided by 255 where the range is (0, 1)."""
    eight_bits = array.dtype == np.uint8 and input_range is not None and tuple(input_range) == (0, 1)
    # Cast first: what is finite in float64 may be infinite in the float32 the model sees.
    with np.errstate(over="ignore"):
        # A copy: what was checked stays what is sampled, whatever the caller does with the array meanwhile.
        inputs: InputArray = np.array(array, dtype=np.float32, order="C")
    if eight_bits:
        inputs = inputs / np.float32(_LARGEST_BYTE)
    if not np.isfinite(inputs).all():
        raise InputError("inputs contain NaN or infinite values (in float32); remove or repair them first")
    if input_range is not None:
        low, high = float(inputs.min()), float(inputs.max())
        if low < input_range[0] or high > input_range[1]:
            # The same advice as for files (`data.user_files`).
            eight_bit = (
                "if these are 8-bit images, give them as uint8 or divide by 255; otherwise "
                if low >= 0 and 1 < high <= _LARGEST_BYTE
                else ""
            )
            raise InputError(
                f"inputs lie in [{low:.4g}, {high:.4g}], outside [{input_range[0]:g}, {input_range[1]:g}]: "
                f"sigma is in pixel units; {eight_bit}put Standardise inside the model, or say input_range=None "
                "(--input-range any) if this is meant"
            )
    return inputs
