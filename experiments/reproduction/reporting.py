"""Results of a reproduction as text, JSON and Markdown: paper | ours | difference."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from experiments.reproduction.directory import Reproduction
from experiments.reproduction.kept import KeptResults
from experiments.reproduction.measures import MEASURES
from experiments.reproduction.measuring import Measurement
from experiments.reproduction.plan import PlannedRow, Step
from experiments.reproduction.recipe import PublishedNumber
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.analysis.tables import Cell, Column, Kind, Table, render
from smoothcert.numerics.rounding import format_down_as_read, format_nearest

NOT_COMPARABLE = (
    "--quick: a smoke run with less data, fewer epochs or fewer samples. These figures are NOT comparable with the "
    "paper's."
)


def comparison_text(
    reproduction: Reproduction, measurements: Sequence[Measurement], *, form: TableFormat, width: int | None = None
) -> str:
    """Render the tables of the recipe, with the finished rows, followed by notes."""
    tables = dict.fromkeys(row.table for row in reproduction.plan.rows)
    blocks = [
        _heading(title, form) + render(_make_table(reproduction, selected), form=form, width=width)
        for title in tables
        if (selected := [one for one in measurements if one.row.table == title])
    ]
    return "\n\n".join([*blocks, *_notes(reproduction)])


def _heading(title: str, form: TableFormat) -> str:
    if not title:
        return ""
    return f"### {title}\n\n" if form is TableFormat.MARKDOWN else f"{title}\n"


def _make_table(reproduction: Reproduction, measurements: Sequence[Measurement]) -> Table:
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
    for one in measurements:
        # With --quick the difference means nothing.
        difference = print_difference(one, digits=digits) if comparable else None
        title, ours = describe_number(one.number), print_ours(one, digits=digits)
        rows.append((one.row.name, title, one.number.printed, ours, difference, one.points, one.n))
    return Table(columns=tuple(columns), rows=tuple(rows))


def describe_number(number: PublishedNumber) -> str:
    """What a published number measures, with its radius if it has one."""
    title = MEASURES[number.measure].title
    return title if number.radius is None else f"{title} {number.radius:g}"


def print_ours(one: Measurement, *, digits: int) -> str | None:
    """Our number; a guarantee is rounded down."""
    if one.ours is None:
        return None
    format_number = format_down_as_read if MEASURES[one.number.measure].rounds_down else format_nearest
    return format_number(one.ours, decimals=digits)


def print_difference(one: Measurement, *, digits: int) -> str | None:
    return None if one.difference is None else f"{one.difference:+.{digits}f}"


def _notes(reproduction: Reproduction) -> list[str]:
    rows = reproduction.plan.rows
    missing = [row.name for row in rows if not reproduction.is_finished(row) and not reproduction.lacks_logs(row)]
    without_logs = [row.name for row in rows if reproduction.lacks_logs(row)]
    notes = [] if reproduction.plan.comparable else [NOT_COMPARABLE]
    if missing:
        notes.append(f"Not finished ({len(missing)} of {len(rows)} rows): {_join(missing)}.")
    if without_logs:
        notes.append(
            f"Omitted, because the authors' released logs are not available ({len(without_logs)} of {len(rows)} rows): "
            f"{_join(without_logs)}. Give their folder with --logs DIR."
        )
    return notes


def _join(names: Sequence[str], most: int = 12) -> str:
    return "; ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def make_document(reproduction: Reproduction, measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Everything as JSON values, in full precision."""
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
            for one in measurements
        ],
        "missing": [row.name for row in reproduction.plan.rows if not reproduction.is_finished(row)],
        "steps": [
            {
                "product": step.product,
                "command": step.command_line,
                "state": reproduction.state(step).description,
                "seconds": _seconds(reproduction, step),
            }
            for step in _list_commands(reproduction)
        ],
    }


def _seconds(reproduction: Reproduction, step: Step) -> float | None:
    record = reproduction.record(step)
    return None if record is None or not record.begun else record.seconds


def _list_commands(reproduction: Reproduction) -> list[Step]:
    """Every command of the plan that can be run, once."""
    rows = [row for row in reproduction.plan.rows if not reproduction.lacks_logs(row)]
    return list(dict.fromkeys(step for row in rows for step in row.steps if step.command is not None))


def status_text(
    reproduction: Reproduction,
    rows: Sequence[PlannedRow],
    *,
    kept: KeptResults | None = None,
    width: int | None = None,
) -> str:
    """Render the state of each row, and whether its result is kept."""
    columns = [Column("row", "row", Kind.NAME), Column("state", "state", Kind.NAME), Column("time", "time", Kind.COUNT)]
    cells: list[tuple[Cell, ...]] = [(row.name, _state(reproduction, row), _time(reproduction, row)) for row in rows]
    if kept is not None:
        columns.append(Column("kept", "kept", Kind.NAME))
        cells = [(*line, "yes" if kept.is_finished(row) else None) for line, row in zip(cells, rows, strict=True)]
    done = sum(reproduction.is_finished(row) for row in rows)
    notes = (f"{done} of {len(rows)} rows are finished, in {reproduction.directory}.",)
    return render(Table(columns=tuple(columns), rows=tuple(cells), notes=notes), form=TableFormat.TEXT, width=width)


def _state(reproduction: Reproduction, row: PlannedRow) -> str:
    if reproduction.lacks_logs(row):
        return "needs the released logs (--logs DIR)"
    if reproduction.is_finished(row):
        return "done"
    for step in row.steps:
        state = reproduction.state(step)
        if not state.finished:
            return f"{step.product}: {state.description}"
    return "done"


def _time(reproduction: Reproduction, row: PlannedRow) -> str | None:
    records = [record for step in row.steps if (record := reproduction.record(step)) is not None and record.begun]
    return f"{sum(record.seconds for record in records):.0f} s" if records else None


def result_page(reproduction: Reproduction, measurements: Sequence[Measurement], *, command: Sequence[str]) -> str:
    """The page result.md: tables and commands. command: the command line of the reproduction itself."""
    recipe = reproduction.plan.recipe
    lines = [
        f"# {recipe.title}",
        "",
        f"Published: {recipe.source}",
        "",
        recipe.about,
        "",
        f"```\n{shlex.join(command)}\n```",
        "",
        comparison_text(reproduction, measurements, form=TableFormat.MARKDOWN) or "Nothing is finished yet.",
        "",
        "## Commands",
        "",
        f"Run in `{reproduction.directory}`. Times include start-up and all attempts of a resumed step.",
        "",
        "| step | state | time |",
        "|:---|:---|---:|",
    ]
    for step in _list_commands(reproduction):
        record = reproduction.record(step)
        time = "–" if record is None else record.time or "–"
        lines.append(f"| `{step.command_line}` | {reproduction.state(step).description} | {time} |")
    return "\n".join(lines) + "\n"
