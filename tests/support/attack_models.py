"""A half-space as a torch module and as a plain function: where it can be broken is known exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.records.envelopes import LipschitzSigma
from smoothcert.sigma.callable_rule import CallableRule

WEIGHTS = np.array([1.0, -2.0, 0.5, 0.0, 3.0, -0.5], dtype=np.float32)
BIAS = -0.25


class HalfSpace(nn.Module):
    """Class 1 where w·x + b > 0, with logits that grow with the distance."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(len(WEIGHTS), 2)
        with torch.no_grad():
            self.layer.weight.copy_(torch.from_numpy(np.stack([-WEIGHTS, WEIGHTS])))
            self.layer.bias.copy_(torch.tensor([-BIAS, BIAS]))

    def forward(self, batch: Tensor) -> Tensor:
        logits: Tensor = self.layer(batch)
        return logits


class SureHalfSpace(HalfSpace):
    """The same classes, with logits so far apart that the softmax has no gradient left in float32."""

    def forward(self, batch: Tensor) -> Tensor:
        return 1e6 * super().forward(batch)


class FlatHalfSpace(HalfSpace):
    """The same classes, with logits that have no gradient at all, whatever the loss."""

    def forward(self, batch: Tensor) -> Tensor:
        return torch.sign(super().forward(batch))


def votes(batch: np.ndarray) -> np.ndarray:
    """The same classes, without scores."""
    return (batch @ WEIGHTS + BIAS > 0).astype(np.int64)


def level(x: np.ndarray) -> float:
    """A level that depends on the input; as a plain function it has no envelope."""
    return 0.2 + 0.01 * float(np.tanh(x[0]))


# The slope of tanh is at most 1.
proven_level = CallableRule(level, envelope=LipschitzSigma(constant=0.01, floor=0.19))


def inputs_at(distance: float, *, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (count, 6) at this ℓ2 distance from the boundary, on either side in turn, and their classes."""
    generator = np.random.default_rng(seed)
    weights = WEIGHTS.astype(np.float64)
    points = generator.normal(size=(count, len(WEIGHTS)))
    labels = np.arange(count) % 2
    wanted = np.where(labels == 1, distance, -distance)
    margins = (points @ weights + BIAS) / np.linalg.norm(weights)
    points += (wanted - margins)[:, None] * weights / np.linalg.norm(weights)
    return points.astype(np.float32), labels


def saved_inputs(path: Path, distance: float, *, count: int) -> Path:
    points, labels = inputs_at(distance, count=count)
    np.savez(path, x=points, y=labels)
    return path
