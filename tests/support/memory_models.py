"""Models and points of the plane whose smoothed regions meet, so that claims conflict.

The models can also be named on the command line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

DOUBT_ABOVE = 6.0


def in_unit_ball(batch: np.ndarray) -> np.ndarray:
    """The counter-example of Súkeník et al. (appendix C.2): class 1 in the closed unit ball, class 0 outside.

    Outside the ball a larger sigma always gives a larger radius, so that regions of class 0 cover the ball.
    """
    flat = batch.reshape(len(batch), -1).astype(np.float64)
    return (np.square(flat).sum(axis=1) <= 1.0).astype(np.int64)


def ball_and_doubt(batch: np.ndarray) -> np.ndarray:
    """`in_unit_ball`, but with irregular answers where the second coordinate is large: smoothing abstains there."""
    flat = batch.reshape(len(batch), -1).astype(np.float64)
    scattered = np.floor(np.abs(flat[:, 0]) * 1e5).astype(np.int64) % 2
    return np.where(flat[:, 1] > DOUBT_ABOVE, scattered, in_unit_ball(batch))


def small_in_doubt(x: np.ndarray) -> float:
    """A sigma that jumps: only a memory makes it sound."""
    return 0.1 if float(x[1]) > DOUBT_ABOVE else 40.0


def right_half(batch: np.ndarray) -> np.ndarray:
    """Class 1 where the first coordinate is positive: the exact distance to the border is that coordinate."""
    return (batch.reshape(len(batch), -1)[:, 0] > 0).astype(np.int64)


def torch_ball() -> object:
    """`in_unit_ball` with scores. Any number of threads may use it."""
    import torch

    class Ball(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            beyond = batch.square().sum(dim=1) - 1.0
            return torch.stack([4.0 * beyond, -4.0 * beyond], dim=1)

    return Ball().eval()


def plane_points(path: Path, *, count: int = 60, seed: int = 0) -> Path:
    """A file of points in the plane with their true classes: in the ball, around it, and in the area of abstention."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-5.0, 5.0, size=(count, 2)).astype(np.float32)
    x[::5] /= 6.0
    x[3::5, 1] = 6.2 + np.abs(x[3::5, 1]) / 3.0
    np.savez(path, x=x, y=in_unit_ball(x))
    return path
