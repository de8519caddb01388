"""What exact noise on a grid costs, as a ratio to noise in floating point: processor time for each noisy value.

    python benchmarks/noise_grid.py [--rounds 60] [--values 400000]

Both are measured in turn, in one thread, at the sizes of small MNIST, MNIST and CIFAR-10 inputs. A ratio below 1 says
that exact noise (ChaCha20, tables, whole numbers) is the faster of the two (Philox, Box–Muller, float32).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from smoothcert.noise import add_grid_noise, add_noise, grid_law
from smoothcert.records import Noise, Stage, StreamId

SIZES = (49, 784, 3072)
SIGMAS = (0.25, 0.5, 1.0)
LEVELS = 256
STREAM = StreamId(seed=1, index=0, stage=Stage.ESTIMATION)


def seconds(work: Callable[[], None]) -> float:
    """Processor time of this thread: what other programs take from it is not counted."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def float_and_grid(noise: Noise, *, size: int, sigma: float, values: int) -> tuple[Callable[[], None], ...]:
    """Both ways of filling the same batch of noisy inputs."""
    out = np.empty((max(1, values // size), size), dtype=np.float32)
    k = np.full(size, 100, dtype=np.int32)
    x = k / np.float32(LEVELS - 1)
    law = grid_law(noise, sigma=sigma, levels=LEVELS)
    return (
        lambda: add_noise(noise, out, x, STREAM, sigma=sigma, start=0),
        lambda: add_grid_noise(out, k, law, STREAM, start=0),
    )


def ratio(noise: Noise, *, size: int, sigma: float, values: int, rounds: int) -> tuple[float, float]:
    """Grid ÷ float: of the medians over all rounds, and of the fastest rounds."""
    in_floats, on_grid = float_and_grid(noise, size=size, sigma=sigma, values=values)
    seconds(in_floats), seconds(on_grid)  # compiled, and the tables in the cache
    pairs = [(seconds(in_floats), seconds(on_grid)) for _ in range(rounds)]
    floats, grids = zip(*pairs, strict=True)
    return statistics.median(grids) / statistics.median(floats), min(grids) / min(floats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--values", type=int, default=400_000, help="noisy values made in a round")
    arguments = parser.parse_args()
    print("noise      size   sigma   grid / float (median)   (fastest)")
    for noise in Noise:
        for size in SIZES:
            for sigma in SIGMAS:
                median, fastest = ratio(noise, size=size, sigma=sigma, values=arguments.values, rounds=arguments.rounds)
                print(f"{noise:9s} {size:5d} {sigma:7.2f} {median:23.2f} {fastest:11.2f}", flush=True)


if __name__ == "__main__":
    main()
