"""The targets of an attack on a run: what is attacked in turn, and what compares the points found."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from smoothcert.attacks import AttackObjective, EstimatedTarget, FreshNoise, SmoothedTarget, Target
from smoothcert.attacks.attack_gradients import AttackedModel, to_numpy
from smoothcert.attacks.attack_settings import AttackSettings
from smoothcert.records import FloatArray, Noise
from smoothcert.sigma import SigmaRule


@dataclass(frozen=True, slots=True, eq=False)
class TargetGroup:
    """The targets of one group of inputs. attacked: one after the other. comparing: settles which point is strongest.

    The costs are samples per draw of one evaluation.
    """

    attacked: Sequence[Target]
    comparing: Target
    attacked_cost: int = 1
    comparing_cost: int = 1


class TargetFactory(Protocol):
    """Makes the targets of a group of inputs, and says what they are."""

    @property
    def models(self) -> Sequence[AttackedModel]: ...

    @property
    def objective(self) -> str:
        """The name of the loss."""

    @property
    def evaluations(self) -> tuple[int, int, int]:
        """Number of attacked targets, and the two costs, as in `TargetGroup`."""

    def build(self, labels: Tensor, sigmas: FloatArray, generator: torch.Generator) -> TargetGroup:
        """labels: (B,), the answers to change. sigmas: (B,), noise levels of the run."""


def name_sources(factory: TargetFactory) -> str:
    """Where the gradients come from; several, if selector and levels differ."""
    return ", ".join(dict.fromkeys(model.gradients.source.value for model in factory.models))


def choose_device(factory: TargetFactory) -> torch.device:
    """The device of the modules, if any."""
    exact = [model.gradients for model in factory.models if model.gradients.module is not None]
    return (exact[0] if exact else factory.models[0].gradients).device


@dataclass(frozen=True, slots=True)
class PlainTargets:
    """One smoothed classifier.

    rule: gives the noise level at each point, in each step, one thread at a time; None keeps the level of the input.
    by_votes: the smoothed classifier answers by votes, not by mean scores. samples_at_once: noisy copies that are
    differentiated together.
    """

    model: AttackedModel
    settings: AttackSettings
    noise: Noise
    rule: SigmaRule | None
    by_votes: bool
    samples_at_once: int
    rule_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def models(self) -> Sequence[AttackedModel]:
        return (self.model,)

    @property
    def objective(self) -> str:
        exact = self.model.gradients.module is not None
        return self.settings.objective if exact else AttackObjective.SOFT_VOTE.value

    @property
    def evaluations(self) -> tuple[int, int, int]:
        return 1, 1, 1

    def build(self, labels: Tensor, sigmas: FloatArray, generator: torch.Generator) -> TargetGroup:
        sigma, draws = self._sigma_at_points(sigmas), self.settings.draws
        at_once = max(1, self.samples_at_once // len(labels))
        module = self.model.gradients.module
        if module is not None:
            noises = FreshNoise(self.noise, draws, generator, at_once=at_once)
            objective = AttackObjective(self.settings.objective)
            target: Target = SmoothedTarget(module, labels, sigma, noises, objective, by_votes=self.by_votes)
        else:
            # Each noise is used with both signs.
            noises = FreshNoise(self.noise, math.ceil(draws / 2), generator, at_once=max(1, at_once // 2))
            target = EstimatedTarget(self.model.answer, labels, sigma, noises, self.noise)
        return TargetGroup([target], target)

    def _sigma_at_points(self, sigmas: FloatArray) -> Tensor | Callable[[Tensor], Tensor]:
        rule = self.rule
        if rule is None:
            return torch.from_numpy(sigmas).to(device=self.model.gradients.device, dtype=torch.float32)

        def compute_sigmas(points: Tensor) -> Tensor:
            with self.rule_lock:
                return torch.from_numpy(rule.sigmas(to_numpy(points))).to(points)

        return compute_sigmas
