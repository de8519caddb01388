"""Models with known answers, importable by name from the command line too."""

from __future__ import annotations

import time

import numpy as np

DIMENSION = 8


class Linear:
    """Class 1 where w·x + b > 0: the vote probability and the exact radius are known for every input and sigma."""

    def __init__(self, weights: np.ndarray, bias: float) -> None:
        self.weights = weights.astype(np.float64)
        self.bias = bias

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return (batch.reshape(len(batch), -1).astype(np.float64) @ self.weights + self.bias > 0).astype(np.int64)

    def exact_radius(self, x: np.ndarray) -> float:
        return float(abs(x.ravel() @ self.weights + self.bias) / np.linalg.norm(self.weights))


def at_distance(distance: float, *, seed: int = 0) -> tuple[Linear, np.ndarray]:
    """A linear classifier and an input in the unit cube at exactly this distance from its boundary."""
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=DIMENSION)
    x = generator.random(DIMENSION).astype(np.float32)
    bias = distance * np.linalg.norm(weights) - float(x.astype(np.float64) @ weights)
    return Linear(weights, bias), x


def digits_by_brightness(batch: np.ndarray) -> np.ndarray:
    """A deterministic linear classifier of digits into ten classes that needs no training."""
    pixels = np.arange(64)
    weights = np.stack([np.cos(pixels * (k + 1) / 7) for k in range(10)], axis=1)
    return batch.reshape(len(batch), -1) @ weights


def unhurried_digits(batch: np.ndarray) -> np.ndarray:
    """The same, with a pause for each batch, but not for single rows."""
    if len(batch) > 1:
        time.sleep(0.04)
    return digits_by_brightness(batch)


def roll_by_side(batch: np.ndarray) -> np.ndarray:
    """Logits of two classes of points in the plane: on which side of a line they lie."""
    side = batch.reshape(len(batch), -1)[:, :2] @ np.array([1.0, -0.5])
    return np.stack([-side, side], axis=1)


def never_finite(batch: np.ndarray) -> np.ndarray:
    return np.full((len(batch), 10), np.nan)


def logistic_digits() -> object:
    """Logistic regression fitted on the bundled digits in a fraction of a second; it has scores.

    On one core: the last digits of the weights depend on how many take part, and every process must get the same ones.
    """
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    digits = load_digits()
    with threadpool_limits(1):
        return LogisticRegression(C=1.0, max_iter=400, tol=1e-3).fit(digits.data / 16.0, digits.target)


def darkness(batch: np.ndarray) -> np.ndarray:
    """Class 1 where a digit is dark: labels, no scores."""
    return (batch.reshape(len(batch), -1).mean(axis=1) < 0.3).astype(np.int64)


def always_three(batch: np.ndarray) -> np.ndarray:
    """Labels, at no cost."""
    return np.full(len(batch), 3)
