"""SmoothMix: less confidence along the way to adversarial points (Jeong et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from smoothcert.attacks import FixedNoise, SmoothedTarget, pgd
from smoothcert.attacks.geometry import per_row
from smoothcert.records import Noise
from smoothcert.training.module_modes import evaluating
from smoothcert.training.noisy_inputs import logits_of_copies, noises
from smoothcert.training.objective import Batch
from smoothcert.training.settings import check_count, check_number, grown
from smoothcert.training.soft_votes import cross_entropy_of_copies, mean_log_softmax


@dataclass(frozen=True, slots=True)
class SmoothMix:
    """Learns the label at x, and a label mixed with the uniform one on the way from x to an adversarial point.

    x̃ is reached by `steps` steps of length `step` up the gradient of -log of the mean softmax over `noises` copies,
    with no ball to stay in: it may lie far beyond the border of its class. Half way at most, at x + λ(x̃-x) with λ
    uniform on [0, ½] for each input, the softmax shall be (1-λ)·F̄(x) + λ/classes, F̄(x) the soft vote at x, which is not
    learned from there: weight · KL of the two, at the noisy copies, for the inputs that F̄ gets right. The weight grows
    from 0 over the share `warm_up` of the training. one_step: 1 takes the point one step on the way for x throughout.
    """

    weight: float = 5.0
    steps: int = 4
    step: float = 1.0
    noises: int = 4
    one_step: int = 0
    warm_up: float = 0.3

    name: ClassVar[str] = "smoothmix"
    noises_allowed: ClassVar[frozenset[Noise]] = frozenset(Noise)

    def __post_init__(self) -> None:
        check_number("weight of smoothmix", self.weight)
        check_count("steps of smoothmix", self.steps)
        check_number("step of smoothmix", self.step)
        check_count("noises of smoothmix", self.noises)
        check_count("one_step of smoothmix", self.one_step, least=0, most=1)
        check_number("warm_up of smoothmix", self.warm_up, most=1.0)

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        noise = noises(batch, self.noises, generator)
        share = 0.5 * torch.rand(
            len(batch.labels), generator=generator, device=batch.inputs.device, dtype=batch.inputs.dtype
        )
        near, far = self._path(module, batch, noise)
        mixed = near + per_row(share, near) * (far - near)
        here, there = logits_of_copies(module, torch.cat([near + noise, mixed + noise])).chunk(2)
        weight = self.weight * grown(batch.progress, warm_up=self.warm_up)
        return {
            "cross_entropy": cross_entropy_of_copies(here, batch.labels),
            "mixed": weight * _mixed_divergence(here.detach(), there, share, batch.labels),
        }

    def _path(self, module: nn.Module, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Where the label is learned, and x̃."""
        target = SmoothedTarget(module, batch.labels, 1.0, FixedNoise(noise))
        near, left = batch.inputs, self.steps
        with evaluating(module):
            if self.one_step:
                near = pgd(target, near, radius=self.step, step_size=self.step, steps=1)
                left -= 1
            # A ball that the walk cannot leave.
            far = pgd(target, near, radius=self.step * left, step_size=self.step, steps=left) if left else near
        return near, far


def _mixed_divergence(here: Tensor, there: Tensor, share: Tensor, labels: Tensor) -> Tensor:
    """Mean over inputs and copies of KL((1-λ)F̄ + λ/classes ‖ F(there)), 0 for inputs that F̄ gets wrong.

    here, there: logits (m, B, classes). share: λ, (B,).
    """
    vote = mean_log_softmax(here).exp()
    right = vote.argmax(dim=1) == labels
    wanted = (1.0 - share.unsqueeze(1)) * vote + share.unsqueeze(1) / vote.shape[1]
    # A vote of 0 with a share of 0 counts as 0, not as 0·log 0.
    divergence = (torch.xlogy(wanted, wanted) - wanted * there.log_softmax(dim=2)).sum(dim=2)
    return (divergence * right).mean()
