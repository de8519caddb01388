"""Choosing the number of neighbours and the offset of a nearest-neighbour rule from the data (Súkeník et al., E.1).

The paper asks for a k that is not too small, or the mean distance is noisy, and not too large, or it hardly changes
with the input; and looks at histograms. Here both are numbers. *Stability*: the correlation of the mean distance to the
k nearest points of one half of the data with that of the other half, over a sample of inputs. *Scatter*: the
coefficient of variation of the mean distance times the root of the stability: the part of the variation that is not
noise.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, InputArray
from smoothcert.sigma.neighbours import NeighbourIndex

LADDER = (1, 2, 5, 10, 20, 50, 100)
STABLE = 0.99
SCATTERED = 0.8
_LOWEST_QUANTILE = 0.01
_SAMPLE = 2000
_CHUNK = 250


class OffsetChoice(enum.StrEnum):
    """What distance σ should be its base value at."""

    LOWEST = "lowest"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class LadderStep:
    """How good k neighbours are: stability at most 1, scatter not negative (see above)."""

    k: int
    stability: float
    scatter: float


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourStatistics:
    """Distances of a sample of points to all *other* points, as an input that is not among the points would see them.

    distances: (sample, largest k), the nearest first. first, second: the same to the points of either half alone.
    """

    distances: FloatArray
    first: FloatArray
    second: FloatArray

    def mean_distances(self, k: int) -> FloatArray:
        """Mean distance of every sampled point to its k nearest others."""
        return np.asarray(self.distances[:, :k].mean(axis=1))

    def step(self, k: int) -> LadderStep:
        means = self.mean_distances(k)
        stability = _correlation(self.first[:, :k].mean(axis=1), self.second[:, :k].mean(axis=1))
        variation = float(means.std() / means.mean()) if means.mean() > 0 else 0.0
        return LadderStep(k=k, stability=stability, scatter=variation * math.sqrt(max(stability, 0.0)))


def neighbour_statistics(
    points: InputArray, *, most_neighbours: int, progress: Callable[[int, int], None] | None = None
) -> NeighbourStatistics:
    """Distances among the points, for a sample of at most 2000 of them; the same numbers every time.

    points: (n, *input_shape) float32, n > most_neighbours. progress hears (sampled points done, all of them).
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
            part.append(_to_others(index, points[chosen], np.isin(chosen, half), most_neighbours))
        if progress is not None:
            progress(start + len(chosen), len(sample))
    first, second = (np.concatenate(part) for part in parts)
    merged = np.sort(np.concatenate([first, second], axis=1), axis=1)[:, :most_neighbours]
    return NeighbourStatistics(distances=merged, first=first, second=second)


def usable_ladder(points: int, ladder: Sequence[int] = LADDER) -> tuple[int, ...]:
    """The steps for which both halves of so many points hold k others."""
    usable = tuple(k for k in ladder if k < points // 2)
    if not usable:
        raise InputError(f"{points} points are too few to propose a number of neighbours from: give k")
    return usable


def propose_k(steps: Sequence[LadderStep]) -> int:
    """The smallest k that is stable (0.99) and keeps the scatter (four fifths of the largest on the ladder).

    Where no k is both, the largest that keeps the scatter.
    """
    enough = SCATTERED * max(step.scatter for step in steps)
    scattered = [step for step in steps if step.scatter >= enough]
    stable = [step.k for step in scattered if step.stability >= STABLE]
    return min(stable) if stable else max(step.k for step in scattered)


def propose_offset(mean_distances: FloatArray, choice: OffsetChoice) -> float:
    """The offset m, to three digits. mean_distances: of inputs that are not among the points.

    LOWEST: the 1% quantile, so that σ is its base value for the nearest inputs and more for the others. MEAN: the mean,
    so that σ is its base value on average.
    """
    match choice:
        case OffsetChoice.LOWEST:
            value = float(np.quantile(mean_distances, _LOWEST_QUANTILE))
        case OffsetChoice.MEAN:
            value = float(mean_distances.mean())
    return float(f"{value:.3g}")


def _to_others(index: NeighbourIndex, inputs: InputArray, inside: NDArray[np.bool_], k: int) -> FloatArray:
    """Distances to the k nearest points other than the input itself; infinite where there are fewer.

    inside: (m,), which inputs are among the points.
    """
    nearest = np.full((len(inputs), k + 1), np.inf)
    there = min(k + 1, len(index))
    nearest[:, :there] = index.distances(inputs, k=there)
    # An input that is among the points is its own nearest, at distance 0.
    nearest[inside, :-1] = nearest[inside, 1:]
    return nearest[:, :k]


def _correlation(first: FloatArray, second: FloatArray) -> float:
    if not (first.std() > 0 and second.std() > 0):
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])
