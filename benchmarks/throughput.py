"""Sampling throughput as ratios from one run: against the bare forward pass, and against the usual loop.

    python benchmarks/throughput.py [--seconds 10] [--models lenet,mlp] [--backend fastest]

`bare` is the same back end, the same number of single-threaded workers, on inputs made beforehand, at its own best
batch size. `usual loop` is what most code does: repeat the input, torch.randn_like, add, argmax, count in numpy,
batch 1000, torch's own threads. The three are measured in turn, several times over, and the medians compared, so that
a noisy machine hits all of them alike. Everything is also sampled with exact noise on a grid (256 levels; 4081 for the
7x7 net, whose inputs are block means), with noise that 32 inputs share, and an MLP with the noise drawn in its first
layer. Where nothing else is said the noise is float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from smoothcert.models import NOISE_AT, as_classifier
from smoothcert.models.backends import measure_rate
from smoothcert.models.base import BaseClassifier
from smoothcert.noise import from_grid
from smoothcert.records import Stage, StreamId
from smoothcert.sampling import Request, Sampler, measure_batch
from timing import ROUNDS, SHAPES, best_batch, median_in_turn, network


def sampling_rate(
    classifier: BaseClassifier,
    *,
    batch: int,
    seconds: float,
    workers: int | None = None,
    sharing: int = 1,
    grid: int | None = None,
) -> float:
    """Samples per second of certification's sampling: noise, model, counting. sharing: inputs with the same noise.
    grid: levels, for exact noise.
    """
    sampler = Sampler(classifier, batch=batch, workers=workers)
    shape = classifier.input_shape
    assert shape is not None
    inputs = np.random.default_rng(0).random((sharing, *shape), dtype=np.float32)
    if grid is not None:
        inputs = from_grid(np.rint(inputs * (grid - 1)).astype(np.int32), grid)

    def draw(count: int) -> float:
        began = time.perf_counter()
        sampler.tally(
            inputs,
            [
                Request(row, StreamId(0, row, Stage.ESTIMATION), 0.25, 0, count, shared=sharing > 1, grid=grid)
                for row in range(sharing)
            ],
        )
        return time.perf_counter() - began

    # Whole batches for every worker: with a slow model one batch more for some would be a tenth of the time.
    round_of_batches = batch * sampler.workers
    rounds = max(1, round(seconds / draw(round_of_batches)))
    return sharing * rounds * round_of_batches / draw(rounds * round_of_batches)


def usual_loop_rate(module: nn.Module, shape: tuple[int, ...], *, seconds: float, batch: int = 1000) -> float:
    """Samples per second of the loop found in research code."""
    x = torch.rand(shape)
    counts = np.zeros(10, dtype=int)
    with torch.no_grad():
        finished, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            copies = x.repeat((batch, 1, 1, 1))
            noise = torch.randn_like(copies) * 0.25
            votes = module(copies + noise).argmax(1).numpy()
            counts += np.bincount(votes, minlength=10)
            finished += batch
    return finished / elapsed


def ratios(arch: str, *, seconds: float, backend: str = "fastest") -> dict[str, float]:
    """Ratios of one network. seconds: for each quantity, over all rounds."""
    shape, module = SHAPES[arch], network(arch)
    share = seconds / ROUNDS
    measures: dict[str, Callable[[], float]] = {
        "usual loop": lambda: usual_loop_rate(module, shape, seconds=share),
    }
    for place in NOISE_AT if arch == "mlp" else NOISE_AT[:1]:
        classifier = as_classifier(module, input_shape=shape, device="cpu", backend=backend, noise_at=place)
        measures |= _sampling_measures(classifier, shape, name=_NAMES[place], seconds=share)
        if place == NOISE_AT[0]:
            measures["exact noise"] = _exact_noise(classifier, shape, levels=_LEVELS.get(arch, 256), seconds=share)
    rates = median_in_turn(measures)
    return {
        "sampling / bare forward": rates["sampling"] / rates["bare forward"],
        "exact noise / float noise": rates["exact noise"] / rates["sampling"],
        **{
            f"{name} / usual loop": rate / rates["usual loop"]
            for name, rate in rates.items()
            if name.startswith("sampling")
        },
    }


_LEVELS = {"small_net": 4081}


def _exact_noise(
    classifier: BaseClassifier, shape: tuple[int, ...], *, levels: int, seconds: float
) -> Callable[[], float]:
    batch = measure_batch(classifier, shape, samples=10**9, grid=levels)
    return lambda: sampling_rate(classifier, batch=batch, seconds=seconds, grid=levels)


_NAMES = {"input": "sampling", "first-layer": "sampling in the first layer"}


def _sampling_measures(
    classifier: BaseClassifier, shape: tuple[int, ...], *, name: str, seconds: float
) -> dict[str, Callable[[], float]]:
    alone = measure_batch(classifier, shape, samples=10**9)
    together = measure_batch(classifier, shape, samples=10**9, shared=True)
    measures = {
        name: lambda: sampling_rate(classifier, batch=alone, seconds=seconds),
        f"{name}, shared": lambda: sampling_rate(classifier, batch=together, seconds=seconds, sharing=32),
    }
    if name == "sampling":
        bare = best_batch(classifier)
        measures["bare forward"] = lambda: measure_rate(classifier, batch=bare, seconds=seconds)
    return measures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="time per measured quantity")
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--backend", default="fastest")
    arguments = parser.parse_args()
    for arch in arguments.models.split(","):
        print(arch)
        for name, value in ratios(arch, seconds=arguments.seconds, backend=arguments.backend).items():
            print(f"  {name:42s} {value:8.2f}", flush=True)


if __name__ == "__main__":
    main()
