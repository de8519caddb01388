"""What a sigma of every input's own costs: seconds per input against a constant sigma, in one run.

python benchmarks/sigma_rules.py [--n 20000] [--inputs 8] [--points 60000] [--repeats 5]

The network is a LeNet with fresh weights: time does not depend on what it has learnt. The median over repeats, each of
which does all rules in turn, is compared.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from smoothcert.models.architectures import build
from smoothcert.sigma import ConstantRule, SigmaRule
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.network import SigmaNetwork
from smoothcert.smoothed import SmoothedClassifier

_SHAPE = (1, 28, 28)
_CERTIFICATES = {"constant": ("gaussian", "gaussian-soft"), "varying": ("envelope", "envelope-soft")}


def rules(points: int) -> dict[str, SigmaRule]:
    """A constant sigma, a learned one and nearest neighbours, all about 0.25."""
    generator = np.random.Generator(np.random.PCG64(1))
    wide, last = generator.normal(size=(200, 784)), generator.normal(size=(1, 200))
    network = SigmaNetwork(
        weights=(wide / np.linalg.norm(wide, 2), 0.01 * last / np.linalg.norm(last, 2)),
        biases=(np.zeros(200), np.zeros(1)),
        floor=0.25,
    )
    stored = generator.integers(0, 256, size=(points, *_SHAPE), dtype=np.uint8)
    return {
        "constant": ConstantRule(0.25),
        "network": network,
        "neighbours": KnnSigma(stored, base_sigma=0.25, rate=0.001, k=20, offset=11.0),
    }


def seconds_per_input(rule: SigmaRule, certificate: str, inputs: np.ndarray, *, n: int, batch: int) -> float:
    smoothed = SmoothedClassifier(
        build("lenet", num_classes=10, input_shape=_SHAPE), sigma=rule, input_shape=_SHAPE, seed=1, batch=batch
    )
    smoothed.certify(inputs[:1], n0=10, n=1000, certificate=certificate)  # compiles, reads the points
    began = time.perf_counter()
    smoothed.certify(inputs, n0=100, n=n, certificate=certificate)
    return (time.perf_counter() - began) / len(inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    given = parser.parse_args()
    inputs = np.random.Generator(np.random.PCG64(2)).random((given.inputs, *_SHAPE), dtype=np.float32)
    found = rules(given.points)
    for column, kind in enumerate(("votes", "scores")):
        times: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(given.repeats):
            for name, rule in found.items():
                certificate = _CERTIFICATES["constant" if name == "constant" else "varying"][column]
                times[name].append(seconds_per_input(rule, certificate, inputs, n=given.n, batch=given.batch))
        base = statistics.median(times["constant"])
        print(f"{kind}, n={given.n}: constant sigma {base:.3f} s per input")
        for name in ("network", "neighbours"):
            print(f"  {name:<11} {statistics.median(times[name]) / base:.3f} of that")


if __name__ == "__main__":
    main()
