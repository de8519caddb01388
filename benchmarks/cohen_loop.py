"""`SmoothedClassifier.certify` with default settings against the plain loop of Cohen et al. (2019), in one process.

    python benchmarks/cohen_loop.py [--only lenet] [--rounds 5] [--batch 2048] [--float]

The loop is CERTIFY as the paper describes it: n0 = 100 copies of the input with `torch.randn_like` noise select the
class, n = 100000 fresh ones prove it by a Clopper-Pearson bound, in batches of 1000, with torch's own threads. Ours is
`SmoothedClassifier(module, sigma=0.25, grid=256)`, nothing else given, after a warm-up call with n = 1000. Both certify
the same inputs in turn, one in each round. Printed are ratios of samples per second: of the first round, which pays for
measuring the batch size again and for most checks of the model; and of the medians of all rounds. The loop takes the
same time for each sample, so it draws fewer of them for a large network.

--batch: also certify with this batch size given, to see what the measured one is worth. --float: noise in float32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.special import betaincinv, ndtri
from torch import Tensor, nn

from smoothcert import SmoothedClassifier
from timing import SHAPES, network

SIGMA, ALPHA, N0, N, CLASSES, LEVELS = 0.25, 0.001, 100, 100_000, 10, 256
LOOP_SAMPLES = {"cifar_resnet20": 5000}
ROUNDS = {"cifar_resnet20": 1}
LOOP_BATCH = 1000


def count_votes(module: nn.Module, x: Tensor, *, n: int) -> np.ndarray:
    """Votes of the module for n noisy copies of x."""
    counts = np.zeros(CLASSES, dtype=np.int64)
    with torch.no_grad():
        for start in range(0, n, LOOP_BATCH):
            size = min(LOOP_BATCH, n - start)
            copies = x.repeat((size, *(1 for _ in x.shape)))
            votes = module(copies + SIGMA * torch.randn_like(copies)).argmax(1)
            counts += np.bincount(votes.numpy(), minlength=CLASSES)
    return counts


def certify_plainly(module: nn.Module, x: Tensor, *, n: int) -> tuple[int, float] | None:
    """The class and the radius, or None to abstain."""
    top = int(count_votes(module, x, n=N0).argmax())
    hits = int(count_votes(module, x, n=n)[top])
    lower = float(betaincinv(hits, n - hits + 1, ALPHA)) if hits else 0.0
    return (top, SIGMA * float(ndtri(lower))) if lower > 0.5 else None


def rate_of(certify: Callable[[], object], *, n: int) -> float:
    began = time.perf_counter()
    certify()
    return (N0 + n) / (time.perf_counter() - began)


def rates(
    arch: str, *, rounds: int | None = None, n: int = N, batch: int | None = None, grid: int | str = LEVELS
) -> dict[str, list[float]]:
    """Samples per second in each round: of the loop, with default settings, and with this batch size if it is given."""
    module, rounds = network(arch), rounds or ROUNDS.get(arch, 5)
    random = np.random.default_rng(0)
    inputs = (random.integers(0, LEVELS, (rounds + 1, *SHAPES[arch])) / (LEVELS - 1)).astype(np.float32)
    ours = {"default settings": SmoothedClassifier(module, sigma=SIGMA, grid=grid)}
    if batch is not None:
        ours[f"batch={batch}"] = SmoothedClassifier(module, sigma=SIGMA, grid=grid, batch=batch)
    for smoothed in ours.values():
        smoothed.certify(inputs[:1], n=1000)
    certify_plainly(module, torch.from_numpy(inputs[0]), n=1000)
    loop_n = min(n, LOOP_SAMPLES.get(arch, n))
    found: dict[str, list[float]] = {name: [] for name in ("the loop", *ours)}
    for x in inputs[1:]:
        tensor = torch.from_numpy(x)
        found["the loop"].append(rate_of(lambda tensor=tensor: certify_plainly(module, tensor, n=loop_n), n=loop_n))
        for name, smoothed in ours.items():
            found[name].append(rate_of(lambda one=smoothed, x=x: one.certify(x[None], n=n), n=n))
    for name, smoothed in ours.items():
        print(f"{arch}: {name}, batch {smoothed.batch}")
    return found


def ratios(arch: str, *, rounds: int | None = None) -> dict[str, float]:
    """The ratio of the medians, for benchmarks/ratios.py."""
    found = rates(arch, rounds=rounds)
    return {"certify / Cohen's loop": _ratio(found, "default settings")}


def _ratio(found: dict[str, list[float]], name: str) -> float:
    return statistics.median(found[name]) / statistics.median(found["the loop"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"networks whose name has this text: {', '.join(SHAPES)}")
    parser.add_argument("--rounds", type=int, help="inputs to certify; default 5, and 1 for ResNet-20")
    parser.add_argument("--n", type=int, default=N, help="samples for each input")
    parser.add_argument("--batch", type=int, help="also certify with this batch size given")
    parser.add_argument("--float", action="store_true", help="noise in float32 instead of on a grid")
    asked = parser.parse_args()
    for arch in (name for name in SHAPES if asked.only in name):
        grid = "float" if asked.float else LEVELS
        found = rates(arch, rounds=asked.rounds, n=asked.n, batch=asked.batch, grid=grid)
        for name, values in found.items():
            rate, first = statistics.median(values), values[0] / found["the loop"][0]
            print(f"  {name:18s} {rate:12,.0f} samples/s   first {first:5.2f}   median {_ratio(found, name):5.2f}")


if __name__ == "__main__":
    main()
