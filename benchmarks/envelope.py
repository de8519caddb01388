"""What certificates for a sigma that varies cost, and whether a sweep of a million points finds one that is not sane.

python benchmarks/envelope.py

First the time of 10000 radii at several dimensions, one class and two, with Cohen's radius of the same run as the
yardstick. Then radii for a million random points: dimension 1 … 200000, sigma, p_a, rates, floors and slacks over many
orders of magnitude, counting what is NaN, infinite, negative, or above the radius for a constant sigma. Times are those
of the processor, which other work on the machine does not stretch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from smoothcert.certificates import gaussian_radius
from smoothcert.certificates.envelope import envelope_radius, envelope_two_class_radius
from smoothcert.records import FloatArray
from smoothcert.records.envelopes import Envelope, LipschitzSigma, SemiElastic, Widened

INPUTS, TWO_CLASS_INPUTS, ROUNDS = 10_000, 1_000, 3
DIMENSIONS = (784, 3_072, 150_528)
POINTS, CHUNK = 1_000_000, 2_000


def best(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def time_radii() -> None:
    generator = np.random.default_rng(0)
    p_a = generator.uniform(0.5, 0.9999, INPUTS)
    p_b = (1.0 - p_a) * generator.uniform(0.01, 1.0, INPUTS)
    sigma = generator.uniform(0.1, 1.0, INPUTS)
    yardstick = best(lambda: gaussian_radius(p_a, sigma=sigma))
    some = slice(TWO_CLASS_INPUTS)
    print(f"{INPUTS} radii, best of {ROUNDS}; constant sigma: {yardstick:.4f}s\n")
    print(f"{'dimension':>9}  {'one bound':>9}  / constant  two bounds (for {TWO_CLASS_INPUTS}, once)")
    for dimension in DIMENSIONS:
        envelope = SemiElastic(0.05)
        one = best(lambda: envelope_radius(p_a, sigma=sigma, dimension=dimension, envelope=envelope))  # noqa: B023
        two = best(
            lambda: envelope_two_class_radius(
                p_a[some],
                p_b[some],
                sigma=sigma[some],
                dimension=dimension,  # noqa: B023
                envelope=envelope,  # noqa: B023
            ),
            rounds=1,
        )
        print(f"{dimension:9}  {one:8.3f}s  {one / yardstick:10.0f}  {two:8.3f}s")


def random_envelope(generator: np.random.Generator, dimension: int, sigma: FloatArray) -> Envelope:
    """Rates from far too small to matter to far too large to certify, for this dimension."""
    slope = float(10.0 ** generator.uniform(-6, 2) / np.sqrt(dimension))
    kind = generator.integers(3)
    if kind == 0:
        return SemiElastic(slope)
    if kind == 1:
        return LipschitzSigma(constant=slope, floor=float(sigma.min() * generator.choice([1.0, 0.9, 0.1])))
    return Widened(SemiElastic(slope), slack=float(10.0 ** generator.uniform(-12, -1)))


def random_probabilities(generator: np.random.Generator) -> FloatArray:
    """Near ½, in between, and near 1."""
    power = 10.0 ** generator.uniform(-16, -0.31, CHUNK)
    return np.where(generator.random(CHUNK) < 0.3, 0.5 + power, 1.0 - power)


def sweep() -> None:
    generator = np.random.default_rng(1)
    counts = dict.fromkeys(("nan", "infinite", "negative", "above constant", "zero"), 0)
    began = time.process_time()
    for _ in range(POINTS // CHUNK):
        dimension = int(np.exp(generator.uniform(0.0, np.log(200_001))))
        sigma = 10.0 ** generator.uniform(-4, 4) * 10.0 ** generator.uniform(-1, 1, CHUNK)
        p_a = random_probabilities(generator)
        envelope = random_envelope(generator, dimension, sigma)
        radius = envelope_radius(p_a, sigma=sigma, dimension=dimension, envelope=envelope)
        counts["nan"] += int(np.isnan(radius).sum())
        counts["infinite"] += int(np.isinf(radius).sum())
        counts["negative"] += int((radius < 0).sum())
        counts["above constant"] += int((radius > gaussian_radius(p_a, sigma=sigma)).sum())
        counts["zero"] += int((radius == 0).sum())
    seconds = time.process_time() - began
    print(f"\n{POINTS} random points in {seconds:.1f}s: " + ", ".join(f"{n} {name}" for name, n in counts.items()))


def main() -> None:
    time_radii()
    sweep()


if __name__ == "__main__":
    main()
