"""Checks of votes: on a device against the host, in other batches, and repeated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from smoothcert.diagnosis.findings import Finding
from smoothcert.models.architectures import build
from smoothcert.models.base import BaseClassifier
from smoothcert.models.torch_classifier import TorchClassifier, TorchDeviceClassifier
from smoothcert.records import AnyTally, InputArray, IntArray, Noise, Stage, StreamId
from smoothcert.sampling import Request, Sampler

SHAPES = {"small_net": (1, 7, 7), "lenet": (1, 28, 28), "cifar_resnet20": (3, 32, 32)}
_CLASSES, _LEVELS = 10, 256
_INPUTS, _SAMPLES = 4, 1000
_BATCHES = (64, 250)
_ROWS = 300
_MOST_TIES = 1e-3
"""The share of votes that rounding may change: networks with random weights have near ties."""


def make_network(arch: str) -> torch.nn.Module:
    """A network with fixed random weights, for inputs that are standardised."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        standardise = ((0.5,), (0.25,))
        return build(arch, num_classes=_CLASSES, input_shape=SHAPES[arch], standardise=standardise).eval()


def make_classifier(arch: str, device: torch.device, *, accelerated: bool) -> BaseClassifier:
    """accelerated: noise, network and votes on the device; otherwise as on the processor."""
    if accelerated:
        return TorchDeviceClassifier(make_network(arch), device=device, input_shape=SHAPES[arch])
    return TorchClassifier(make_network(arch), input_shape=SHAPES[arch])


def make_inputs(arch: str, count: int = _INPUTS) -> InputArray:
    """Random inputs on a grid of 256 levels."""
    steps = np.random.default_rng(0).integers(0, _LEVELS, (count, *SHAPES[arch]))
    return (steps / np.float32(_LEVELS - 1)).astype(np.float32)


def check_votes(device: torch.device, *, accelerated: bool) -> list[Finding]:
    """Votes on this device: against the host, in other batches, and repeated."""
    found: list[Finding] = []
    for arch in ("small_net", "lenet"):
        classifier = make_classifier(arch, device, accelerated=accelerated)
        host = TorchClassifier(make_network(arch), input_shape=SHAPES[arch])
        found += [_against_the_host(arch, classifier, host), _rows_alone(arch, classifier), _repeated(arch, classifier)]
    return found


def _sample(classifier: BaseClassifier, arch: str, *, batch: int) -> list[AnyTally]:
    requests = [
        Request(row, StreamId(11, row, Stage.ESTIMATION), sigma, 0, _SAMPLES, noise=noise, grid=grid)
        for noise, grid, sigma in ((Noise.GAUSSIAN, _LEVELS, 0.25),)
        for row in range(_INPUTS)
    ]
    return Sampler(classifier, batch=batch).tally(make_inputs(arch), requests)


def _moved(first: Sequence[AnyTally], second: Sequence[AnyTally]) -> int:
    """How many votes were counted for another class."""
    return sum(
        int(np.abs(one.independent_votes().counts - other.independent_votes().counts).sum()) // 2
        for one, other in zip(first, second, strict=True)
    )


def _against_the_host(arch: str, classifier: BaseClassifier, host: BaseClassifier) -> Finding:
    moved = _moved(*(_sample(each, arch, batch=_BATCHES[0]) for each in (classifier, host)))
    total = _INPUTS * _SAMPLES
    detail = f"{moved} of {total} votes differ from those of the processor (rounding may change {_MOST_TIES:.1%})"
    return Finding(f"votes, {arch}", passed=moved <= _MOST_TIES * total, detail=detail)


def _rows_alone(arch: str, classifier: BaseClassifier) -> Finding:
    """Whether the vote for a row depends on its batch: on its size, its position, and the other rows."""
    rows = make_inputs(arch, _ROWS) + np.random.default_rng(1).normal(0, 0.25, (_ROWS, *SHAPES[arch]))
    noisy = rows.astype(np.float32)
    expected = classifier.classify(noisy.copy())
    order = np.random.default_rng(2).permutation(_ROWS)
    shuffled = np.empty_like(expected)
    shuffled[order] = classifier.classify(noisy[order])
    found = {"in another order": shuffled}
    for batch in (1, 7, 64):
        found[f"in batches of {batch}"] = _classify_in_batches(classifier, noisy, batch)
    changed = {how: int((votes != expected).sum()) for how, votes in found.items()}
    worst = max(changed, key=lambda how: changed[how])
    detail = f"{changed[worst]} of {_ROWS} votes change {worst}" if changed[worst] else "the batch changes no vote"
    return Finding(f"rows alone, {arch}", passed=changed[worst] <= _MOST_TIES * _ROWS, detail=detail)


def _classify_in_batches(classifier: BaseClassifier, rows: InputArray, batch: int) -> IntArray:
    parts = [classifier.classify(rows[start : start + batch].copy()) for start in range(0, len(rows), batch)]
    return np.concatenate(parts)


def _repeated(arch: str, classifier: BaseClassifier) -> Finding:
    first, second = (_sample(classifier, arch, batch=batch) for batch in (_BATCHES[1], _BATCHES[1]))
    moved = _moved(first, second)
    detail = f"{moved} votes differ when the same samples are drawn twice" if moved else "the same votes twice"
    return Finding(f"repeated, {arch}", passed=moved == 0, detail=detail)
