"""Noise levels for points of the plane. They can be named on the command line."""

from __future__ import annotations

import numpy as np


def wider_above(x: np.ndarray) -> float:
    return 0.3 + 0.05 * abs(float(x[1]))


def narrower_above(x: np.ndarray) -> float:
    return 0.5 - 0.05 * min(abs(float(x[1])), 4.0)


def bold_on_the_right() -> object:
    """A model with scores: (1, 0) where the first coordinate is positive, (0.4, 0.6) elsewhere."""
    import torch

    class Bold(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            right = (batch[:, 0] > 0).to(batch.dtype)
            # The softmax of these are the scores.
            first = torch.log(0.4 + (1 - 1e-6 - 0.4) * right)
            return torch.stack([first, torch.log1p(-torch.exp(first))], dim=1)

    return Bold().eval()
