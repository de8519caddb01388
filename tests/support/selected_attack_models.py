"""Selectors and base classifiers as torch modules: half-spaces with a known radius, and digits."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.data import load_dataset

SIZE = 6
BORDER = 0.3
"""Level 2 is taken where the first coordinate is larger."""


class _Side(nn.Module):
    """Output 1 where the first two coordinates are beyond a line, with logits that grow with the distance."""

    def __init__(self, first: float, second: float, border: float) -> None:
        super().__init__()
        self.register_buffer("direction", torch.tensor([first, second]))
        self.border = border

    def forward(self, batch: Tensor) -> Tensor:
        beyond = 20.0 * (batch[:, :2] @ self.direction - self.border)
        return torch.stack([-beyond, beyond], dim=1)


def selector() -> nn.Module:
    return _Side(1.0, 0.0, BORDER)


def far_class() -> nn.Module:
    """Class 1 beyond 0.9 of the second coordinate."""
    return _Side(0.0, 1.0, 0.9)


def near_class() -> nn.Module:
    return _Side(0.0, 1.0, 0.5)


def other_class() -> nn.Module:
    """Class 1 everywhere."""
    return _Side(1.0, 0.0, -5.0)


def beyond_class() -> nn.Module:
    """Class 1 beyond 0.5 of the coordinate of the selector."""
    return _Side(1.0, 0.0, 0.5)


def slanted_class() -> nn.Module:
    """The nearest point that is beyond this line and the selector's border is their corner, (0.3, 0.416/0.96)."""
    return _Side(0.28, 0.96, 0.5)


def votes_of_selector(batch: np.ndarray) -> np.ndarray:
    """The selector without scores and gradients."""
    return (batch[:, 0] > BORDER).astype(np.int64)


def save_around_origin(path: Path, *, count: int) -> Path:
    """Inputs that differ only in coordinates that nothing depends on. All have class 0."""
    points = np.random.default_rng(0).normal(size=(count, SIZE)).astype(np.float32)
    points[:, :2] = 0.0
    np.savez(path, x=points, y=np.zeros(count, dtype=np.int64))
    return path


class _Linear(nn.Module):
    def __init__(self, weights: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("weights", torch.from_numpy(weights.astype(np.float32)))

    def forward(self, batch: Tensor) -> Tensor:
        flat = batch.flatten(1)
        return 8.0 * (torch.cat([flat, torch.ones_like(flat[:, :1])], dim=1) @ self.weights)


@functools.cache
def _fit_digits(sigma: float) -> np.ndarray:
    """Least squares on noisy digits: weights (65, 10)."""
    data = load_dataset("digits", split="train")
    generator = np.random.default_rng(0)
    x = np.tile(data.inputs(range(len(data))).reshape(len(data), -1), (4, 1)).astype(np.float64)
    x += sigma * generator.normal(size=x.shape)
    y = np.eye(10)[np.tile(data.labels, 4)]
    return np.linalg.lstsq(np.concatenate([x, np.ones((len(x), 1))], axis=1), y, rcond=None)[0]


def digits_quiet() -> nn.Module:
    return _Linear(_fit_digits(0.25))


def digits_noisy() -> nn.Module:
    return _Linear(_fit_digits(1.0))


class _Brightness(nn.Module):
    def forward(self, batch: Tensor) -> Tensor:
        bright = 40.0 * (batch.flatten(1).mean(dim=1) - 0.3)
        return torch.stack([-bright, bright], dim=1)


def brightness() -> nn.Module:
    """Two levels: dark digits and bright ones."""
    return _Brightness()
