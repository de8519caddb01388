"""MACER: attack-free training for a large certified radius (Zhai et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.records import Noise
from smoothcert.training.noisy_inputs import draw_copies, logits_of_copies, mean_log_softmax, soft_quantile
from smoothcert.training.objective import Batch
from smoothcert.training.settings import check_count, check_number


@dataclass(frozen=True, slots=True)
class Macer:
    """Increases the estimated radius of the inputs that the soft vote classifies correctly, up to a margin.

    With ẑ the mean over `noises` copies of softmax(beta · logits):
    -log ẑ_y + (weight · sigma/2) · max(margin - (Φ⁻¹(ẑ_y) - Φ⁻¹(max_{c≠y} ẑ_c)), 0), the second term only where ẑ_y is
    the largest. Means are over the whole batch. Gradients scale with beta: use a learning rate of 0.01.
    """

    weight: float = 16.0
    margin: float = 8.0
    beta: float = 16.0
    noises: int = 16

    name: ClassVar[str] = "macer"
    noises_allowed: ClassVar[frozenset[Noise]] = frozenset({Noise.GAUSSIAN})

    def __post_init__(self) -> None:
        check_number("weight of macer", self.weight)
        check_number("margin of macer", self.margin)
        check_number("beta of macer", self.beta, least=1e-3)
        check_count("noises of macer", self.noises, least=2)

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        logits = logits_of_copies(module, draw_copies(batch, self.noises, generator))
        log_shares = mean_log_softmax(logits, beta=self.beta)
        return {
            "cross_entropy": functional.nll_loss(log_shares, batch.labels),
            "radius": self._missing_radius(log_shares.exp(), batch),
        }

    def _missing_radius(self, shares: Tensor, batch: Batch) -> Tensor:
        """(weight · sigma/2) · the missing part of the margin, mean over the batch; shares: (B, classes)."""
        labels = batch.labels.unsqueeze(1)
        others = shares.scatter(1, labels, 0.0)
        best = others.max(dim=1).values
        right = shares.gather(1, labels).squeeze(1) > best
        # Compute Φ⁻¹(ẑ_y) from 1 - ẑ_y, which keeps its precision when ẑ_y is near 1.
        gap = -soft_quantile(others.sum(dim=1)) - soft_quantile(best)
        missing: Tensor = torch.where(right, (self.margin - gap).clamp(min=0.0), 0.0)
        return (0.5 * self.weight * batch.sigma * missing).mean()
