"""From runs on disk to a printed table: everything that `smoothcert table` does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smoothcert.analysis.answers import list_answers
from smoothcert.analysis.metrics import GoldComparison, class_accuracy, common_inputs, compare_with_gold, same_inputs
from smoothcert.analysis.notes import Note, NoteCode
from smoothcert.analysis.summary import RunSummary, default_radii, parse_radii, summarise, summarise_envelope
from smoothcert.analysis.table_choices import BoundChoice, TableFormat
from smoothcert.analysis.tables import class_table, gold_table, p_a_table, render, summary_table
from smoothcert.errors import InputError, RunError
from smoothcert.records.class_names import find_shared_names
from smoothcert.runs.load import load_all, load_results
from smoothcert.runs.result_columns import ResultColumns


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What to print. radii: as typed; None chooses them from the data. classes and gold replace the usual table.

    answers: list the answer for every input; in JSON only.
    """

    runs: tuple[Path, ...]
    radii: str | None = None
    form: TableFormat = TableFormat.TEXT
    digits: int | None = None
    bound: BoundChoice | None = None
    classes: bool = False
    envelope: bool = False
    gold: Path | None = None
    common: bool = False
    answers: bool = False


def format_results(request: TableRequest, *, width: int | None = None) -> str:
    """The requested table as text, without a final newline. JSON is always the list of run summaries.

    The JSON summaries also have `classes` and `gold` if those were requested.
    """
    return format_table(load_all(request.runs), request, width=width)


def format_table(runs: Sequence[ResultColumns], request: TableRequest, *, width: int | None = None) -> str:
    """`format_results` for runs that are already loaded."""
    if request.common:
        runs = common_inputs(runs)
    radii = default_radii(runs) if request.radii is None else parse_radii(request.radii)
    gold = None if request.gold is None else load_results(request.gold)
    comparisons = {} if gold is None else {run.name: compare_with_gold(run, gold) for run in runs}
    if request.form is TableFormat.JSON:
        return _print_json(request, runs, radii, comparisons)
    if gold is not None:
        table = gold_table(comparisons, gold=gold.name)
    elif request.classes:
        radius = _class_radius(request)
        for run in runs:
            if run.is_unknown_at(radius):
                raise RunError(f"{run.name} did not decide radius {radius:g}: its largest is {run.decided_radii[-1]:g}")
        table = class_table(runs, radius=radius, names=find_shared_names(run.class_names for run in runs))
    else:
        return _print_summaries(request, runs, radii, width=width)
    return render(table, form=request.form, digits=request.digits, width=width)


def _print_summaries(
    request: TableRequest, runs: Sequence[ResultColumns], radii: Mapping[str, float], *, width: int | None
) -> str:
    """The usual table, then the distribution of p_A; a CSV file has both in one row for each run."""
    summaries = _summarise_all(request, runs, radii)
    notes = table_notes(runs, radii=radii, bound=request.bound)
    is_csv = request.form is TableFormat.CSV
    tables = [summary_table(summaries, notes=notes, with_p_a=is_csv)]
    distributions = p_a_table({summary.run: summary.p_a for summary in summaries})
    shown = tables if is_csv or distributions is None else [*tables, distributions]
    return "\n\n".join(render(table, form=request.form, digits=request.digits, width=width) for table in shown)


def _summarise_all(
    request: TableRequest, runs: Sequence[ResultColumns], radii: Mapping[str, float]
) -> list[RunSummary]:
    summaries = [summarise(run, radii=radii, bound=request.bound) for run in runs]
    if request.envelope:
        if any(not run.has_radius for run in runs):
            raise RunError("an envelope needs radii, and one of the runs has predictions only: leave that run out")
        summaries.append(summarise_envelope(runs, radii=radii, bound=request.bound))
    return summaries


def _print_json(
    request: TableRequest,
    runs: Sequence[ResultColumns],
    radii: Mapping[str, float],
    comparisons: Mapping[str, GoldComparison],
) -> str:
    documents: list[dict[str, Any]] = [summary.to_json() for summary in _summarise_all(request, runs, radii)]
    # The envelope, if requested, is the last document and belongs to no single run.
    for document, run in zip(documents, runs, strict=False):
        if request.classes:
            by_class = class_accuracy(run, radius=_class_radius(request))
            accuracies = dict(zip(map(str, by_class.classes.tolist()), by_class.accuracy.tolist(), strict=True))
            document |= {"classes": accuracies, "class_spread": by_class.spread}
            if run.class_names:
                document["class_names"] = list(run.class_names)
        if request.answers:
            document["answers"] = list_answers(run)
        if run.name in comparisons:
            document["gold"] = asdict(comparisons[run.name])
        if request.bound is not None:
            alpha = run.alpha if request.bound.alpha is None else request.bound.alpha
            document["bound"] = {"method": request.bound.method.value, "rho": request.bound.rho, "alpha": alpha}
    return json.dumps(documents, indent=1, allow_nan=False, ensure_ascii=False)


def _class_radius(request: TableRequest) -> float:
    """The single radius of a table by class."""
    radii = list(parse_radii(request.radii or "0").values())
    if len(radii) > 1:
        raise InputError("accuracy by class is shown at one radius: give --radii a single number, or leave it out")
    return radii[0]


def table_notes(runs: Sequence[ResultColumns], *, radii: Mapping[str, float], bound: BoundChoice | None) -> list[str]:
    """The sentences below a table of these runs at these radii."""
    notes: list[object] = [note for run in runs for note in run.notes]
    for run in runs:
        largest = max(run.decided_radii, default=0.0)
        undecided = [text for text, radius in radii.items() if radius < largest and radius not in run.decided_radii]
        if undecided:
            notes.append(Note(NoteCode.RADII_UNDECIDED, {"run": run.name, "radii": ", ".join(undecided)}))
    if bound is not None:
        notes.append(Note(NoteCode.TEST_SET_BOUND, {"rho": bound.rho, "method": bound.method.value}))
    if not same_inputs(runs):
        notes.append(Note(NoteCode.INPUTS_DIFFER, {}))
    return list(dict.fromkeys(map(str, notes)))
