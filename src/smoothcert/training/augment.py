"""Changes of an image that keep its class, made on tensors where the network computes."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from smoothcert.errors import InputError

# The furthest an image is moved, in pixels: the usual 4 for CIFAR-10; 2 for digits, which reach near the border.
_CROP, _SHIFT = 4, 2


class Augment(enum.StrEnum):
    """What is done to every training image before noise is added."""

    NONE = "none"
    SHIFT = "shift"
    FLIP_CROP = "flip-crop"


def check_can_augment(how: Augment, input_shape: Sequence[int]) -> None:
    if how is not Augment.NONE and len(input_shape) != 3:
        raise InputError(f"--augment {how} is for images (C, H, W); the inputs have the shape {tuple(input_shape)}")


def augmented(inputs: Tensor, how: Augment, generator: torch.Generator) -> Tensor:
    """inputs: (B, C, H, W). Each is moved by up to 2 pixels; flip-crop: up to 4, and mirrored with probability 1/2."""
    if how is Augment.NONE:
        return inputs
    if how is Augment.SHIFT:
        return _moved(inputs, _SHIFT, None, generator)
    flipped = torch.rand(len(inputs), generator=generator, device=inputs.device) < 0.5
    return _moved(inputs, _CROP, flipped, generator)


def _moved(inputs: Tensor, furthest: int, flipped: Tensor | None, generator: torch.Generator) -> Tensor:
    """Each image moved on its own, zeros moving in, and mirrored where `flipped` (B,) says so."""
    count, _, height, width = inputs.shape
    device = inputs.device
    down, right = torch.randint(0, 2 * furthest + 1, (2, count, 1), generator=generator, device=device)
    rows = down + torch.arange(height, device=device)
    columns = right + torch.arange(width, device=device)
    if flipped is not None:
        columns = torch.where(flipped.unsqueeze(1), columns.flip(1), columns)
    padded = functional.pad(inputs, (furthest, furthest, furthest, furthest))
    each = torch.arange(count, device=device).reshape(-1, 1, 1)
    # (B, H, W, C) by advanced indexing over batch, row and column at once; back to channels first.
    moved = padded.permute(0, 2, 3, 1)[each, rows.unsqueeze(2), columns.unsqueeze(1)]
    return moved.permute(0, 3, 1, 2).contiguous()
