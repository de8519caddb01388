"""CAT-RS: confidence-aware training (Jeong, Kim and Shin, AAAI 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.attacks import PlainTarget, pgd
from smoothcert.records import Noise
from smoothcert.training.modules import evaluation_mode
from smoothcert.training.noisy_inputs import draw_copies, logits_of_copies, mean_log_softmax
from smoothcert.training.objective import ADDED_NOISES, Batch
from smoothcert.training.settings import check_count, check_number, warm_up_factor


@dataclass(frozen=True, slots=True)
class ConfidenceAware:
    """Asks as much of each input as the network can give: its easiest copies, or the worst point near its copies.

    Of the `noises` copies of an input, K of the smallest cross-entropy are trained, where K is binomial with the share
    of copies that are classified correctly, and at least 1: wrong copies of an input that cannot be certified are
    dropped. Where K = `noises`, weight · max over copies of KL(F̄ ‖ F(x')) is added, where F̄ is the mean softmax of the
    copies, held constant, and x' is the worst point within the ℓ2 distance `radius` of the copy. It is searched by
    `steps` steps of projected gradient ascent. The radius grows from 0 over the fraction `warm_up` of the training.
    """

    weight: float = 1.0
    radius: float = 1.0
    steps: int = 4
    noises: int = 4
    warm_up: float = 0.3

    name: ClassVar[str] = "cat-rs"
    noises_allowed: ClassVar[frozenset[Noise]] = ADDED_NOISES

    def __post_init__(self) -> None:
        check_number("weight of cat-rs", self.weight)
        check_number("radius of cat-rs", self.radius)
        check_count("steps of cat-rs", self.steps)
        check_count("noises of cat-rs", self.noises)
        check_number("warm_up of cat-rs", self.warm_up, most=1.0)

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        copies = draw_copies(batch, self.noises, generator)
        logits = logits_of_copies(module, copies)
        kept = _draw_kept(logits.detach(), batch.labels, generator)
        labels = batch.labels.expand(len(logits), -1)
        losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        ascending = losses.sort(dim=0).values
        easiest = torch.arange(self.noises, device=losses.device).unsqueeze(1) < kept
        return {
            "easiest": (ascending * easiest).mean(),
            "worst": self.weight * self._lose_most(module, batch, copies, logits.detach(), kept == self.noises),
        }

    def _lose_most(self, module: nn.Module, batch: Batch, copies: Tensor, logits: Tensor, sure: Tensor) -> Tensor:
        """The largest divergence near a copy, of the inputs where `sure` is set, as a mean over the whole batch."""
        if not sure.any():
            return logits.new_zeros(())
        copies, wanted = copies[:, sure], mean_log_softmax(logits[:, sure]).exp()
        targets = wanted.expand(len(copies), *wanted.shape).flatten(0, 1)
        radius = self.radius * warm_up_factor(batch.progress, warm_up=self.warm_up)
        with evaluation_mode(module):
            points = pgd(PlainTarget(module, targets), copies.flatten(0, 1), radius=radius, steps=self.steps)
        logits = logits_of_copies(module, points.view(copies.shape))
        # xlogy: 0·log 0 is 0.
        divergence = (torch.xlogy(wanted, wanted) - wanted * logits.log_softmax(dim=2)).sum(dim=2)
        return divergence.max(dim=0).values.sum() / len(sure)


def _draw_kept(logits: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """(B,): how many copies of each input are trained, between 1 and their number m. logits: (m, B, classes)."""
    share = (logits.argmax(dim=2) == labels).to(logits.dtype).mean(dim=0)
    uniform = torch.rand(logits.shape[:2], generator=generator, device=logits.device, dtype=logits.dtype)
    return (uniform < share).sum(dim=0).clamp_min(1)
