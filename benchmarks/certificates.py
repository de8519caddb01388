"""How long the arithmetic of a certificate takes for 10000 inputs, without the model.

python benchmarks/certificates.py

`radius` is the theorem alone, from bounds to radii. `in all` begins at the tallies: class, bounds, radii and records.
The time of `gaussian` in the same run is the yardstick.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from smoothcert.certificates import CERTIFICATES, get_portfolio
from smoothcert.questions import Votes
from smoothcert.questions.fixed_n import FixedNInquiry
from smoothcert.records import AnyTally, GradientTally, PairTally, Smoothing, Stage, StreamId, Tally, TallyKind
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.statistics import prove

INPUTS, SAMPLES, DIMENSION, CLASSES, ROUNDS = 10_000, 100_000, 49, 10, 3
NAMES = (
    "gaussian",
    "gaussian-two-class",
    "dipole",
    "dipole-separate",
    "dipole-multi-class",
    "second-order",
    "second-order-pairs",
    "second-order-multi-class",
)


def tally(kind: TallyKind, index: int, generator: np.random.Generator) -> AnyTally:
    """Votes for ten classes, the first one winning, as a classifier with curved boundaries would cast them."""
    stream = StreamId(seed=0, index=index, stage=Stage.ESTIMATION)
    p = generator.uniform(0.5, 0.999)
    shares = np.append(p, generator.dirichlet(np.ones(CLASSES - 1)) * (1.0 - p))
    if kind is TallyKind.PAIRS:
        pairs = generator.multinomial(SAMPLES // 2, np.outer(shares, shares).ravel()).reshape(CLASSES, CLASSES)
        both = np.diag(pairs)
        counts = [np.append(row, 0) for row in (both, pairs.sum(axis=1) - both, pairs.sum(axis=0) - both)]
        return PairTally(stream, 0.25, *counts, ranges=((0, SAMPLES // 2),))
    votes = generator.multinomial(SAMPLES, shares)
    if kind is TallyKind.VOTES:
        return Tally(stream, 0.25, votes, invalid=0, ranges=((0, SAMPLES),))
    groups = CLASSES + 1
    spread = np.sqrt(np.append(votes, 0) / 2)[:, None] / GRADIENT_UNIT
    sums = (generator.normal(size=(2, groups, DIMENSION)) * spread).astype(np.int64)
    products = np.zeros(groups, dtype=np.int64)
    return GradientTally(stream, 0.25, votes, 0, np.arange(groups), sums, products, ranges=((0, SAMPLES),))


def best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def chosen_votes(inputs: int) -> list[Tally]:
    """Selections that all chose class 0."""
    votes = np.append(100, np.zeros(CLASSES - 1, dtype=np.int64))
    return [Tally(StreamId(0, index, Stage.SELECTION), 0.25, votes, 0, ((0, 100),)) for index in range(inputs)]


def statistics_seconds(name: str, *, inputs: int = INPUTS) -> float:
    """From tallies to certified points, without the model, for that many inputs."""
    generator = np.random.default_rng(0)
    portfolio, chosen = get_portfolio(name), chosen_votes(inputs)
    votes = [
        Votes(index, 0, chosen[index], (tally(portfolio.tally, index, generator),), 0.0) for index in range(inputs)
    ]
    inquiry = FixedNInquiry(portfolio, Smoothing(), n=SAMPLES, n0=100, alpha=0.001)
    return best(lambda: inquiry.answer(votes))


def main() -> None:
    generator = np.random.default_rng(0)
    kinds = {get_portfolio(name).tally for name in NAMES}
    tallies = {kind: [tally(kind, index, generator) for index in range(INPUTS)] for kind in kinds}
    chosen = chosen_votes(INPUTS)
    yardstick = None
    print(f"{INPUTS} inputs, n = {SAMPLES}, {CLASSES} classes, dimension {DIMENSION}; best of {ROUNDS}\n")
    print(f"{'certificate':24}  {'radius':>8}  {'in all':>8}  in all / gaussian")
    for name in NAMES:
        portfolio, certificate = get_portfolio(name), CERTIFICATES[name]
        sampled = tallies[portfolio.tally]
        proven = prove(sampled, [0] * INPUTS, certificate.proofs, alpha=0.001)
        values = {q: v for proof in certificate.proofs for q, v in proven.values[proof].items()}
        sigma = np.full(INPUTS, 0.25)
        votes = [Votes(i, 0, chosen[i], (sampled[i],), 0.0) for i in range(INPUTS)]
        theorem = best(lambda: certificate.radius(values, sigma=sigma, smoothing=Smoothing()))  # noqa: B023
        inquiry = FixedNInquiry(portfolio, Smoothing(), n=SAMPLES, n0=100, alpha=0.001)
        whole = best(lambda: inquiry.answer(votes))  # noqa: B023
        yardstick = yardstick or whole
        print(f"{name:24}  {theorem:7.3f}s  {whole:7.3f}s  {whole / yardstick:5.1f}")


if __name__ == "__main__":
    main()
