"""Measures of finished rows, computed as `table --json` and `compare --json` compute them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from experiments.reproduction.directory import Reproduction
from experiments.reproduction.plan import PlannedRow, Step
from experiments.reproduction.recipe import PublishedNumber
from smoothcert.analysis.comparison import compare, summarise_comparison
from smoothcert.analysis.metrics import class_accuracy, compare_with_gold
from smoothcert.analysis.summary import summarise
from smoothcert.runs.load import load_results
from smoothcert.runs.result_columns import ResultColumns


@dataclass(frozen=True, slots=True)
class Measurement:
    """A published number and ours. points: inputs measured. n: samples per input, None if the result omits it."""

    row: PlannedRow
    number: PublishedNumber
    ours: float | None
    points: int
    n: str | None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's; None if either is missing."""
        if self.ours is None or self.number.value is None:
            return None
        return self.ours - self.number.value


class Holder(Protocol):
    """What holds the results of steps: a reproduction, or kept results."""

    def result_path(self, step: Step, certificate: str | None = None) -> Path: ...


def measure(holder: Holder, row: PlannedRow) -> list[Measurement]:
    """Compute all numbers of a finished row."""
    result = load_results(holder.result_path(row.result, row.certificate))
    other = None if row.against is None else load_results(holder.result_path(row.against))
    n = result.settings.get("n")
    return [
        Measurement(row=row, number=number, ours=_compute(number, result, other), points=len(result), n=n)
        for number in row.published
    ]


def measure_finished_rows(reproduction: Reproduction) -> list[Measurement]:
    """Compute the numbers of all finished rows."""
    rows = [row for row in reproduction.plan.rows if reproduction.is_finished(row)]
    return [measurement for row in rows for measurement in measure(reproduction, row)]


def _compute(number: PublishedNumber, result: ResultColumns, other: ResultColumns | None) -> float | None:
    radius = 0.0 if number.radius is None else number.radius
    text = f"{radius:g}"
    if other is not None and (compared := _compute_comparison(number.measure, result, other)) is not None:
        return compared
    match number.measure:
        case "certified":
            return summarise(result, radii={text: radius}).certified_accuracy[text]
        case "class_spread":
            return class_accuracy(result).spread
        case "largest_radius":
            return float(result.radius[result.correct].max(initial=0.0))
    value: float | None = getattr(summarise(result, radii={"0": 0.0}), number.measure)
    return value


def _compute_comparison(measure: str, result: ResultColumns, other: ResultColumns) -> float | None:
    """Compute a measure of two results; None if the measure takes one result."""
    match measure:
        case "radius_ratio":
            return summarise_comparison(compare(result, other)).ratio_mean
        case "acr_ratio":
            ours, theirs = (summarise(results, radii={"0": 0.0}).acr for results in (result, other))
            return None if ours is None or not theirs else ours / theirs
        case "time_ratio":
            ours, theirs = float(result.seconds.mean()), float(other.seconds.mean())
            return ours / theirs if theirs > 0 else None
        case "correct_accurate" | "correct_inaccurate" | "incorrect_accurate" | "incorrect_inaccurate" | "abstain":
            value: float = getattr(compare_with_gold(result, other), measure)
            return value
    return None
