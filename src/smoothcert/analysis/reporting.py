"""From runs on disk to a printed table: the whole of what `smoothcert table` does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smoothcert.analysis.metrics import (
    GoldComparison,
    class_accuracy,
    common_inputs,
    compare_with_gold,
    same_inputs,
)
from smoothcert.analysis.options import BoundChoice, TableFormat
from smoothcert.analysis.summary import RunSummary, default_radii, parse_radii, summarise, summarise_envelope
from smoothcert.analysis.tables import class_table, gold_table, render, summary_table
from smoothcert.errors import InputError, RunError
from smoothcert.runs.load import load_all, load_results
from smoothcert.runs.results import Results


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What to print. radii: as typed, None to choose from the data. classes and gold print other tables instead."""

    runs: tuple[Path, ...]
    radii: str | None = None
    form: TableFormat = TableFormat.TEXT
    digits: int | None = None
    bound: BoundChoice | None = None
    classes: bool = False
    envelope: bool = False
    gold: Path | None = None
    common: bool = False


def results_table(request: TableRequest, *, width: int | None = None) -> str:
    """The table asked for, as text without a final newline.

    JSON is always the list of run summaries, each with `classes` and `gold` added when those were asked for.
    """
    return table_of(load_all(request.runs), request, width=width)


def table_of(runs: Sequence[Results], request: TableRequest, *, width: int | None = None) -> str:
    """`results_table` for runs that are already loaded."""
    if request.common:
        runs = common_inputs(runs)
    gold = None if request.gold is None else load_results(request.gold)
    comparisons = {} if gold is None else {run.name: compare_with_gold(run, gold) for run in runs}
    if request.form is TableFormat.JSON:
        return _as_json(request, runs, comparisons)
    if gold is not None:
        return render(gold_table(comparisons, gold=gold.name), form=request.form, digits=request.digits, width=width)
    if request.classes:
        radius = _class_radius(request)
        for run in runs:
            if run.says_nothing_of(radius):
                raise RunError(
                    f"{run.name} says nothing of radius {radius:g}: the largest it decided is {run.asked[-1]:g}"
                )
        return render(class_table(runs, radius=radius), form=request.form, digits=request.digits, width=width)
    table = summary_table(
        _summaries(request, runs), notes=table_notes(runs, radii=_radii(request, runs), bound=request.bound)
    )
    return render(table, form=request.form, digits=request.digits, width=width)


def _radii(request: TableRequest, runs: Sequence[Results]) -> dict[str, float]:
    return default_radii(runs) if request.radii is None else parse_radii(request.radii)


def _summaries(request: TableRequest, runs: Sequence[Results]) -> list[RunSummary]:
    radii = _radii(request, runs)
    summaries = [summarise(run, radii=radii, bound=request.bound) for run in runs]
    if request.envelope:
        if any(not run.has_radius for run in runs):
            raise RunError("an envelope needs radii, and one of the runs holds predictions only: leave it out")
        summaries.append(summarise_envelope(runs, radii=radii, bound=request.bound))
    return summaries


def _as_json(request: TableRequest, runs: Sequence[Results], comparisons: dict[str, GoldComparison]) -> str:
    documents: list[dict[str, Any]] = [summary.to_json() for summary in _summaries(request, runs)]
    # The envelope, if asked for, is the last document and belongs to no single run.
    for document, run in zip(documents, runs, strict=False):
        if request.classes:
            found = class_accuracy(run, radius=_class_radius(request))
            accuracies = dict(zip(map(str, found.classes.tolist()), found.accuracy.tolist(), strict=True))
            document |= {"classes": accuracies, "class_spread": found.spread}
        if run.name in comparisons:
            document["gold"] = asdict(comparisons[run.name])
        if request.bound is not None:
            used_alpha = run.alpha if request.bound.alpha is None else request.bound.alpha
            document["bound"] = {
                "method": request.bound.method.value,
                "rho": request.bound.rho,
                "alpha": used_alpha,
            }
    return json.dumps(documents, indent=1, allow_nan=False, ensure_ascii=False)


def _class_radius(request: TableRequest) -> float:
    """The one radius a class-wise table is about."""
    radii = list(parse_radii(request.radii or "0").values())
    if len(radii) > 1:
        raise InputError("accuracy by class is shown at one radius: give --radii a single number, or leave it out")
    return radii[0]


def _undecided(run: Results, radii: Mapping[str, float]) -> list[str]:
    """About figures that are only lower bounds, because the radius was not asked about."""
    between = [text for text, radius in radii.items() if radius < max(run.asked, default=0.0)]
    open_radii = [text for text in between if radii[text] not in run.asked]
    if not open_radii:
        return []
    return [f"{run.name}: r={', '.join(open_radii)} not decided: the figure is that of the next radius that was."]


def table_notes(runs: Sequence[Results], *, radii: Mapping[str, float], bound: BoundChoice | None) -> list[str]:
    """The sentences below a table of these runs at these radii."""
    notes = [note for run in runs for note in run.notes]
    notes += [note for run in runs for note in _undecided(run, radii)]
    if bound is not None:
        notes.append(
            f"≥: lower bound on the true certified accuracy of these inputs, wrong with probability at most "
            f"{bound.rho:g} at each radius ({bound.method.value})."
        )
    if not same_inputs(runs):
        notes.append("The runs cover different inputs; --common compares them on those they share.")
    return list(dict.fromkeys(notes))
