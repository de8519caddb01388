"""SmoothAdv: adversarial training of the smoothed classifier (Salman et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from smoothcert.attacks import FixedNoise, SmoothedTarget, ddn, pgd
from smoothcert.errors import InputError
from smoothcert.records import Noise
from smoothcert.training.modules import evaluation_mode
from smoothcert.training.noisy_inputs import cross_entropy_of_copies, draw_noises, logits_of_copies
from smoothcert.training.objective import ADDED_NOISES, Batch
from smoothcert.training.objectives.consistency import measure_disagreement
from smoothcert.training.settings import check_count, check_number, warm_up_factor

_METHODS = ("pgd", "ddn")


@dataclass(frozen=True, slots=True)
class SmoothAdv:
    """Cross-entropy at the points x' + δᵢ, where x' maximises -log of the mean softmax of these copies.

    x' is searched within the ℓ2 distance `radius` of x, by `steps` steps of projected gradient ascent (pgd) or of
    decoupled direction and norm (ddn), which stays closer where that suffices. The radius grows from 0 over the
    fraction `warm_up` of the training. consistency, entropy: weights of Jeong and Shin's terms over the same copies.
    """

    radius: float = 1.0
    steps: int = 4
    noises: int = 4
    method: str = "pgd"
    warm_up: float = 0.3
    consistency: float = 0.0
    entropy: float = 0.0

    name: ClassVar[str] = "smoothadv"
    noises_allowed: ClassVar[frozenset[Noise]] = ADDED_NOISES

    def __post_init__(self) -> None:
        check_number("radius of smoothadv", self.radius)
        check_count("steps of smoothadv", self.steps)
        check_count("noises of smoothadv", self.noises)
        check_number("warm_up of smoothadv", self.warm_up, most=1.0)
        check_number("consistency of smoothadv", self.consistency)
        check_number("entropy of smoothadv", self.entropy)
        if self.method not in _METHODS:
            raise InputError(f"method of smoothadv is {self.method!r}: expected {' or '.join(_METHODS)}")

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        noise = draw_noises(batch, self.noises, generator)
        with evaluation_mode(module):
            points = self._attack(module, batch, noise)
        logits = logits_of_copies(module, points + noise)
        terms = {"cross_entropy": cross_entropy_of_copies(logits, batch.labels)}
        if self.consistency > 0 or self.entropy > 0:
            spread, entropy = measure_disagreement(logits)
            terms |= {"consistency": self.consistency * spread, "entropy": self.entropy * entropy}
        return terms

    def _attack(self, module: nn.Module, batch: Batch, noise: Tensor) -> Tensor:
        radius = self.radius * warm_up_factor(batch.progress, warm_up=self.warm_up)
        target = SmoothedTarget(module, batch.labels, 1.0, FixedNoise(noise))
        attack = pgd if self.method == "pgd" else ddn
        return attack(target, batch.inputs, radius=radius, steps=self.steps)
