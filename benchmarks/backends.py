"""The bare forward pass by onnxruntime against that by torch, each at its own best batch size.

python benchmarks/backends.py [--seconds 10] [--models lenet,mlp]

Both have one single-threaded worker per core, so seconds of processor time are counted: what else runs on the machine
disturbs less.
"""

from __future__ import annotations

import argparse
import time

from smoothcert.models import as_classifier
from smoothcert.models.backends import measure_rate
from timing import ROUNDS, SHAPES, best_batch, median_in_turn, network


def ratio(arch: str, *, seconds: float) -> float:
    """onnxruntime ÷ torch, in samples per second, one worker per core. seconds: for each of both, over all rounds."""
    module = network(arch)
    found = {
        backend: as_classifier(module, input_shape=SHAPES[arch], device="cpu", backend=backend)
        for backend in ("torch", "onnxruntime")
    }
    batches = {backend: best_batch(classifier, clock=time.thread_time) for backend, classifier in found.items()}
    rates = median_in_turn(
        {
            backend: lambda backend=backend: measure_rate(  # type: ignore[misc]
                found[backend], batch=batches[backend], seconds=seconds / ROUNDS, clock=time.thread_time
            )
            for backend in found
        }
    )
    return rates["onnxruntime"] / rates["torch"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="time per measured quantity")
    parser.add_argument("--models", default=",".join(SHAPES))
    arguments = parser.parse_args()
    for arch in arguments.models.split(","):
        print(f"{arch:16s} {ratio(arch, seconds=arguments.seconds):8.2f}", flush=True)


if __name__ == "__main__":
    main()
