"""How sure a run is of its inputs: the distribution of p_A beside the average certified radius.

ACR is a mean of radii, and a radius grows without limit as p_A approaches 1. So a run that gives up hard inputs and
becomes surer of easy ones can win on ACR. The distribution of p_A, and the certified accuracy at small radii, show it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.analysis import metrics
from smoothcert.analysis.notes import Note, NoteCode
from smoothcert.records import FloatArray
from smoothcert.runs.result_columns import ResultColumns

QUANTILES = {"0.1": 0.1, "0.25": 0.25, "0.5": 0.5, "0.75": 0.75, "0.9": 0.9}
THRESHOLDS = {"0.9": 0.9, "0.99": 0.99, "0.999": 0.999}
_SMALL_RADII = 8
"""The number of radii, equally spaced from 0 to the smaller ACR, at which two runs are compared."""


@dataclass(frozen=True, slots=True)
class PADistribution:
    """The distribution of p_A over all inputs of a run. An input that is not answered correctly counts as 0.

    Where there are no labels, every certified class counts. quantiles: by share q, the value that a share of at least
    1-q of the inputs reaches. share_at_least: by threshold, the share of the inputs with at least this p_A.
    """

    quantiles: Mapping[str, float]
    share_at_least: Mapping[str, float]


def summarise_p_a(results: ResultColumns) -> PADistribution | None:
    """None if the run has no p_A for an input that counts: its certificate bounds something else, or a log lacks it."""
    values = _credited_p_a(results)
    if values is None:
        return None
    found = np.quantile(values, list(QUANTILES.values()), method="inverted_cdf")
    return PADistribution(
        quantiles=dict(zip(QUANTILES, found.tolist(), strict=True)),
        share_at_least={text: float((values >= value).mean()) for text, value in THRESHOLDS.items()},
    )


def _credited_p_a(results: ResultColumns) -> FloatArray | None:
    """p_A where an input counts, else 0; None if it is unknown for one that counts, or if no p_A is known."""
    counts = np.where(results.labelled, results.correct, results.decided)
    known = np.isfinite(results.p_a)
    if not known.any() or not known[counts].all():
        return None
    return np.asarray(np.where(counts, results.p_a, 0.0), dtype=np.float64)


def warn_of_acr(on_a: ResultColumns, on_b: ResultColumns) -> list[Note]:
    """A note if the run with the larger ACR certifies fewer inputs at a small radius. Both runs have the same inputs.

    Small radii are those up to the smaller of the two ACRs. The note has the radius where the winner loses most, the
    inputs that only one of the runs certifies there, and the probability that as large a difference arises by chance if
    each of these inputs could as well have been the other run's (the exact sign test).
    """
    if not all(run.labelled.all() for run in (on_a, on_b)):
        return []
    acrs = {"A": metrics.average_certified_radius(on_a), "B": metrics.average_certified_radius(on_b)}
    if acrs["A"] == acrs["B"]:
        return []
    winner, loser = ("A", "B") if acrs["A"] > acrs["B"] else ("B", "A")
    first, second = (on_a, on_b) if winner == "A" else (on_b, on_a)
    radii = [float(f"{acrs[loser] * k / _SMALL_RADII:.3g}") for k in range(_SMALL_RADII + 1)]
    losses = [_compare_at(first, second, radius) for radius in radii]
    worst = max(losses, key=lambda loss: loss["only_loser"] - loss["only_winner"])
    if worst["only_loser"] <= worst["only_winner"]:
        return []
    names: dict[str, Any] = {"winner": winner, "loser": loser, "acr_winner": acrs[winner], "acr_loser": acrs[loser]}
    probability = _chance_of(worst["only_loser"], worst["only_winner"])
    return [Note(NoteCode.ACR_MISLEADS, names | worst | {"probability": probability})]


def _compare_at(winner: ResultColumns, loser: ResultColumns, radius: float) -> dict[str, Any]:
    robust = [run.correct & (run.radius >= radius) for run in (winner, loser)]
    only_winner, only_loser = int((robust[0] & ~robust[1]).sum()), int((robust[1] & ~robust[0]).sum())
    return {
        "radius": radius,
        "accuracy_winner": float(robust[0].mean()),
        "accuracy_loser": float(robust[1].mean()),
        "only_winner": only_winner,
        "only_loser": only_loser,
    }


def _chance_of(more: int, fewer: int) -> float:
    """The probability of at least `more` heads in `more + fewer` throws of a fair coin."""
    throws = more + fewer
    ways: int = sum(math.comb(throws, heads) for heads in range(more, throws + 1))
    return ways / (1 << throws)
