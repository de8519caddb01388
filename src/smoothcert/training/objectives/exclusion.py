"""The objective of a selector: levels that are worse than the best one are excluded as far out as the best reaches.

The radius of a selected sigma is min over levels k of max(E_k, R_k), where R_k is the radius that level k gives, and
E_k the distance below which it is not selected (docs/explanation/certificates/selected-sigma.md). E_k is estimated from
soft votes, as MACER does with the radius (Zhai et al. 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from smoothcert.records import Noise
from smoothcert.training.noisy_inputs import (
    cross_entropy_of_copies,
    draw_noises,
    logits_of_copies,
    mean_log_softmax,
    soft_quantile,
)
from smoothcert.training.objective import Batch
from smoothcert.training.objectives.consistency import measure_disagreement
from smoothcert.training.settings import check_count, check_number


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Cross-entropy of the levels, and what is missing from the radius of the best one.

    With ẑ the mean over `noises` copies of softmax(beta · logits), j the best level and k another one,
    E_k = (sigma/2)(Φ⁻¹(ẑ_j) - Φ⁻¹(ẑ_k)). The second term is weight · max over k of
    (1 - R_k/R_j) · max(min(R_j, margin · sigma) - E_k, 0), the mean over the batch. A level that is nearly as good as
    the best one need not be excluded. The third is consistency · mean KL(F̄ ‖ F), as in `consistency`. Data without
    radii get R_j = margin · sigma and R_k = 0.
    """

    weight: float = 1.0
    margin: float = 3.8
    beta: float = 1.0
    noises: int = 4
    consistency: float = 1.0

    name: ClassVar[str] = "exclusion"
    noises_allowed: ClassVar[frozenset[Noise]] = frozenset({Noise.GAUSSIAN})
    uses_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("weight of exclusion", self.weight)
        check_number("margin of exclusion", self.margin)
        check_number("beta of exclusion", self.beta, least=1e-3)
        check_count("noises of exclusion", self.noises, least=2)
        check_number("consistency of exclusion", self.consistency)

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        logits = logits_of_copies(module, batch.inputs + draw_noises(batch, self.noises, generator))
        shares = mean_log_softmax(logits, beta=self.beta).exp()
        terms = {
            "cross_entropy": cross_entropy_of_copies(logits, batch.wanted),
            "radius": self.weight * self._missing_radius(shares, batch).mean(),
        }
        if self.consistency > 0:
            terms["consistency"] = self.consistency * measure_disagreement(logits)[0]
        return terms

    def _missing_radius(self, shares: Tensor, batch: Batch) -> Tensor:
        """(B,): how much of the radius of the best level is missing. shares: (B, levels)."""
        sigma = torch.as_tensor(batch.sigma, dtype=shares.dtype, device=shares.device).expand(len(shares)).unsqueeze(1)
        most = self.margin * sigma
        radii = _place_at_the_best(batch, most.expand_as(shares)) if batch.radii is None else batch.radii
        reach, best = radii.max(dim=1, keepdim=True)
        # Compute Φ⁻¹(ẑ_j) from 1 - ẑ_j, which keeps its precision when ẑ_j is near 1.
        own = -soft_quantile(shares.scatter(1, best, 0.0).sum(dim=1, keepdim=True))
        excluded = 0.5 * sigma * (own - soft_quantile(shares))
        worse = ((reach - radii) / reach.clamp(min=1e-6)).clamp(min=0.0)
        missing = (torch.minimum(reach, most) - excluded).clamp(min=0.0)
        return (worse * missing).max(dim=1).values


def _place_at_the_best(batch: Batch, most: Tensor) -> Tensor:
    """(B, levels): `most` at the class that is wanted, 0 at the others."""
    best = batch.labels if batch.targets is None else batch.targets.argmax(dim=1)
    return torch.zeros_like(most).scatter(1, best.unsqueeze(1), most)
