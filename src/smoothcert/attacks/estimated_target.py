"""A smoothed classifier whose gradient is estimated from its answers at noisy points.

For Gaussian noise the gradient of the mean answer E[h(x + σz)] is E[z·h(x + σz)]/σ for any h, also a vote (Stein). For
uniform noise the same correlation divided by the variance 1/3 of z is the slope of the best linear fit to h on the
cube: an ascent direction, and the gradient itself where h is linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from smoothcert.attacks.attack_noise import NoiseSource
from smoothcert.attacks.geometry import per_row
from smoothcert.attacks.target import Assessment
from smoothcert.records import Noise

_LEAST_MEAN = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class EstimatedTarget:
    """-log of the mean answer for the label, with an estimated gradient.

    answers: (N, *shape) → (N, K) in [0, 1], scores or one-hot votes; all 0 where the model has no answer. labels,
    sigma, noises: as for `SmoothedTarget`. kind: of the noise.

    Each noise is used with both signs; half the difference of the two answers is correlated with z. The error of the
    estimate falls with √draws and grows with the dimension. If all noisy points get the same votes, the gradient is 0.
    """

    answers: Callable[[Tensor], Tensor]
    labels: Tensor
    sigma: float | Tensor | Callable[[Tensor], Tensor]
    noises: NoiseSource
    kind: Noise = Noise.GAUSSIAN

    def __call__(self, points: Tensor, /) -> Assessment:
        level = per_row(self.sigma(points) if callable(self.sigma) else self.sigma, points)
        slope = torch.zeros_like(points)
        totals: Tensor | float = 0.0
        draws = 0
        for noises in self.noises.chunks(points):
            shifts = noises * level
            ahead, behind = self._answer(points + shifts), self._answer(points - shifts)
            totals = totals + (ahead + behind).sum(dim=0)
            difference = self._select_labels(ahead - behind) / 2.0
            slope += torch.einsum("kb,kb...->b...", difference.to(noises.dtype), noises)
            draws += len(noises)
        assert isinstance(totals, Tensor)
        mean = (self._select_labels(totals) / (2 * draws)).clamp_min(_LEAST_MEAN).to(points.dtype)
        gradients = -slope / (level * per_row(mean, points) * (self.kind.facts.unit_variance * draws))
        return Assessment(-mean.log(), gradients, totals.argmax(dim=1) != self.labels)

    def _answer(self, noisy: Tensor) -> Tensor:
        """(k, B, K) for (k, B, *shape)."""
        return self.answers(noisy.flatten(0, 1)).view(*noisy.shape[:2], -1)

    def _select_labels(self, values: Tensor) -> Tensor:
        """The column of each label: (…, B) of (…, B, K)."""
        place = self.labels.view(-1, 1).expand(*values.shape[:-1], 1)
        return values.gather(-1, place).squeeze(-1)
