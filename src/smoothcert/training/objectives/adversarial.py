"""Adversarial training of the base classifier (Madry et al. 2018), in the ℓ2 norm, followed by noise."""

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
from smoothcert.training.noisy_inputs import draw_noises
from smoothcert.training.objective import ADDED_NOISES, Batch
from smoothcert.training.settings import check_count, check_number, warm_up_factor


@dataclass(frozen=True, slots=True)
class Adversarial:
    """Cross-entropy at x' + sigma·noise, where x' maximises the loss of the network without noise.

    The attack takes `steps` steps of 2·radius/steps within the ℓ2 distance `radius` of x, which grows from 0 over the
    fraction `warm_up` of the training. It ignores the noise; SmoothAdv does not.
    """

    radius: float = 1.0
    steps: int = 10
    warm_up: float = 0.3

    name: ClassVar[str] = "adversarial"
    noises_allowed: ClassVar[frozenset[Noise]] = ADDED_NOISES

    def __post_init__(self) -> None:
        check_number("radius of adversarial", self.radius)
        check_count("steps of adversarial", self.steps)
        check_number("warm_up of adversarial", self.warm_up, most=1.0)

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        radius = self.radius * warm_up_factor(batch.progress, warm_up=self.warm_up)
        with evaluation_mode(module):
            points = pgd(PlainTarget(module, batch.labels), batch.inputs, radius=radius, steps=self.steps)
        (noise,) = draw_noises(batch, 1, generator)
        return {"cross_entropy": functional.cross_entropy(module(points + noise), batch.labels)}
