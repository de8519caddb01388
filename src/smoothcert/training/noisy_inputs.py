"""Noise as a network is trained and judged with: torch's own, quick to make; certificates draw theirs from streams."""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.records import Noise


def with_noise(noise: Noise, inputs: Tensor, *, sigma: float | Tensor, generator: torch.Generator) -> Tensor:
    """x + sigma·z with independent z, standard normal or uniform on [-1, 1); the inputs themselves when sigma is 0.

    inputs: (B, *input_shape). sigma: one number, or (B,), one for every input.
    """
    if isinstance(sigma, Tensor):
        sigma = sigma.reshape(-1, *(1 for _ in inputs.shape[1:]))
    elif sigma == 0:
        return inputs
    return _unit_noise(noise, inputs, generator).mul_(sigma).add_(inputs)


def _unit_noise(noise: Noise, like: Tensor, generator: torch.Generator) -> Tensor:
    match noise:
        case Noise.GAUSSIAN:
            return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)
        case Noise.UNIFORM:
            return torch.rand(like.shape, generator=generator, device=like.device, dtype=like.dtype).mul_(2.0).sub_(1.0)
