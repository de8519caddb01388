"""Sampling throughput as ratios from one run: against the bare forward pass, and against the usual loop.

    python benchmarks/throughput.py [--seconds 6] [--models lenet,mlp] [--json FILE]

`bare` is the same back end, the same number of single-threaded workers, on inputs made beforehand, at its own best
batch size. `usual loop` is what most code does: repeat the input, torch.randn_like, add, argmax, count in numpy,
batch 1000, torch's own threads. The three are measured in turn, several times over, and the medians compared, so that
a noisy machine hits all of them alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from smoothcert.models import as_classifier
from smoothcert.models.architectures import build
from smoothcert.models.base import BaseClassifier
from smoothcert.models.devices import usable_cores
from smoothcert.records import Stage, StreamId
from smoothcert.sampling import Request, Sampler, measure_batch

SHAPE = (1, 28, 28)
BATCHES = (64, 128, 256, 512, 1024)
ROUNDS = 5


def bare_rate(classifier: BaseClassifier, *, batch: int, seconds: float) -> float:
    """Samples per second of `classify` alone, one worker per core, inputs made beforehand."""
    rates: list[float] = []

    def work() -> None:
        classifier.prepare_thread()
        inputs = np.random.default_rng(0).random((batch, *SHAPE), dtype=np.float32)
        classifier.classify(inputs)
        finished, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            classifier.classify(inputs)
            finished += batch
        rates.append(finished / elapsed)

    threads = [threading.Thread(target=work) for _ in range(min(usable_cores(), classifier.concurrency))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


def sampling_rate(classifier: BaseClassifier, *, batch: int, seconds: float) -> float:
    """Samples per second of certification's sampling: noise, model and counting."""
    sampler = Sampler(classifier, batch=batch)
    inputs = np.random.default_rng(0).random((1, *SHAPE), dtype=np.float32)
    samples = 20_000

    def draw(count: int) -> None:
        stream = StreamId(0, 0, Stage.ESTIMATION)
        sampler.tally(inputs, [Request(row=0, stream=stream, sigma=0.25, start=0, stop=count)])

    began = time.perf_counter()
    draw(samples)
    samples = max(samples, int(samples / (time.perf_counter() - began) * seconds))
    began = time.perf_counter()
    draw(samples)
    return samples / (time.perf_counter() - began)


def usual_loop_rate(module: nn.Module, *, seconds: float, batch: int = 1000) -> float:
    """Samples per second of the loop found in research code."""
    x = torch.rand(SHAPE)
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


def median_in_turn(measures: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Each measured once a round, medians over the rounds."""
    seen: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(ROUNDS):
        for name, measure in measures.items():
            seen[name].append(measure())
    return {name: statistics.median(values) for name, values in seen.items()}


def compare(arch: str, *, seconds: float) -> dict[str, float]:
    torch.manual_seed(0)
    module = build(arch, num_classes=10, input_shape=SHAPE).eval()
    classifier = as_classifier(module, num_classes=10, input_shape=SHAPE, device="cpu")
    best = max(BATCHES, key=lambda batch: bare_rate(classifier, batch=batch, seconds=0.5))
    chosen = measure_batch(classifier, SHAPE, samples=10**9)
    share = seconds / ROUNDS
    rates = median_in_turn(
        {
            "bare": lambda: bare_rate(classifier, batch=best, seconds=share),
            "sampling": lambda: sampling_rate(classifier, batch=chosen, seconds=share),
            "usual loop": lambda: usual_loop_rate(module, seconds=share),
        }
    )
    return {
        "sampling / bare forward": rates["sampling"] / rates["bare"],
        "sampling / usual loop": rates["sampling"] / rates["usual loop"],
        "usual loop / bare forward": rates["usual loop"] / rates["bare"],
        "batch": chosen,
        "best batch of the bare forward": best,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="time per measured quantity")
    parser.add_argument("--models", default="lenet,mlp")
    parser.add_argument("--json", type=Path, help="also write the ratios here")
    arguments = parser.parse_args()
    ratios = {arch: compare(arch, seconds=arguments.seconds) for arch in arguments.models.split(",")}
    for arch, found in ratios.items():
        print(arch)
        for name, value in found.items():
            print(f"  {name:32s} {value:8.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(ratios, indent=2) + "\n")


if __name__ == "__main__":
    main()
