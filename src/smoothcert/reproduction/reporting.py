"""What came out, as a table, as JSON and as a page: paper | ours | difference."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from smoothcert.analysis.options import TableFormat
from smoothcert.analysis.tables import Cell, Column, Kind, Table, render
from smoothcert.numerics.rounding import format_down_as_read, format_nearest
from smoothcert.reproduction.directory import Reproduction
from smoothcert.reproduction.measures import MEASURES
from smoothcert.reproduction.measuring import Measured, measure
from smoothcert.reproduction.plan import PlannedRow, Step
from smoothcert.reproduction.recipe import PublishedNumber

NOT_COMPARABLE = (
    "--quick: a smoke run with less data, fewer epochs or fewer samples. These figures are NOT comparable with the "
    "paper's."
)


def measured_rows(reproduction: Reproduction) -> list[Measured]:
    """The numbers of all rows that are done."""
    return [one for row in reproduction.plan.rows if reproduction.finished(row) for one in measure(reproduction, row)]


def comparison_text(
    reproduction: Reproduction, measured: Sequence[Measured], *, form: TableFormat, width: int | None = None
) -> str:
    """The tables of the recipe, one below the other, for the rows that are done; then what is to be said about them."""
    tables = dict.fromkeys(row.table for row in reproduction.plan.rows)
    blocks = [
        _heading(title, form) + render(_table(reproduction, found), form=form, width=width)
        for title in tables
        if (found := [one for one in measured if one.row.table == title])
    ]
    return "\n\n".join([*blocks, *_notes(reproduction)])


def _heading(title: str, form: TableFormat) -> str:
    if not title:
        return ""
    return f"### {title}\n\n" if form is TableFormat.MARKDOWN else f"{title}\n"


def _table(reproduction: Reproduction, measured: Sequence[Measured]) -> Table:
    comparable, digits = reproduction.plan.comparable, reproduction.plan.recipe.digits
    columns = [
        Column("row", "row", Kind.NAME),
        Column("measure", "measure", Kind.NAME),
        Column("paper", "paper", Kind.COUNT),
        Column("ours", "ours" if comparable else "ours (quick)", Kind.COUNT),
        Column("difference", "difference", Kind.COUNT),
        Column("points", "inputs", Kind.COUNT),
        Column("n", "n", Kind.COUNT),
    ]
    rows: list[tuple[Cell, ...]] = []
    for one in measured:
        # A difference to figures of a smoke run would only look like a result.
        apart = None if not comparable or one.difference is None else f"{one.difference:+.{digits}f}"
        rows.append(
            (one.row.name, title_of(one.number), one.number.printed, _ours(one, digits), apart, one.points, one.n)
        )
    return Table(columns=tuple(columns), rows=tuple(rows))


def title_of(number: PublishedNumber) -> str:
    title = MEASURES[number.measure].title
    return title if number.radius is None else f"{title} {number.radius:g}"


def _ours(one: Measured, digits: int) -> str | None:
    if one.ours is None:
        return None
    rounded = format_down_as_read if MEASURES[one.number.measure].rounds_down else format_nearest
    return rounded(one.ours, decimals=digits)


def _notes(reproduction: Reproduction) -> list[str]:
    rows = reproduction.plan.rows
    missing = [row.name for row in rows if not reproduction.finished(row) and not reproduction.lacks_logs(row)]
    without_logs = [row.name for row in rows if reproduction.lacks_logs(row)]
    notes = [] if reproduction.plan.comparable else [NOT_COMPARABLE]
    if missing:
        notes.append(f"Not done yet ({len(missing)} of {len(rows)} rows): {_listed(missing)}.")
    if without_logs:
        notes.append(
            f"Left out, because the authors' released logs are not here ({len(without_logs)} of {len(rows)} rows): "
            f"{_listed(without_logs)}. With them: --logs DIR."
        )
    return notes


def _listed(names: Sequence[str], most: int = 12) -> str:
    return "; ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def as_json(reproduction: Reproduction, measured: Sequence[Measured]) -> dict[str, Any]:
    """Everything in full precision."""
    return {
        "recipe": reproduction.plan.recipe.name,
        "quick": reproduction.plan.quick,
        "comparable": reproduction.plan.comparable,
        "directory": str(reproduction.directory),
        "rows": [
            {
                "table": one.row.table,
                "row": one.row.name,
                "measure": one.number.measure,
                "radius": one.number.radius,
                "paper": one.number.value,
                "ours": one.ours,
                "difference": one.difference if reproduction.plan.comparable else None,
                "points": one.points,
                "n": None if one.n is None else int(one.n),
            }
            for one in measured
        ],
        "missing": [row.name for row in reproduction.plan.rows if not reproduction.finished(row)],
        "steps": [
            {"product": step.product, "command": step.shown, "state": state, "seconds": seconds}
            for step, state, seconds in _steps(reproduction)
        ],
    }


def _steps(reproduction: Reproduction) -> list[tuple[Step, str, float | None]]:
    """Every command of the plan once, with how far it is and how long it took."""
    planned = [
        step
        for row in reproduction.plan.rows
        if not reproduction.lacks_logs(row)
        for step in row.steps
        if step.command is not None
    ]
    found = []
    for step in dict.fromkeys(planned):
        record = reproduction.record(step)
        found.append(
            (step, reproduction.progress(step).words, None if record is None or not record.begun else record.seconds)
        )
    return found


def status_text(reproduction: Reproduction, rows: Sequence[PlannedRow], *, width: int | None = None) -> str:
    """How far each row is, without running anything."""
    columns = (Column("row", "row", Kind.NAME), Column("state", "state", Kind.NAME), Column("time", "time", Kind.COUNT))
    cells = tuple((row.name, _state(reproduction, row), _time(reproduction, row)) for row in rows)
    done = sum(reproduction.finished(row) for row in rows)
    notes = (f"{done} of {len(rows)} rows are done, in {reproduction.directory}.",)
    return render(Table(columns=columns, rows=cells, notes=notes), form=TableFormat.TEXT, width=width)


def _state(reproduction: Reproduction, row: PlannedRow) -> str:
    if reproduction.lacks_logs(row):
        return "needs the released logs (--logs DIR)"
    if reproduction.finished(row):
        return "done"
    for step in row.steps:
        progress = reproduction.progress(step)
        if not progress.finished:
            return f"{step.product}: {progress.words}"
    return "done"


def _time(reproduction: Reproduction, row: PlannedRow) -> str | None:
    records = [record for step in row.steps if (record := reproduction.record(step)) is not None and record.begun]
    return f"{sum(record.seconds for record in records):.0f} s" if records else None


def result_page(reproduction: Reproduction, measured: Sequence[Measured], *, typed: Sequence[str]) -> str:
    """The page result.md: the command, the tables, and what was run. typed: the command line of the reproduction."""
    recipe = reproduction.plan.recipe
    lines = [
        f"# {recipe.title}",
        "",
        f"Published: {recipe.source}",
        "",
        recipe.about,
        "",
        f"```\n{shlex.join(typed)}\n```",
        "",
        comparison_text(reproduction, measured, form=TableFormat.MARKDOWN) or "Nothing is done yet.",
        "",
        "## What was run",
        "",
        f"In `{reproduction.directory}`; seconds include start-up, and all attempts of a step that was resumed.",
        "",
        "| step | state | time |",
        "|:---|:---|---:|",
    ]
    for step, state, _ in _steps(reproduction):
        record = reproduction.record(step)
        lines.append(f"| `{step.shown}` | {state} | {'–' if record is None else record.time or '–'} |")
    return "\n".join(lines) + "\n"
