"""Noise as a network is trained and judged with: torch's own, quick to make; certificates draw theirs from streams."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothcert.attacks.attack_noise import unit_noise
from smoothcert.attacks.geometry import per_row
from smoothcert.records import Noise
from smoothcert.training.objective import Batch


def with_noise(noise: Noise, inputs: Tensor, *, sigma: float | Tensor, generator: torch.Generator) -> Tensor:
    """x + sigma·z with independent z, standard normal or uniform on [-1, 1); the inputs themselves when sigma is 0.

    inputs: (B, *input_shape). sigma: one number, or (B,), one for every input.
    """
    if not isinstance(sigma, Tensor) and sigma == 0:
        return inputs
    return unit_noise(noise, inputs, generator=generator).mul_(per_row(sigma, inputs)).add_(inputs)


def noisy(batch: Batch, generator: torch.Generator) -> Tensor:
    """Every input of the batch with one noise of its level: (B, *input_shape)."""
    return with_noise(batch.noise, batch.inputs, sigma=batch.sigma, generator=generator)


def noises(batch: Batch, count: int, generator: torch.Generator) -> Tensor:
    """`count` independent noises for every input, at its level: (count, B, *input_shape)."""
    return unit_noises(batch.noise, batch.inputs, count, generator).mul_(per_row(batch.sigma, batch.inputs))


def unit_noises(noise: Noise, inputs: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` independent noises of level 1 for every input: (count, B, *input_shape)."""
    return unit_noise(noise, inputs.unsqueeze(0).expand(count, *inputs.shape), generator=generator)


def logits_of_copies(module: nn.Module, copies: Tensor) -> Tensor:
    """Logits of m copies of B inputs, (m, B, *input_shape), in one forward pass: (m, B, classes)."""
    logits: Tensor = module(copies.flatten(0, 1))
    return logits.view(*copies.shape[:2], -1)
