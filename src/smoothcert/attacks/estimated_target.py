"""A smoothed classifier that cannot be differentiated as a target: its gradient from answers at noisy points alone.

For Gaussian noise the gradient of the mean answer E[h(x + σz)] is E[z·h(x + σz)]/σ (Stein), whatever h is: also a vote.
For uniform noise the same correlation, over the variance 1/3 of z, is the slope of the best linear fit to h over the
cube; it has the direction to climb, and is the gradient itself where h is linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from smoothcert.attacks.geometry import per_row
from smoothcert.attacks.noises import Noises
from smoothcert.attacks.target import Assessment
from smoothcert.records import Noise

_LEAST_MEAN = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class EstimatedTarget:
    """-log of the mean answer for the label, with an estimated gradient.

    answers: (N, *shape) → (N, K) in [0, 1], what the model says for each class: scores, or 1 for its vote and else 0;
    nothing for any class where it has no answer. labels, sigma and noises as for `SmoothedTarget`; kind: of the noise.
    Each noise is used with both signs, and each answer is taken relative to the other sign's: half their difference
    correlates with z alone. The error of the estimate falls with √draws and grows with the dimension; where all noisy
    points get the same votes there is no gradient at all.
    """

    answers: Callable[[Tensor], Tensor]
    labels: Tensor
    sigma: float | Tensor | Callable[[Tensor], Tensor]
    noises: Noises
    kind: Noise = Noise.GAUSSIAN

    def __call__(self, points: Tensor, /) -> Assessment:
        level = per_row(self.sigma(points) if callable(self.sigma) else self.sigma, points)
        slope = torch.zeros_like(points)
        favour: Tensor | float = 0.0
        draws = 0
        for noises in self.noises.chunks(points):
            shifts = noises * level
            ahead, behind = self._answers(points + shifts), self._answers(points - shifts)
            favour = favour + (ahead + behind).sum(dim=0)
            difference = self._own(ahead - behind) / 2.0
            slope += torch.einsum("kb,kb...->b...", difference.to(noises.dtype), noises)
            draws += len(noises)
        assert isinstance(favour, Tensor)
        mean = (self._own(favour) / (2 * draws)).clamp_min(_LEAST_MEAN).to(points.dtype)
        gradients = -slope / (level * per_row(mean, points) * (self.kind.facts.unit_variance * draws))
        return Assessment(-mean.log(), gradients, favour.argmax(dim=1) != self.labels)

    def _answers(self, noisy: Tensor) -> Tensor:
        """(k, B, K) for (k, B, *shape)."""
        return self.answers(noisy.flatten(0, 1)).view(*noisy.shape[:2], -1)

    def _own(self, values: Tensor) -> Tensor:
        """Of (…, B, K) the column of each label: (…, B)."""
        place = self.labels.view(-1, 1).expand(*values.shape[:-1], 1)
        return values.gather(-1, place).squeeze(-1)
