"""Fitting a nearest-neighbour rule for sigma to a dataset: what is not given is proposed from the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from smoothcert.certificates import gaussian_radius
from smoothcert.data import Dataset
from smoothcert.errors import InputError
from smoothcert.records import InputArray
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.over_data import evenly_spread
from smoothcert.sigma.proposal import (
    LadderStep,
    NeighbourStatistics,
    OffsetChoice,
    neighbour_statistics,
    propose_k,
    propose_offset,
    usable_ladder,
)
from smoothcert.sigma.sigma_planning import fastest_rate

MOST_PROVABLE = 0.001 ** (1 / 100000)
"""The lower bound that 100000 votes out of 100000 give at alpha 0.001."""
Done = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class KnnSettings:
    """What a person asks for; None is proposed from the data.

    loss: share of the largest radius that may be given up for a σ that varies, where the rate is proposed.
    most_points: fit on at most this many inputs, evenly spread.
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
            raise InputError(f"loss {self.loss} must lie in (0, 1): 0.05 gives up a twentieth of the radius")
        if self.most_points is not None and self.most_points < 1:
            raise InputError(f"{self.most_points} points are none to measure distances to; give at least 1")


@dataclass(frozen=True, slots=True)
class FittedSigma:
    """A rule, why it has the parameters it has, and what it was fitted on.

    ladder: the numbers of neighbours that were compared; empty if k was given. data: plain JSON.
    """

    rule: KnnSigma
    reasons: Mapping[str, str]
    ladder: tuple[LadderStep, ...]
    data: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        """Plain JSON for the file of the rule."""
        ladder = [{"k": step.k, "stability": step.stability, "scatter": step.scatter} for step in self.ladder]
        return {**self.data, "reasons": dict(self.reasons), "ladder": ladder}


def fit_knn(dataset: Dataset, settings: KnnSettings, *, progress: Done | None = None) -> FittedSigma:
    """Fit on the inputs of `dataset`, which should be the training split, as they are.

    progress hears (sampled inputs done, all of them) where something is proposed from distances.
    """
    points = dataset.inputs(evenly_spread(len(dataset), most=settings.most_points))
    reasons: dict[str, str] = {}
    statistics = _statistics(points, settings, progress)
    k, ladder = _chosen_k(settings, statistics, len(points), reasons)
    offset = _chosen_offset(settings, statistics, k, reasons)
    rate = _chosen_rate(settings, math.prod(dataset.input_shape), reasons)
    rule = KnnSigma(
        points=points, base_sigma=settings.base_sigma, rate=rate, k=k, offset=offset, most=settings.most
    )  # fmt: skip
    data = {"dataset": dataset.name, "split": dataset.split, "data": dataset.digest}
    return FittedSigma(rule=rule, reasons=reasons, ladder=ladder, data=data)


def proposed_rate(*, sigma: float, dimension: int, loss: float, p_a: float = MOST_PROVABLE) -> float:
    """The largest rate, to two digits rounded down, that costs at most this share of the radius at p_a.

    The radius is that of the envelope certificate for a rate-semi-elastic σ, against that of a constant σ, at an input
    with this σ. An input with a larger one loses more.
    """
    wanted = (1.0 - loss) * float(gaussian_radius(p_a, sigma=sigma))
    return _two_digits_down(fastest_rate(dimension=dimension, sigma=sigma, p_a=p_a, radius=wanted))


def _two_digits_down(value: float) -> float:
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / unit) * unit:.2g}")


def _statistics(points: InputArray, settings: KnnSettings, progress: Done | None) -> NeighbourStatistics | None:
    """Distances among the points, as far as anything is to be proposed from them."""
    wanted = [] if settings.k is None else [settings.k]
    if settings.k is None:
        wanted += usable_ladder(len(points))
    elif not isinstance(settings.offset, OffsetChoice):
        return None
    return neighbour_statistics(points, most_neighbours=max(wanted), progress=progress)


def _chosen_k(
    settings: KnnSettings, statistics: NeighbourStatistics | None, points: int, reasons: dict[str, str]
) -> tuple[int, tuple[LadderStep, ...]]:
    if settings.k is not None:
        reasons["k"] = "given"
        return settings.k, ()
    assert statistics is not None
    ladder = tuple(statistics.step(k) for k in usable_ladder(points))
    chosen = propose_k(ladder)
    step = next(step for step in ladder if step.k == chosen)
    reasons["k"] = (
        f"two halves of the data agree on the mean distance with correlation {step.stability:.3f}, "
        f"and it scatters by {step.scatter:.0%} (at most {max(step.scatter for step in ladder):.0%} for any k)"
    )
    return chosen, ladder


def _chosen_offset(
    settings: KnnSettings, statistics: NeighbourStatistics | None, k: int, reasons: dict[str, str]
) -> float:
    if not isinstance(settings.offset, OffsetChoice):
        reasons["offset"] = "given"
        return settings.offset
    assert statistics is not None
    reasons["offset"] = {
        OffsetChoice.LOWEST: "one input in a hundred is nearer than this: the smallest sigma is about its base value",
        OffsetChoice.MEAN: "the average over inputs: the average sigma is about its base value",
    }[settings.offset]
    return propose_offset(statistics.mean_distances(k), settings.offset)


def _chosen_rate(settings: KnnSettings, dimension: int, reasons: dict[str, str]) -> float:
    if settings.rate is not None:
        reasons["rate"] = "given"
        return settings.rate
    reasons["rate"] = (
        f"the largest that costs at most {settings.loss:.0%} of the radius that 100000 votes can prove "
        f"in dimension {dimension} at sigma {settings.base_sigma:g}"
    )
    return proposed_rate(sigma=settings.base_sigma, dimension=dimension, loss=settings.loss)
