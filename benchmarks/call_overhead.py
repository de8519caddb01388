"""What a call of `SmoothedClassifier.certify` with few samples costs beside the model.

    python benchmarks/call_overhead.py [--n 1000] [--rounds 200]

One input of the 7x7 network, after the first calls. The time inside the model is measured and subtracted: the fused
graph that votes, and the user's module that is asked about single copies. The rest is noise, checks, bounds and
results. Printed are the quartiles in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from smoothcert import SmoothedClassifier
from smoothcert.models.torch_original import TorchOriginal
from timing import SHAPES, network


class Stopwatch:
    """Adds up the time spent in some functions, in the calling thread."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


def measure(arch: str, *, n: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of each call, and of the model in it."""
    random = np.random.default_rng(0)
    x = (random.integers(0, 256, (1, *SHAPES[arch])) / 255).astype(np.float32)
    # One batch, so that the calling thread does everything and the times can be subtracted.
    smoothed = SmoothedClassifier(network(arch), sigma=0.25, grid=256, batch=n, workers=1)
    for _ in range(3):
        smoothed.certify(x, n=n, progress=False)
    stopwatch = Stopwatch()
    classifier: Any = smoothed.classifier
    classifier._forward = stopwatch.watch(classifier._forward)
    TorchOriginal._compute = stopwatch.watch(TorchOriginal._compute)  # type: ignore[method-assign]
    totals, models = [], []
    for _ in range(rounds):
        stopwatch.seconds, began = 0.0, time.perf_counter()
        smoothed.certify(x, n=n, progress=False)
        totals.append(time.perf_counter() - began)
        models.append(stopwatch.seconds)
    return totals, models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="small_net", help=", ".join(SHAPES))
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    asked = parser.parse_args()
    totals, models = measure(asked.arch, n=asked.n, rounds=asked.rounds)
    rest = [total - model for total, model in zip(totals, models, strict=True)]
    for name, values in (("call", totals), ("model", models), ("beside the model", rest)):
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{name:18s} {1e3 * low:6.2f} {1e3 * middle:6.2f} {1e3 * high:6.2f} ms")


if __name__ == "__main__":
    main()
