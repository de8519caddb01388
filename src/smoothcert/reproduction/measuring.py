"""Reading the numbers of a row off its runs: the same numbers that `table --json` and `compare --json` give."""

from __future__ import annotations

from dataclasses import dataclass

from smoothcert.analysis.comparison import compare, summarise_comparison
from smoothcert.analysis.metrics import class_accuracy, compare_with_gold
from smoothcert.analysis.summary import summarise
from smoothcert.reproduction.directory import Reproduction
from smoothcert.reproduction.plan import PlannedRow
from smoothcert.reproduction.recipe import PublishedNumber
from smoothcert.runs.load import load_results
from smoothcert.runs.results import Results


@dataclass(frozen=True, slots=True)
class Measured:
    """One published number and ours. points: inputs measured on. n: samples an input, where the result says it."""

    row: PlannedRow
    number: PublishedNumber
    ours: float | None
    points: int
    n: str | None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where there are both."""
        if self.ours is None or self.number.value is None:
            return None
        return self.ours - self.number.value


def measure(reproduction: Reproduction, row: PlannedRow) -> list[Measured]:
    """All numbers of a finished row."""
    result = load_results(reproduction.path_of_result(row.result, row.certificate))
    other = None if row.against is None else load_results(reproduction.path_of_result(row.against))
    n = result.settings.get("n")
    return [
        Measured(row=row, number=number, ours=_value(number, result, other), points=len(result), n=n)
        for number in row.published
    ]


def _value(number: PublishedNumber, result: Results, other: Results | None) -> float | None:
    radius = 0.0 if number.radius is None else number.radius
    text = f"{radius:g}"
    if other is not None and (compared := _against(number.measure, result, other)) is not None:
        return compared
    match number.measure:
        case "certified":
            return summarise(result, radii={text: radius}).certified_accuracy[text]
        case "class_spread":
            return class_accuracy(result).spread
        case "largest_radius":
            return float(result.radius[result.correct].max(initial=0.0))
    found: float | None = getattr(summarise(result, radii={"0": 0.0}), number.measure)
    return found


def _against(measure: str, result: Results, other: Results) -> float | None:
    """A measure that sets two results beside each other; None for one that does not."""
    match measure:
        case "radius_ratio":
            return summarise_comparison(compare(result, other)).ratio_mean
        case "acr_ratio":
            ours, theirs = (summarise(one, radii={"0": 0.0}).acr for one in (result, other))
            return None if ours is None or not theirs else ours / theirs
        case "time_ratio":
            ours, theirs = float(result.seconds.mean()), float(other.seconds.mean())
            return ours / theirs if theirs > 0 else None
        case "correct_accurate" | "correct_inaccurate" | "incorrect_accurate" | "incorrect_inaccurate" | "abstain":
            found: float = getattr(compare_with_gold(result, other), measure)
            return found
    return None
