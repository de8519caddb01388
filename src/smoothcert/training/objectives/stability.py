"""Stability training (Li et al. 2019, "Certified adversarial robustness with additive noise", section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.records import Noise
from smoothcert.training.noisy_inputs import add_batch_noise
from smoothcert.training.objective import Batch
from smoothcert.training.settings import check_number


@dataclass(frozen=True, slots=True)
class Stability:
    """Trains the label at the clean input, and the same softmax under noise.

    -log F_y(x) - weight · Σ_c F_c(x) log F_c(x + sigma·noise), F the softmax. Gradients flow through both factors.
    """

    weight: float = 2.0

    name: ClassVar[str] = "stability"
    noises_allowed: ClassVar[frozenset[Noise]] = frozenset(Noise)
    uses_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("weight of stability", self.weight)

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        both = torch.cat([batch.inputs, add_batch_noise(batch, generator)])
        clean, noised = module(both).chunk(2)
        return {
            "cross_entropy": functional.cross_entropy(clean, batch.wanted),
            "stability": self.weight * functional.cross_entropy(noised, clean.softmax(dim=1)),
        }
