"""Noise levels that depend on the input, with and without a proven envelope. They can be imported by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smoothcert.data import load_dataset
from smoothcert.records.envelopes import LipschitzSigma
from smoothcert.sigma.callable_rule import CallableRule
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.network import SigmaNetwork
from smoothcert.sigma.rule_files import save_rule


def by_brightness(x: np.ndarray) -> float:
    """0.1 … 0.2 for digits. As a plain function it has no envelope."""
    return 0.1 + 0.1 * float(x.astype(np.float64).mean())


# The mean of 64 pixels changes by at most ‖x-x'‖/8.
proven_by_brightness = CallableRule(by_brightness, envelope=LipschitzSigma(constant=0.0125, floor=0.1))


def digits_knn(*, rate: float = 0.02, base_sigma: float = 0.15) -> KnnSigma:
    points = load_dataset("digits", split="train").inputs(slice(0, 200))
    return KnnSigma(points=points, base_sigma=base_sigma, rate=rate, k=5, offset=1.5)


def random_network(
    size: int, *, lipschitz: float, floor: float, spread: float = 0.0, seed: int = 0, hidden: int = 6
) -> SigmaNetwork:
    """A network of two layers scaled to about this Lipschitz constant. spread: added before the last ReLU."""
    generator = np.random.default_rng(seed)
    first, last = generator.normal(size=(hidden, size)), np.abs(generator.normal(size=(1, hidden)))
    first *= 1.0 / np.linalg.norm(first, 2)
    last *= lipschitz / np.linalg.norm(last, 2)
    biases = (0.1 * generator.normal(size=hidden), np.array([spread]))
    return SigmaNetwork(weights=(first, last), biases=biases, floor=floor)


def saved(path: Path, rule: KnnSigma | SigmaNetwork) -> Path:
    save_rule(path, rule)
    return path
