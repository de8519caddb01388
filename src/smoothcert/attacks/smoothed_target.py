"""A smoothed classifier as a target: Monte Carlo loss and exact gradient, accumulated over chunks of draws."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from smoothcert.attacks.attack_noise import NoiseSource
from smoothcert.attacks.geometry import per_row, row_mask
from smoothcert.attacks.target import Assessment


class AttackObjective(enum.StrEnum):
    """The loss that an attack maximises, over m noisy copies of a point. Values are names on the command line."""

    SOFT_VOTE = "soft-vote"
    """-log of the mean softmax of the label (Salman et al. 2019)."""
    MEAN_LOSS = "mean-loss"
    """The mean cross-entropy (Cohen et al. 2019, equation 39)."""


@dataclass(frozen=True, slots=True, eq=False)
class _ChunkResult:
    """Results of one chunk of draws.

    value: (B,), logsumexp (soft vote) or sum (mean loss) of the label's log-softmax. gradients: (B, *shape), of value.
    support: (B, K), softmax or votes of each class, summed over the draws.
    """

    value: Tensor
    gradients: Tensor
    support: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SmoothedTarget:
    """The classifier x ↦ mean over z of softmax(forward(x + sigma·z)), for a batch of B inputs.

    forward: (N, *shape) → logits (N, K), in the current mode of the module. labels: (B,) int64. sigma: a number, (B,),
    or a function of the points with values (B,); the gradient treats it as constant. noises: the draws of one
    evaluation. by_votes: a point is wrong if another class has more votes (largest logits); otherwise, if another class
    has a larger mean softmax.

    If the gradient of the log-softmax underflows to 0, the gradient of the mean margin (largest other logit minus the
    logit of the label) is used. It gives a direction of ascent, not the size of the gradient.
    """

    forward: Callable[[Tensor], Tensor]
    labels: Tensor
    sigma: float | Tensor | Callable[[Tensor], Tensor]
    noises: NoiseSource
    objective: AttackObjective = AttackObjective.SOFT_VOTE
    by_votes: bool = False

    def __call__(self, points: Tensor, /) -> Assessment:
        """Assess the points in one pass over the chunks. The gradient is that of all draws together.

        Soft vote: with c_j = logsumexp of the label's log-softmax over chunk j, the loss is log m - logsumexp(c), and
        its gradient is minus the mean of the ∇c_j with weights softmax(c). Both are updated chunk by chunk.
        """
        level = per_row(self.sigma(points) if callable(self.sigma) else self.sigma, points)
        soft = self.objective is AttackObjective.SOFT_VOTE
        total = points.new_full((len(points),), -math.inf if soft else 0.0)
        gradients = torch.zeros_like(points)
        support: list[Tensor] = []
        draws = 0
        for noises in self.noises.chunks(points):
            chunk = self._assess_chunk(points, noises * level)
            if soft:
                # The weights of this chunk and of the chunks before in exp(total) + exp(value).
                new, old = torch.sigmoid(chunk.value - total), torch.sigmoid(total - chunk.value)
                gradients = per_row(old, points) * gradients + per_row(new, points) * chunk.gradients
                total = torch.logaddexp(total, chunk.value)
            else:
                total, gradients = total + chunk.value, gradients + chunk.gradients
            support.append(chunk.support)
            draws += len(noises)
        losses, gradients = (math.log(draws) - total, -gradients) if soft else (-total / draws, -gradients / draws)
        wrong = torch.stack(support).sum(dim=0).argmax(dim=1) != self.labels
        flat = ~gradients.flatten(1).any(dim=1)
        if flat.any():
            gradients = torch.where(row_mask(flat, points), self._margin_gradients(points, level), gradients)
        return Assessment(losses, gradients, wrong)

    def _margin_gradients(self, points: Tensor, level: Tensor) -> Tensor:
        total = torch.zeros_like(points)
        for noises in self.noises.chunks(points):
            with torch.enable_grad():
                leaf = points.detach().requires_grad_()
                logits = self.forward((leaf + noises * level).flatten(0, 1)).view(*noises.shape[:2], -1)
                place = self.labels.view(1, -1, 1).expand(len(noises), -1, 1)
                margins = logits.scatter(2, place, -math.inf).amax(dim=2) - logits.gather(2, place).squeeze(2)
                (slope,) = torch.autograd.grad(margins.sum(), leaf)
            total += slope
        return total

    def _assess_chunk(self, points: Tensor, noises: Tensor) -> _ChunkResult:
        """noises: (k, B, *shape), already multiplied by sigma."""
        with torch.enable_grad():
            leaf = points.detach().requires_grad_()
            log_scores = torch.log_softmax(self.forward((leaf + noises).flatten(0, 1)), dim=1)
            log_scores = log_scores.view(*noises.shape[:2], -1)
            own = log_scores.gather(2, self.labels.view(1, -1, 1).expand(len(noises), -1, 1)).squeeze(2)
            value = own.logsumexp(dim=0) if self.objective is AttackObjective.SOFT_VOTE else own.sum(dim=0)
            (gradients,) = torch.autograd.grad(value.sum(), leaf)
        log_scores = log_scores.detach()
        if self.by_votes:
            support = torch.nn.functional.one_hot(log_scores.argmax(dim=2), log_scores.shape[2]).sum(dim=0)
        else:
            support = log_scores.exp().sum(dim=0)
        return _ChunkResult(value.detach(), gradients, support)
