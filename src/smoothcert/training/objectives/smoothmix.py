"""SmoothMix: less confidence between inputs and adversarial points (Jeong et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from smoothcert.attacks import FixedNoise, SmoothedTarget, pgd
from smoothcert.attacks.geometry import per_row
from smoothcert.records import Noise
from smoothcert.training.modules import evaluation_mode
from smoothcert.training.noisy_inputs import cross_entropy_of_copies, draw_noises, logits_of_copies, mean_log_softmax
from smoothcert.training.objective import ADDED_NOISES, Batch
from smoothcert.training.settings import check_count, check_number, warm_up_factor


@dataclass(frozen=True, slots=True)
class SmoothMix:
    """Trains the label at x, and a label mixed with the uniform one between x and an adversarial point x̃.

    x̃ is found by `steps` gradient steps of length `step` that increase -log of the mean softmax of `noises` copies. It
    is not restricted to a ball. At x + λ(x̃-x), with λ uniform on [0, ½] for each input, the target is
    (1-λ)·F̄(x) + λ/classes, where F̄(x) is the soft vote at x, held constant. The term is weight · KL(target ‖ softmax)
    at the noisy copies, for inputs that F̄ classifies correctly. The weight grows from 0 over the fraction `warm_up` of
    the training. one_step: if 1, the point after one step replaces x.
    """

    weight: float = 5.0
    steps: int = 4
    step: float = 1.0
    noises: int = 4
    one_step: int = 0
    warm_up: float = 0.3

    name: ClassVar[str] = "smoothmix"
    noises_allowed: ClassVar[frozenset[Noise]] = ADDED_NOISES

    def __post_init__(self) -> None:
        check_number("weight of smoothmix", self.weight)
        check_count("steps of smoothmix", self.steps)
        check_number("step of smoothmix", self.step)
        check_count("noises of smoothmix", self.noises)
        check_count("one_step of smoothmix", self.one_step, least=0, most=1)
        check_number("warm_up of smoothmix", self.warm_up, most=1.0)

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        noise = draw_noises(batch, self.noises, generator)
        share = 0.5 * torch.rand(
            len(batch.labels), generator=generator, device=batch.inputs.device, dtype=batch.inputs.dtype
        )
        near, far = self._path(module, batch, noise)
        mixed = near + per_row(share, near) * (far - near)
        here, there = logits_of_copies(module, torch.cat([near + noise, mixed + noise])).chunk(2)
        weight = self.weight * warm_up_factor(batch.progress, warm_up=self.warm_up)
        return {
            "cross_entropy": cross_entropy_of_copies(here, batch.labels),
            "mixed": weight * _mixed_divergence(here.detach(), there, share, batch.labels),
        }

    def _path(self, module: nn.Module, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The point where the label is trained, and x̃."""
        target = SmoothedTarget(module, batch.labels, 1.0, FixedNoise(noise))
        near, remaining = batch.inputs, self.steps
        with evaluation_mode(module):
            if self.one_step:
                near = pgd(target, near, radius=self.step, step_size=self.step, steps=1)
                remaining -= 1
            # The radius is so large that it never restricts the steps.
            far = (
                pgd(target, near, radius=self.step * remaining, step_size=self.step, steps=remaining)
                if remaining
                else near
            )
        return near, far


def _mixed_divergence(here: Tensor, there: Tensor, share: Tensor, labels: Tensor) -> Tensor:
    """Mean over inputs and copies of KL((1-λ)F̄ + λ/classes ‖ F(there)), 0 for inputs that F̄ misclassifies.

    here, there: logits (m, B, classes). share: λ, (B,).
    """
    vote = mean_log_softmax(here).exp()
    right = vote.argmax(dim=1) == labels
    target = (1.0 - share.unsqueeze(1)) * vote + share.unsqueeze(1) / vote.shape[1]
    # xlogy: 0·log 0 is 0.
    divergence = (torch.xlogy(target, target) - target * there.log_softmax(dim=2)).sum(dim=2)
    return (divergence * right).mean()
