"""A smoothed classifier as a target: its Monte-Carlo loss and the gradient, over as many chunks as memory asks for."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from smoothcert.attacks.geometry import per_row, rows
from smoothcert.attacks.noises import Noises
from smoothcert.attacks.target import Assessment


class AttackObjective(enum.StrEnum):
    """The loss an attack maximises, over m noisy copies of a point; the value is the word on the command line."""

    SOFT_VOTE = "soft-vote"
    """-log of the mean softmax of the label (Salman et al. 2019)."""
    MEAN_LOSS = "mean-loss"
    """The mean cross-entropy (Cohen et al. 2019, equation 39)."""


@dataclass(frozen=True, slots=True, eq=False)
class SmoothedTarget:
    """The classifier x ↦ mean over z of softmax(forward(x + sigma·z)), for a batch of B inputs.

    forward: (N, *shape) → logits (N, K), in whatever mode the module is in. labels: (B,) int64. sigma: a number, (B,),
    or a function of the points that gives (B,); the gradient takes it as constant. noises: the draws of one look.

    A point is `wrong` if another class has the larger mean softmax, or, with `by_votes`, more votes; a draw is the vote
    of its largest logit.

    Where the softmax is so sure that the gradient of its logarithm vanishes in the dtype, the gradient is that of the
    mean margin instead: the largest other logit minus the label's. It has the direction to climb, not the size.
    """

    forward: Callable[[Tensor], Tensor]
    labels: Tensor
    sigma: float | Tensor | Callable[[Tensor], Tensor]
    noises: Noises
    objective: AttackObjective = AttackObjective.SOFT_VOTE
    by_votes: bool = False

    def __call__(self, points: Tensor, /) -> Assessment:
        """One pass over the chunks, with the gradient of all draws together, whatever the chunks.

        Soft vote: with c_j = logsumexp of the label's log-softmax over chunk j, the loss is log m - logsumexp(c), and
        its gradient is minus the mean of the ∇c_j with weights softmax(c). Both are kept up to date as c_j arrive.
        """
        level = per_row(self.sigma(points) if callable(self.sigma) else self.sigma, points)
        soft = self.objective is AttackObjective.SOFT_VOTE
        total = points.new_full((len(points),), -math.inf if soft else 0.0)
        gradients = torch.zeros_like(points)
        favour: list[Tensor] = []
        draws = 0
        for noises in self.noises.chunks(points):
            value, slope, in_favour = self._chunk(points, noises * level)
            if soft:
                # The share of this chunk in exp(total) + exp(value), and that of the chunks before.
                new, old = torch.sigmoid(value - total), torch.sigmoid(total - value)
                gradients = per_row(old, points) * gradients + per_row(new, points) * slope
                total = torch.logaddexp(total, value)
            else:
                total, gradients = total + value, gradients + slope
            favour.append(in_favour)
            draws += len(noises)
        losses, gradients = (math.log(draws) - total, -gradients) if soft else (-total / draws, -gradients / draws)
        wrong = torch.stack(favour).sum(dim=0).argmax(dim=1) != self.labels
        flat = ~gradients.flatten(1).any(dim=1)
        if flat.any():
            gradients = torch.where(rows(flat, points), self._margin_gradients(points, level), gradients)
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

    def _chunk(self, points: Tensor, noises: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the label's log-softmax over the draws (k, B, *shape) the logsumexp or the sum, (B,); its gradient; and
        what speaks for each class, (B, K).
        """
        with torch.enable_grad():
            leaf = points.detach().requires_grad_()
            log_scores = torch.log_softmax(self.forward((leaf + noises).flatten(0, 1)), dim=1)
            log_scores = log_scores.view(*noises.shape[:2], -1)
            own = log_scores.gather(2, self.labels.view(1, -1, 1).expand(len(noises), -1, 1)).squeeze(2)
            value = own.logsumexp(dim=0) if self.objective is AttackObjective.SOFT_VOTE else own.sum(dim=0)
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), slope, self._favour(log_scores.detach())

    def _favour(self, log_scores: Tensor) -> Tensor:
        """(B, K): what speaks for each class, summed over a chunk."""
        if not self.by_votes:
            return log_scores.exp().sum(dim=0)
        return torch.nn.functional.one_hot(log_scores.argmax(dim=2), log_scores.shape[2]).sum(dim=0)
