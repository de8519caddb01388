"""Arrays of numbers from what people give: arrays, tensors, images of PIL. torch and PIL are not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.models.imported_models import inherits

Shape = tuple[int, ...]


def read_array(x: Any, input_shape: Shape | None = None) -> NDArray[Any]:
    """One array of numbers from an array, a tensor on any device, an image of PIL, or a list of them.

    Values are not changed: bfloat16, which numpy does not have, becomes float32. Pixels of images are put in the order
    of `input_shape`, channels first if it is not known. A single image, or a single input of that shape, becomes a
    batch of one.
    """
    if is_image(x):
        return _read_image(x, input_shape)[None]
    if isinstance(x, (list, tuple)) and x and all(is_image(one) or hasattr(one, "shape") for one in x):
        return stack_inputs([read_one(one, input_shape) for one in x])
    array = read_numbers(x)
    return array[None] if array.shape == input_shape else array


def is_image(x: Any) -> bool:
    return inherits(x, "PIL", "Image")


def read_one(x: Any, input_shape: Shape | None) -> NDArray[Any]:
    return _read_image(x, input_shape) if is_image(x) else read_numbers(x)


def read_numbers(x: Any) -> NDArray[Any]:
    try:
        if hasattr(x, "detach"):
            x = x.detach().cpu()
            x = x.float() if str(x.dtype) == "torch.bfloat16" else x
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"inputs given as {type(x).__name__} cannot be read as one array: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"inputs of type {array.dtype} cannot be smoothed; numbers were expected")
    return array


def _read_image(image: Any, input_shape: Shape | None) -> NDArray[Any]:
    """The pixels in the order that the model takes."""
    if image.mode in ("P", "PA"):
        raise InputError('images with a palette have no colours of their own: convert them with convert("RGB") first')
    pixels = read_numbers(image)
    orders = [pixels[None], pixels, pixels[..., None]] if pixels.ndim == 2 else [np.moveaxis(pixels, -1, 0), pixels]
    fitting = [order for order in orders if order.shape == input_shape]
    if input_shape is not None and not fitting:
        raise InputError(
            f"a PIL image of {image.width} x {image.height} pixels, mode {image.mode}, gives inputs of shape "
            f"{orders[0].shape}, but the model takes {input_shape}: resize or convert it first"
        )
    return (fitting or orders)[0]


def stack_inputs(arrays: Sequence[NDArray[Any]], positions: Sequence[int] | None = None) -> NDArray[Any]:
    """One array of inputs of equal shapes."""
    for place, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            first, other = (0, place) if positions is None else (positions[0], positions[place])
            raise InputError(
                f"input {other} has shape {array.shape}, and input {first} has {arrays[0].shape}; inputs of one shape "
                "were expected: resize or crop them first"
            )
    return np.stack(arrays)
