"""Fitting a nearest-neighbour rule for sigma to a dataset (Súkeník et al., appendix E.1).

Omitted parameters are proposed from the data. The paper chooses k from histograms: not too small, or the mean distance
is noisy; not too large, or it hardly changes with the input. Here both are numbers. *Stability* is the correlation,
over a sample of inputs, between the mean distances to the k nearest points of two halves of the data. *Scatter* is the
coefficient of variation of the mean distance times the root of the stability: the variation that is not noise.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.certificates import gaussian_radius
from smoothcert.data import Dataset
from smoothcert.errors import InputError
from smoothcert.records import FloatArray, InputArray
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.neighbours import NeighbourIndex
from smoothcert.sigma.over_data import Done, spread_evenly
from smoothcert.sigma.sigma_planning import fastest_rate

MOST_PROVABLE = 0.001 ** (1 / 100000)
"""The lower bound that 100000 votes out of 100000 give at alpha 0.001."""
LADDER = (1, 2, 5, 10, 20, 50, 100)
STABLE = 0.99
SCATTERED = 0.8
_LOWEST_QUANTILE = 0.01
_SAMPLE = 2000
_CHUNK = 250


class OffsetChoice(enum.StrEnum):
    """The distance at which σ has its base value."""

    LOWEST = "lowest"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class KnnSettings:
    """Settings of a fit. None: proposed from the data.

    loss: the share of the largest radius that a proposed rate may cost. most_points: fit on at most this many inputs,
    evenly spread.
    """

    base_sigma: float
    k: int | None = None
    rate: float | None = None
    offset: float | OffsetChoice = OffsetChoice.LOWEST
    most: float | None = None
    loss: float = 0.05
    most_points: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.loss < 1:
            raise InputError(f"loss {self.loss} must lie in (0, 1): 0.05 costs a twentieth of the radius")
        if self.most_points is not None and self.most_points < 1:
            raise InputError(f"the number of points must be at least 1; got {self.most_points}")


@dataclass(frozen=True, slots=True)
class LadderStep:
    """How good k neighbours are: stability ≤ 1, scatter ≥ 0 (see the module)."""

    k: int
    stability: float
    scatter: float


@dataclass(frozen=True, slots=True)
class FittedSigma:
    """A fitted rule, the reasons for its parameters, and the data.

    ladder: the numbers of neighbours that were compared; empty if k was given. data: plain JSON.
    """

    rule: KnnSigma
    reasons: Mapping[str, str]
    ladder: tuple[LadderStep, ...]
    data: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        """Plain JSON for the file of the rule."""
        return {**self.data, "reasons": dict(self.reasons), "ladder": [asdict(step) for step in self.ladder]}


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourStatistics:
    """Distances of a sample of points to all *other* points, as for an input that is not among the points.

    distances: (sample, largest k), the nearest first. first, second: the same for the points of each half.
    """

    distances: FloatArray
    first: FloatArray
    second: FloatArray

    def mean_distances(self, k: int) -> FloatArray:
        """The mean distance of every sampled point to its k nearest others."""
        return np.asarray(self.distances[:, :k].mean(axis=1))

    def step(self, k: int) -> LadderStep:
        means = self.mean_distances(k)
        stability = _correlate(self.first[:, :k].mean(axis=1), self.second[:, :k].mean(axis=1))
        variation = float(means.std() / means.mean()) if means.mean() > 0 else 0.0
        return LadderStep(k=k, stability=stability, scatter=variation * math.sqrt(max(stability, 0.0)))


def fit_knn(dataset: Dataset, settings: KnnSettings, *, progress: Done | None = None) -> FittedSigma:
    """Fit a rule on the inputs of `dataset`, which should be the training split without augmentation.

    progress: called with (sampled inputs done, in total) while distances are computed for a proposal.
    """
    points = dataset.inputs(spread_evenly(len(dataset), most=settings.most_points))
    reasons = {"k": "given", "offset": "given", "rate": "given"}
    k, offset = settings.k, settings.offset
    ladder: tuple[LadderStep, ...] = ()
    if k is None or isinstance(offset, OffsetChoice):
        largest = max(select_ladder(len(points))) if k is None else k
        statistics = measure_neighbours(points, most_neighbours=largest, progress=progress)
        if k is None:
            ladder = tuple(statistics.step(k) for k in select_ladder(len(points)))
            k = propose_k(ladder)
            reasons["k"] = _explain_k(k, ladder)
        if isinstance(offset, OffsetChoice):
            reasons["offset"] = _explain_offset(offset)
            offset = propose_offset(statistics.mean_distances(k), offset)
    rate = settings.rate
    if rate is None:
        dimension = math.prod(dataset.input_shape)
        rate = propose_rate(sigma=settings.base_sigma, dimension=dimension, loss=settings.loss)
        reasons["rate"] = (
            f"the largest that costs at most {settings.loss:.0%} of the radius that 100000 votes can prove "
            f"in dimension {dimension} at sigma {settings.base_sigma:g}"
        )
    rule = KnnSigma(points=points, base_sigma=settings.base_sigma, rate=rate, k=k, offset=offset, most=settings.most)
    data = {"dataset": dataset.name, "split": dataset.split, "data": dataset.digest}
    return FittedSigma(rule=rule, reasons=reasons, ladder=ladder, data=data)


def _explain_k(k: int, ladder: Sequence[LadderStep]) -> str:
    chosen = next(step for step in ladder if step.k == k)
    return (
        f"two halves of the data agree on the mean distance with correlation {chosen.stability:.3f}, "
        f"and it scatters by {chosen.scatter:.0%} (at most {max(step.scatter for step in ladder):.0%} for any k)"
    )


def _explain_offset(choice: OffsetChoice) -> str:
    match choice:
        case OffsetChoice.LOWEST:
            return "one input in a hundred is nearer than this: the smallest sigma is about its base value"
        case OffsetChoice.MEAN:
            return "the average over inputs: the average sigma is about its base value"


def propose_rate(*, sigma: float, dimension: int, loss: float, p_a: float = MOST_PROVABLE) -> float:
    """Return the largest rate, rounded down to two digits, that costs at most this share of the radius at p_a.

    Compares the radius of the envelope certificate for a rate-semi-elastic σ with that of a constant σ, at an input
    with this σ. An input with a larger σ loses more.
    """
    wanted = (1.0 - loss) * float(gaussian_radius(p_a, sigma=sigma))
    value = fastest_rate(dimension=dimension, sigma=sigma, p_a=p_a, radius=wanted)
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / unit) * unit:.2g}")


def measure_neighbours(
    points: InputArray, *, most_neighbours: int, progress: Done | None = None
) -> NeighbourStatistics:
    """Compute distances among the points for a sample of at most 2000 of them. Deterministic.

    points: (n, *input_shape) float32, n > most_neighbours. progress: called with (sampled points done, in total).
    """
    n = len(points)
    if not 1 <= most_neighbours < n:
        raise InputError(
            f"{n} points have no {most_neighbours} nearest others each: give a smaller k, or the offset as a number"
        )
    generator = np.random.default_rng(0)
    order = generator.permutation(n)
    halves = order[: n // 2], order[n // 2 :]
    sample = generator.permutation(n)[:_SAMPLE]
    indices = [NeighbourIndex(points[half]) for half in halves]
    parts = [[np.empty((0, most_neighbours))] for _ in halves]
    for start in range(0, len(sample), _CHUNK):
        chosen = sample[start : start + _CHUNK]
        for part, index, half in zip(parts, indices, halves, strict=True):
            part.append(_measure_others(index, points[chosen], np.isin(chosen, half), most_neighbours))
        if progress is not None:
            progress(start + len(chosen), len(sample))
    first, second = (np.concatenate(part) for part in parts)
    merged = np.sort(np.concatenate([first, second], axis=1), axis=1)[:, :most_neighbours]
    return NeighbourStatistics(distances=merged, first=first, second=second)


def select_ladder(points: int, ladder: Sequence[int] = LADDER) -> tuple[int, ...]:
    """The steps k such that each half of this many points has k others."""
    usable = tuple(k for k in ladder if k < points // 2)
    if not usable:
        raise InputError(f"{points} points are too few to propose a number of neighbours from: give k")
    return usable


def propose_k(steps: Sequence[LadderStep]) -> int:
    """Return the smallest k that is stable (≥ 0.99) and keeps the scatter (≥ 0.8 of the largest one).

    If no k is both, return the largest that keeps the scatter.
    """
    enough = SCATTERED * max(step.scatter for step in steps)
    scattered = [step for step in steps if step.scatter >= enough]
    stable = [step.k for step in scattered if step.stability >= STABLE]
    return min(stable) if stable else max(step.k for step in scattered)


def propose_offset(mean_distances: FloatArray, choice: OffsetChoice) -> float:
    """Return the offset, rounded to three digits. mean_distances: of inputs that are not among the points.

    LOWEST: the 1% quantile, so that σ has its base value for the nearest inputs and is larger for others. MEAN: the
    mean, so that σ has its base value on average.
    """
    match choice:
        case OffsetChoice.LOWEST:
            value = float(np.quantile(mean_distances, _LOWEST_QUANTILE))
        case OffsetChoice.MEAN:
            value = float(mean_distances.mean())
    return float(f"{value:.3g}")


def _measure_others(index: NeighbourIndex, inputs: InputArray, inside: NDArray[np.bool_], k: int) -> FloatArray:
    """Distances to the k nearest points other than the input itself; inf if there are fewer.

    inside: (m,), which inputs are among the points.
    """
    nearest = np.full((len(inputs), k + 1), np.inf)
    available = min(k + 1, len(index))
    nearest[:, :available] = index.distances(inputs, k=available)
    # An input that is among the points is its own nearest neighbour, at distance 0.
    nearest[inside, :-1] = nearest[inside, 1:]
    return nearest[:, :k]


def _correlate(first: FloatArray, second: FloatArray) -> float:
    if not (first.std() > 0 and second.std() > 0):
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])
