"""Sampling by two workers against sampling by one.

python benchmarks/scaling.py [--seconds 10] [--model lenet]
"""

from __future__ import annotations

import argparse

from smoothcert.models import as_classifier
from smoothcert.sampling import measure_batch
from throughput import sampling_rate
from timing import ROUNDS, SHAPES, median_in_turn, network


def ratio(arch: str, *, seconds: float) -> float:
    """Samples per second with two workers ÷ with one, at the batch size of two. seconds: for each, over all rounds."""
    classifier = as_classifier(network(arch), input_shape=SHAPES[arch], device="cpu", backend="fastest")
    batch = measure_batch(classifier, SHAPES[arch], samples=10**9, workers=2)
    share = seconds / ROUNDS
    rates = median_in_turn(
        {
            "one": lambda: sampling_rate(classifier, batch=batch, seconds=share, workers=1),
            "two": lambda: sampling_rate(classifier, batch=batch, seconds=share, workers=2),
        }
    )
    return rates["two"] / rates["one"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="time per measured quantity")
    parser.add_argument("--model", default="lenet")
    arguments = parser.parse_args()
    print(f"{arguments.model:16s} {ratio(arguments.model, seconds=arguments.seconds):8.2f}")


if __name__ == "__main__":
    main()
