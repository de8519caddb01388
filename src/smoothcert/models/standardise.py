"""The layer that converts inputs to the units a network was trained on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from smoothcert.errors import InputError


class Standardise(nn.Module):
    """(x - mean) / std, per channel.

    It is the *first layer of the model*, never a step before the noise: sigma and every radius are in the units of the
    input of this layer.

    mean, std: one number (used for every value) or one per channel; for flat inputs a channel is a feature. Both are
    buffers, so checkpoints contain them. Input (B, C, …), output of the same shape.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        check_standardisation(mean, std)
        self.register_buffer("mean", torch.tensor(tuple(mean), dtype=torch.float32))
        self.register_buffer("std", torch.tensor(tuple(std), dtype=torch.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        per_channel = (1, -1) + (1,) * (inputs.ndim - 2)
        return (inputs - self.mean.view(per_channel)) / self.std.view(per_channel)

    def extra_repr(self) -> str:
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}"


def check_standardisation(mean: Sequence[float], std: Sequence[float]) -> None:
    """InputError for different lengths, numbers that are not finite, and a std that is not positive."""
    if len(mean) != len(std) or len(mean) == 0:
        raise InputError(f"standardisation has {len(mean)} means and {len(std)} deviations; give one each per channel")
    values = torch.tensor((*mean, *std), dtype=torch.float64)
    if not bool(torch.isfinite(values).all()) or min(std) <= 0:
        raise InputError(f"standardisation by mean {list(mean)} and std {list(std)}: std must be positive, all finite")
