"""All ratios worth watching, measured in one run and compared with the recorded ones.

    python benchmarks/ratios.py [--record] [--seconds 5] [--only TEXT]

Ratios only: they carry over from machine to machine where times do not, though not exactly; the record says on how many
cores it was made. Larger is better in every row. A ratio more than TOLERANCE below its record is named, and the exit
code is 1. --record stores what was measured, for the rows that were measured, in ratios.json beside this file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import backends
import calls
import cohen_loop
import scaling
import smoothcert
import throughput
from certificates import INPUTS, SAMPLES, statistics_seconds
from smoothcert.models import as_classifier
from smoothcert.models.devices import usable_cores
from timing import SHAPES, best_batch, network

RECORD = Path(__file__).with_name("ratios.json")
TOLERANCE = 0.15
"""Repetitions on a shared machine differ by up to ten per cent."""

Measure = Callable[[float], dict[str, float]]
"""Seconds for each timed quantity → ratios by name."""


def sampling_of(arch: str) -> Measure:
    return lambda seconds: {
        f"{arch}: {name}": value for name, value in throughput.ratios(arch, seconds=seconds).items()
    }


def backends_of(arch: str) -> Measure:
    return lambda seconds: {f"{arch}: onnxruntime / torch": backends.ratio(arch, seconds=seconds)}


def certify_of(arch: str) -> Measure:
    """Whole calls, so the seconds are those that they take."""
    return lambda _: {f"{arch}: {name}": value for name, value in cohen_loop.ratios(arch).items()}


def calls_of(arch: str) -> Measure:
    """Calls of one input and of many, for few samples and for many."""
    return lambda _: {f"{arch}: {name}": value for name, value in calls.ratios(arch).items()}


def workers(seconds: float) -> dict[str, float]:
    return {"lenet: two workers / one": scaling.ratio("lenet", seconds=seconds)}


def statistics(seconds: float) -> dict[str, float]:
    """How many times longer sampling takes than the statistics of what was sampled."""
    classifier = as_classifier(network("lenet"), input_shape=SHAPES["lenet"], device="cpu", backend="fastest")
    rate = throughput.sampling_rate(classifier, batch=best_batch(classifier), seconds=seconds)
    sampling = INPUTS * SAMPLES / rate
    return {
        f"{name}: LeNet's samples / statistics, {INPUTS} inputs": sampling / statistics_seconds(name)
        for name in ("gaussian", "dipole")
    }


def adaptive(_: float) -> dict[str, float]:
    """Samples of a fixed number ÷ samples until decided, for half-spaces at every distance up to 4 σ."""
    distances = np.linspace(0.0, 1.0, 201)[1:]
    inputs = np.zeros((len(distances), 2), dtype=np.float32)
    inputs[:, 0] = distances
    right = smoothcert.SmoothedClassifier(
        lambda batch: (batch[:, 0] > 0).astype(np.int64), sigma=0.25, num_classes=2, seed=0, batch=2048
    )
    decided = right.certify(inputs, n=SAMPLES, decide=(0.25, 0.5, 0.75))
    taken = sum(tally.n for point in decided for tally in point.tallies)
    return {"half-spaces: fixed samples / samples until decided": SAMPLES * len(inputs) / taken}


MEASURES: dict[str, Measure] = {
    **{f"sampling {arch}": sampling_of(arch) for arch in SHAPES},
    **{f"backends {arch}": backends_of(arch) for arch in SHAPES},
    **{f"certify {arch}": certify_of(arch) for arch in SHAPES},
    **{f"calls {arch}": calls_of(arch) for arch in calls.MOST_SAMPLES},
    "workers": workers,
    "statistics": statistics,
    "adaptive": adaptive,
}


def dropped(now: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Names of ratios that fell by more than the tolerance."""
    return [name for name, value in now.items() if value < (1.0 - TOLERANCE) * recorded.get(name, 0.0)]


def report(now: dict[str, float], recorded: dict[str, float]) -> None:
    for name, value in now.items():
        before = f"recorded {recorded[name]:10.2f}" if name in recorded else "not recorded"
        print(f"{name:52s} {value:10.2f}   {before}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="time per measured quantity")
    parser.add_argument("--only", default="", help=f"measures whose name has this text: {', '.join(MEASURES)}")
    parser.add_argument("--record", action="store_true", help="store the new ratios")
    arguments = parser.parse_args()
    stored = json.loads(RECORD.read_text()) if RECORD.exists() else {"ratios": {}}
    recorded: dict[str, float] = stored["ratios"]
    now: dict[str, float] = {}
    for name, measure in MEASURES.items():
        if arguments.only in name:
            found = measure(arguments.seconds)
            report(found, recorded)
            now |= found
    fell = dropped(now, recorded)
    for name in fell:
        print(f"dropped by more than {TOLERANCE:.0%}: {name}, {recorded[name]:.2f} -> {now[name]:.2f}")
    if arguments.record:
        rounded = {name: float(f"{value:.3g}") for name, value in now.items()}
        document = {"cores": usable_cores(), "ratios": recorded | rounded}
        RECORD.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if fell and not arguments.record else 0


if __name__ == "__main__":
    sys.exit(main())
