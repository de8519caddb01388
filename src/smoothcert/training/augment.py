"""Augmentation of images on the device of the network: changes that keep the class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import torch
from torch import Tensor
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.training.choices import Augment

# Largest shift in pixels: the usual 4 for CIFAR-10; 2 for digits, which extend close to the border.
_CROP, _SHIFT = 4, 2


def check_can_augment(how: Augment, input_shape: Sequence[int]) -> None:
    if how is not Augment.NONE and len(input_shape) != 3:
        raise InputError(f"--augment {how} needs images (C, H, W), but inputs have shape {tuple(input_shape)}")


def augment_images(inputs: Tensor, how: Augment, generator: torch.Generator) -> Tensor:
    """Shift every image (B, C, H, W) by up to 2 pixels; flip-crop: by up to 4, and mirror with probability 1/2."""
    match how:
        case Augment.NONE:
            return inputs
        case Augment.SHIFT:
            return _shift(inputs, _SHIFT, None, generator)
        case Augment.FLIP_CROP:
            flipped = torch.rand(len(inputs), generator=generator, device=inputs.device) < 0.5
            return _shift(inputs, _CROP, flipped, generator)
        case _:
            assert_never(how)


def _shift(inputs: Tensor, furthest: int, flipped: Tensor | None, generator: torch.Generator) -> Tensor:
    """Shift each image independently, filling with zeros, and mirror it where `flipped` (B,) is true."""
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
