"""The interface between an attack and what it attacks, and the simplest target: a classifier without noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """A target's answer for B points. No tensor is attached to a graph.

    losses: (B,), to be maximised. gradients: (B, *shape), of each loss in its own point; non-finite values are allowed,
    attacks treat them as 0. wrong: (B,) bool, whether the estimated answer differs from the label.
    """

    losses: Tensor
    gradients: Tensor
    wrong: Tensor


class Target(Protocol):
    """Losses of a batch, with exact or estimated gradients.

    A target returns gradients instead of a graph, so that it can add them up in chunks, or estimate them.
    """

    def __call__(self, points: Tensor, /) -> Assessment:
        """points: (B, *shape), one per label of the target, in the same order."""


@dataclass(frozen=True, slots=True, eq=False)
class PlainTarget:
    """The cross-entropy of a classifier without noise, for plain ℓ2 adversarial training.

    forward: (B, *shape) → logits (B, K), in the current mode of the module. labels: (B,) int64, or (B, K), a
    distribution over the classes for each point, whose largest entry is the right class.
    """

    forward: Callable[[Tensor], Tensor]
    labels: Tensor

    def __call__(self, points: Tensor, /) -> Assessment:
        with torch.enable_grad():
            leaf = points.detach().requires_grad_()
            logits = self.forward(leaf)
            losses = functional.cross_entropy(logits, self.labels, reduction="none")
            (gradients,) = torch.autograd.grad(losses.sum(), leaf)
        right = self.labels if self.labels.ndim == 1 else self.labels.argmax(dim=1)
        return Assessment(losses.detach(), gradients, logits.argmax(dim=1) != right)
