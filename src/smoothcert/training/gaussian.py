"""Gaussian augmentation: the plain objective of randomized smoothing (Cohen et al. 2019, section 3.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.errors import InputError


@dataclass(frozen=True, slots=True)
class GaussianAugmentation:
    """Cross-entropy on x + sigma·noise, one fresh noise an input and step; sigma 0 is ordinary training."""

    sigma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise InputError(f"sigma {self.sigma} cannot be trained with: give a finite number that is not negative")

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"name": "gaussian", "sigma": self.sigma}

    def loss(self, module: nn.Module, inputs: Tensor, labels: Tensor, generator: torch.Generator, /) -> Tensor:
        return functional.cross_entropy(module(with_noise(inputs, sigma=self.sigma, generator=generator)), labels)


def with_noise(inputs: Tensor, *, sigma: float, generator: torch.Generator) -> Tensor:
    """x + sigma·noise with independent standard normal noise; the inputs themselves when sigma is 0."""
    if sigma == 0:
        return inputs
    noise = torch.randn(inputs.shape, generator=generator, device=inputs.device, dtype=inputs.dtype)
    return noise.mul_(sigma).add_(inputs)
