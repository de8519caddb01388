"""A selected sigma as a target: the selector and the classifier of one level are attacked together.

G answers another class than c exactly where some level k is selected whose classifier answers another class. For each
level k there is one target, log P(the selector takes k) + log P(the classifier of k does not answer c). Its gradient is
mostly that of the stage that still lags behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from smoothcert.attacks import Assessment, EstimatedTarget, FreshNoise, NoiseSource, SmoothedTarget, Target
from smoothcert.attacks.attack_gradients import AttackedModel
from smoothcert.attacks.attack_settings import AttackSettings
from smoothcert.attacks.attack_targets import TargetGroup
from smoothcert.records import FloatArray, Noise


@dataclass(slots=True, eq=False)
class _WantedAnswers:
    """The answers of one stage as two: the wanted outputs together, and all others together.

    wanted: (B, K) bool, at least one output and not all. support: (B, K), votes since it was last reset.
    """

    model: AttackedModel
    wanted: Tensor
    support: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.support = torch.zeros_like(self.wanted, dtype=torch.int64)

    def log_masses(self, batch: Tensor) -> Tensor:
        """(N, 2) for N = k·B noisy points, with a gradient."""
        assert self.model.gradients.module is not None
        scores = torch.log_softmax(self.model.gradients.module(batch), dim=1)
        self._count(scores.detach())
        rows = self._repeat(len(batch))
        wanted, others = (scores.masked_fill(~part, -math.inf).logsumexp(dim=1) for part in (rows, ~rows))
        return torch.stack([wanted, others], dim=1)

    def shares(self, batch: Tensor) -> Tensor:
        """(N, 2), without a gradient."""
        answers = self.model.answer(batch)
        self._count(answers)
        rows = self._repeat(len(batch)).to(answers.dtype)
        return torch.stack([(answers * rows).sum(dim=1), (answers * (1.0 - rows)).sum(dim=1)], dim=1)

    def _repeat(self, count: int) -> Tensor:
        return self.wanted.repeat(count // len(self.wanted), 1)

    def _count(self, answers: Tensor) -> None:
        votes = functional.one_hot(answers.argmax(dim=1), answers.shape[1])
        self.support += votes.view(-1, *self.wanted.shape).sum(dim=0)


@dataclass(frozen=True, slots=True, eq=False)
class _StageTarget:
    """-log of the mean mass of the wanted outputs of one stage, smoothed with its own noise level."""

    answers: _WantedAnswers
    target: Target

    @classmethod
    def build(cls, model: AttackedModel, wanted: Tensor, *, sigma: float, draws: _Draws) -> _StageTarget:
        answers = _WantedAnswers(model, wanted)
        first = torch.zeros(len(wanted), dtype=torch.int64, device=wanted.device)
        if model.gradients.module is not None:
            return cls(answers, SmoothedTarget(answers.log_masses, first, sigma, draws.whole(), by_votes=True))
        return cls(answers, EstimatedTarget(answers.shares, first, sigma, draws.halved()))

    def __call__(self, points: Tensor) -> tuple[Assessment, Tensor]:
        """The assessment, and the output with most votes (B,)."""
        self.answers.reset()
        return self.target(points), self.answers.support.argmax(dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    """The noise of one group of inputs. at_once: draws per chunk."""

    count: int
    at_once: int
    generator: torch.Generator

    def whole(self) -> NoiseSource:
        return FreshNoise(Noise.GAUSSIAN, self.count, self.generator, at_once=self.at_once)

    def halved(self) -> NoiseSource:
        """For estimated gradients, which use each noise with both signs."""
        return FreshNoise(Noise.GAUSSIAN, math.ceil(self.count / 2), self.generator, at_once=max(1, self.at_once // 2))


@dataclass(frozen=True, slots=True, eq=False)
class SelectedTarget:
    """Maximises log P(the selector takes `number`) + log P(its classifier answers another class than the label)."""

    selector: _StageTarget
    level: _StageTarget
    number: int
    labels: Tensor

    def __call__(self, points: Tensor, /) -> Assessment:
        taking, taken = self.selector(points)
        leaving, answers = self.level(points)
        return Assessment(
            losses=-(taking.losses + leaving.losses),
            gradients=-(taking.gradients + leaving.gradients),
            wrong=(taken == self.number) & (answers != self.labels),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SelectedComparison:
    """What G answers by votes, without gradients. The loss is the largest over the levels of `SelectedTarget`."""

    models: Sequence[AttackedModel]
    sigmas: Sequence[float]
    labels: Tensor
    draws: _Draws

    def __call__(self, points: Tensor, /) -> Assessment:
        selector, *levels = [
            _read_stage(model, points, sigma=sigma, noises=self.draws.whole())
            for model, sigma in zip(self.models, self.sigmas, strict=True)
        ]
        own = functional.one_hot(self.labels, levels[0].log_means.shape[1]).bool()
        leaving = torch.stack([level.log_means.masked_fill(own, -math.inf).logsumexp(dim=1) for level in levels], dim=1)
        answers = torch.stack([level.support.argmax(dim=1) for level in levels], dim=1)
        answer = answers.gather(1, selector.support.argmax(dim=1, keepdim=True)).squeeze(1)
        losses = (selector.log_means + leaving).amax(dim=1)
        return Assessment(losses, torch.zeros_like(points), answer != self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class _StageReading:
    """log_means: (B, K), of the mean softmax or answer. support: (B, K) votes."""

    log_means: Tensor
    support: Tensor


@torch.no_grad()
def _read_stage(model: AttackedModel, points: Tensor, *, sigma: float, noises: NoiseSource) -> _StageReading:
    totals, support, count = torch.zeros(()), torch.zeros(()), 0
    for noise in noises.chunks(points):
        answers = _list_shares(model)((points + sigma * noise).flatten(0, 1)).view(*noise.shape[:2], -1)
        totals = totals.to(answers) + answers.sum(dim=0)
        support = support.to(answers) + functional.one_hot(answers.argmax(dim=2), answers.shape[2]).sum(dim=0)
        count += len(noise)
    return _StageReading((totals / count).log().to(points.dtype), support)


def _list_shares(model: AttackedModel) -> Callable[[Tensor], Tensor]:
    module = model.gradients.module
    if module is None:
        return model.answer
    return lambda batch: torch.softmax(module(batch), dim=1)


@dataclass(frozen=True, slots=True)
class SelectedTargets:
    """The targets of a selected sigma, one for each level. models, sigmas: of the selector, then of each level."""

    models: Sequence[AttackedModel]
    sigmas: Sequence[float]
    settings: AttackSettings
    samples_at_once: int

    @property
    def objective(self) -> str:
        return "selector and level"

    @property
    def evaluations(self) -> tuple[int, int, int]:
        return len(self.sigmas) - 1, 2, len(self.sigmas)

    def build(self, labels: Tensor, sigmas: FloatArray, generator: torch.Generator) -> TargetGroup:
        """sigmas: not used; each part has its own."""
        draws = _Draws(self.settings.draws, max(1, self.samples_at_once // len(labels)), generator)
        count = len(self.models) - 1
        others = ~functional.one_hot(labels, self.models[1].classifier.num_classes).bool()
        attacked = []
        for number in range(count):
            wanted = torch.zeros((len(labels), count), dtype=torch.bool, device=labels.device)
            wanted[:, number] = True
            attacked.append(
                SelectedTarget(
                    _StageTarget.build(self.models[0], wanted, sigma=self.sigmas[0], draws=draws),
                    _StageTarget.build(self.models[1 + number], others, sigma=self.sigmas[1 + number], draws=draws),
                    number,
                    labels,
                )
            )
        comparing = SelectedComparison(self.models, self.sigmas, labels, draws)
        return TargetGroup(attacked, comparing, *self.evaluations[1:])
