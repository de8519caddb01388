"""A classifier without noise as a target: plain ℓ2 adversarial training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from smoothcert.attacks.target import Assessment


@dataclass(frozen=True, slots=True, eq=False)
class PlainTarget:
    """The cross-entropy of the labels. forward: (B, *shape) → logits (B, K), in whatever mode the module is in."""

    forward: Callable[[Tensor], Tensor]
    labels: Tensor

    def __call__(self, points: Tensor, /) -> Assessment:
        with torch.enable_grad():
            leaf = points.detach().requires_grad_()
            logits = self.forward(leaf)
            losses = functional.cross_entropy(logits, self.labels, reduction="none")
            (gradients,) = torch.autograd.grad(losses.sum(), leaf)
        return Assessment(losses.detach(), gradients, logits.argmax(dim=1) != self.labels)
