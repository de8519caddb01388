"""Augmentation with uniform noise, for networks that are to be smoothed with it and certified in the ℓ1 norm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.records import Noise
from smoothcert.training.noisy_inputs import with_noise
from smoothcert.training.objective import Batch


@dataclass(frozen=True, slots=True)
class UniformAugmentation:
    """Cross-entropy on x + noise uniform on [-sigma, sigma]^d, one fresh noise an input and step.

    sigma: the half-width λ, in the units of the input; 0 is ordinary training.
    """

    sigma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise InputError(
                f"a half-width of {self.sigma} cannot be trained with: give a finite number that is not negative"
            )

    @property
    def noise(self) -> Noise:
        return Noise.UNIFORM

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"name": "uniform", "sigma": self.sigma}

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Tensor:
        noisy = with_noise(self.noise, batch.inputs, sigma=batch.sigma, generator=generator)
        return functional.cross_entropy(module(noisy), batch.labels)
