"""The objective of a selector: choose levels by what they are worth, and defend each choice as far as it is worth it.

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
    draw_copies,
    logits_of_copies,
    mean_log_softmax,
    soft_quantile,
)
from smoothcert.training.objective import Batch
from smoothcert.training.objectives.consistency import measure_disagreement
from smoothcert.training.settings import check_count, check_number


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What is lost of the largest radius by the choice of a level, and of the chosen radius by levels nearby.

    With F̄ the mean of the softmax over `noises` copies, R_k the radius of level k and R its maximum, the first term is
    R - sum over k of F̄_k R_k: an error counts by what it costs. With ẑ the mean of softmax(beta · logits), j its
    largest level, and E_k = (sigma/2)(Φ⁻¹(ẑ_j) - Φ⁻¹(ẑ_k)), the second is weight · max over k of
    (1 - R_k/R_j) · max(min(R_j, margin · sigma) - E_k, 0): a level that is nearly as good as j need not be excluded.
    The third is consistency · mean KL(F̄ ‖ F), as in `consistency`, and the fourth cross_entropy · the cross-entropy of
    the levels. All are means over the batch. Data without radii get margin · sigma for the right class, 0 for others.
    """

    weight: float = 1.0
    margin: float = 3.8
    beta: float = 1.0
    noises: int = 4
    consistency: float = 0.5
    cross_entropy: float = 0.1

    name: ClassVar[str] = "exclusion"
    noises_allowed: ClassVar[frozenset[Noise]] = frozenset({Noise.GAUSSIAN})
    uses_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("weight of exclusion", self.weight)
        check_number("margin of exclusion", self.margin)
        check_number("beta of exclusion", self.beta, least=1e-3)
        check_count("noises of exclusion", self.noises, least=2)
        check_number("consistency of exclusion", self.consistency)
        check_number("cross_entropy of exclusion", self.cross_entropy)

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        logits = logits_of_copies(module, draw_copies(batch, self.noises, generator))
        sigma = torch.as_tensor(batch.sigma, dtype=logits.dtype, device=logits.device).reshape(-1, 1)
        radii = _make_radii(batch, self.margin * sigma, logits) if batch.radii is None else batch.radii
        worth = (logits.softmax(dim=2).mean(dim=0) * radii).sum(dim=1)
        return {
            "choice": (radii.max(dim=1).values - worth).mean(),
            "exclusion": self.weight * self._lost_nearby(logits, radii, sigma).mean(),
            "consistency": self.consistency * measure_disagreement(logits)[0],
            "cross_entropy": self.cross_entropy * cross_entropy_of_copies(logits, batch.wanted),
        }

    def _lost_nearby(self, logits: Tensor, radii: Tensor, sigma: Tensor) -> Tensor:
        """(B,): how much of the radius of the leading level is missing, because another one is not excluded."""
        shares = mean_log_softmax(logits, beta=self.beta).exp()
        leading = shares.argmax(dim=1, keepdim=True)
        reach = radii.gather(1, leading)
        # Compute Φ⁻¹(ẑ_j) from 1 - ẑ_j, which keeps its precision when ẑ_j is near 1.
        own = -soft_quantile(shares.scatter(1, leading, 0.0).sum(dim=1, keepdim=True))
        excluded = 0.5 * sigma * (own - soft_quantile(shares))
        worse = ((reach - radii) / reach.clamp(min=1e-6)).clamp(min=0.0)
        missing = (torch.minimum(reach, self.margin * sigma) - excluded).clamp(min=0.0)
        return (worse * missing).max(dim=1).values


def _make_radii(batch: Batch, radius: Tensor, logits: Tensor) -> Tensor:
    """(B, levels): the radius at the class that is wanted, 0 at the others. radius: (B, 1) or (1, 1)."""
    best = batch.labels if batch.targets is None else batch.targets.argmax(dim=1)
    return torch.zeros_like(logits[0]).scatter(1, best.unsqueeze(1), radius.expand(len(best), 1))
