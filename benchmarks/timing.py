"""What all timings share: rates measured in turn, and the networks they are measured with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from smoothcert.models.architectures import build
from smoothcert.models.backends import measure_rate
from smoothcert.models.base import BaseClassifier

SHAPES = {"small_net": (1, 7, 7), "lenet": (1, 28, 28), "cifar_resnet20": (3, 32, 32), "mlp": (1, 28, 28)}
BATCHES = (32, 64, 128, 256, 512, 1024)
ROUNDS = 5


def network(arch: str) -> nn.Module:
    """Fresh weights of ten classes; standardised, as most networks are."""
    torch.manual_seed(0)
    return build(arch, num_classes=10, input_shape=SHAPES[arch], standardise=((0.5,), (0.25,))).eval()


Clock = Callable[[], float]


def best_batch(classifier: BaseClassifier, *, seconds: float = 0.2, clock: Clock = time.perf_counter) -> int:
    """The batch size at which the bare forward pass is fastest, each measured twice."""
    found: dict[int, float] = {}
    for batch in BATCHES * 2:
        found[batch] = max(measure_rate(classifier, batch=batch, seconds=seconds, clock=clock), found.get(batch, 0.0))
    return max(found, key=lambda batch: found[batch])


def median_in_turn(measures: dict[str, Callable[[], float]], *, rounds: int = ROUNDS) -> dict[str, float]:
    """Each measured once a round, medians over the rounds: other programs on the machine hit all of them alike."""
    seen: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            seen[name].append(measure())
    return {name: statistics.median(values) for name, values in seen.items()}
