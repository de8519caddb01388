"""Consistency regularisation (Jeong and Shin 2020, "Consistency regularization for certified robustness")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from smoothcert.records import Noise
from smoothcert.training.noisy_inputs import cross_entropy_of_copies, draw_copies, logits_of_copies, mean_log_softmax
from smoothcert.training.objective import Batch
from smoothcert.training.settings import check_count, check_number


@dataclass(frozen=True, slots=True)
class Consistency:
    """Penalises the dependence of the softmax F on the noise.

    With F̄ the mean of F over `noises` copies x + δᵢ, the loss is
    mean_i( -log F_y(x+δᵢ) ) + weight · mean_i( KL(F̄ ‖ F(x+δᵢ)) ) + entropy · H(F̄).
    """

    weight: float = 10.0
    entropy: float = 0.5
    noises: int = 2

    name: ClassVar[str] = "consistency"
    noises_allowed: ClassVar[frozenset[Noise]] = frozenset(Noise)
    uses_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("weight of consistency", self.weight)
        check_number("entropy of consistency", self.entropy)
        check_count("noises of consistency", self.noises, least=2)

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        logits = logits_of_copies(module, draw_copies(batch, self.noises, generator))
        spread, entropy = measure_disagreement(logits)
        return {
            "cross_entropy": cross_entropy_of_copies(logits, batch.wanted),
            "consistency": self.weight * spread,
            "entropy": self.entropy * entropy,
        }


def measure_disagreement(logits: Tensor) -> tuple[Tensor, Tensor]:
    """(mean over inputs and copies of KL(F̄ ‖ F_i), mean over inputs of H(F̄)); logits: (m, B, classes)."""
    log_mean = mean_log_softmax(logits)
    mean = log_mean.exp()
    entropy = -(mean * log_mean).sum(dim=1)
    crossed = -(mean * logits.log_softmax(dim=2)).sum(dim=2)
    return (crossed - entropy).mean(), entropy.mean()
