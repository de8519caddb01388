"""Changes of an image that keep its class, made on tensors where the network computes."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from smoothcert.errors import InputError

_PAD = 4


class Augment(enum.StrEnum):
    """What is done to every training image before noise is added."""

    NONE = "none"
    FLIP_CROP = "flip-crop"


def check_can_augment(how: Augment, input_shape: Sequence[int]) -> None:
    if how is Augment.FLIP_CROP and len(input_shape) != 3:
        raise InputError(f"--augment {how} is for images (C, H, W); the inputs have the shape {tuple(input_shape)}")


def augmented(inputs: Tensor, how: Augment, generator: torch.Generator) -> Tensor:
    """inputs: (B, C, H, W). Each is mirrored with probability 1/2 and moved by up to 4 pixels, zeros moving in."""
    if how is Augment.NONE:
        return inputs
    count, _, height, width = inputs.shape
    device = inputs.device
    flipped = torch.rand(count, generator=generator, device=device) < 0.5
    down, right = torch.randint(0, 2 * _PAD + 1, (2, count, 1), generator=generator, device=device)
    rows = down + torch.arange(height, device=device)
    columns = right + torch.arange(width, device=device)
    columns = torch.where(flipped.unsqueeze(1), columns.flip(1), columns)
    padded = functional.pad(inputs, (_PAD, _PAD, _PAD, _PAD))
    each = torch.arange(count, device=device).reshape(-1, 1, 1)
    # (B, H, W, C) by advanced indexing over batch, row and column at once; back to channels first.
    moved = padded.permute(0, 2, 3, 1)[each, rows.unsqueeze(2), columns.unsqueeze(1)]
    return moved.permute(0, 3, 1, 2).contiguous()
