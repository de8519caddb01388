"""Tables of kept results: paper | ours | difference | seconds, also of rows that were not run yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.reproduction.kept import KeptResults, can_be_kept
from experiments.reproduction.measuring import Measurement, measure
from experiments.reproduction.plan import PlannedRow, make_plan
from experiments.reproduction.recipe import list_recipes, load_recipe
from experiments.reproduction.reporting import NOT_COMPARABLE, describe_number, print_difference, print_ours
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.analysis.tables import Cell, Column, Kind, Table, render

_MISSING = "not run"


def load_kept(names: Sequence[str] = ()) -> list[KeptResults]:
    """The kept results of these recipes; of all recipes without names."""
    return [KeptResults(make_plan(load_recipe(name), quick=False)) for name in names or list_recipes()]


def make_documents(kept: Sequence[KeptResults]) -> list[dict[str, Any]]:
    """Everything as JSON values, in full precision; `ours` is null for a row that was not run."""
    return [
        {
            "recipe": one.plan.recipe.name,
            "time": one.plan.recipe.time,
            "rows": [
                document for row in one.plan.rows if can_be_kept(row) for document in _list_row_documents(one, row)
            ],
            "missing": [row.name for row in one.plan.rows if not one.is_finished(row)],
        }
        for one in kept
    ]


def _list_row_documents(kept: KeptResults, row: PlannedRow) -> list[dict[str, Any]]:
    measured = {one.number: one for one in measure(kept, row)} if kept.is_finished(row) else {}
    return [
        {
            "table": row.table,
            "row": row.name,
            "measure": number.measure,
            "radius": number.radius,
            "paper": number.value,
            "ours": one.ours if (one := measured.get(number)) is not None else None,
            "difference": None if one is None else one.difference,
            "seconds": kept.seconds(row) if one is not None else None,
        }
        for number in row.published
    ]


def all_tables(kept: Sequence[KeptResults], *, form: TableFormat, width: int | None = None) -> str:
    """An overview of all recipes, and the tables of each. Recipes of released logs alone have no table here."""
    blocks = [render(_overview(kept), form=form, width=width)]
    for one in kept:
        if any(can_be_kept(row) for row in one.plan.rows):
            name = one.plan.recipe.name
            title = f"### {name}, kept" if form is TableFormat.MARKDOWN else f"{name}\n{'=' * len(name)}"
            blocks += [title, one.plan.recipe.title + ".", *tables_of(one, form=form, width=width, depth=4)]
    return "\n\n".join(blocks)


def _overview(kept: Sequence[KeptResults]) -> Table:
    columns = (
        Column("recipe", "recipe", Kind.NAME),
        Column("rows", "rows", Kind.COUNT),
        Column("kept", "kept", Kind.COUNT),
        Column("not_run", "not run", Kind.COUNT),
        Column("cost", "all rows take", Kind.NAME),
    )
    rows: list[tuple[Cell, ...]] = []
    for one in kept:
        ours = [row for row in one.plan.rows if can_be_kept(row)]
        done = len(one.list_kept_rows())
        cost = one.plan.recipe.time if ours else f"{one.plan.recipe.time}, from logs that others released"
        rows.append((one.plan.recipe.name, len(one.plan.rows), done, len(ours) - done, cost))
    return Table(columns=columns, rows=tuple(rows))


def tables_of(kept: KeptResults, *, form: TableFormat, width: int | None = None, depth: int = 3) -> list[str]:
    """The tables of a recipe with all rows, and sentences about those that are missing. depth: of the headings."""
    blocks = []
    rows = [row for row in kept.plan.rows if can_be_kept(row)]
    for title in dict.fromkeys(row.table for row in rows):
        table = render(_make_table(kept, [row for row in rows if row.table == title]), form=form, width=width)
        heading = f"{'#' * depth} {title}\n" if form is TableFormat.MARKDOWN else title
        blocks.append(f"{heading}\n{table}" if title else table)
    return [*blocks, *_list_notes(kept, rows)]


def _make_table(kept: KeptResults, rows: Sequence[PlannedRow]) -> Table:
    columns = (
        Column("row", "row", Kind.NAME),
        Column("measure", "measure", Kind.NAME),
        Column("paper", "paper", Kind.COUNT),
        Column("ours", "ours" if kept.plan.comparable else "ours (quick)", Kind.COUNT),
        Column("difference", "difference", Kind.COUNT),
        Column("seconds", "seconds", Kind.COUNT),
        Column("points", "inputs", Kind.COUNT),
        Column("n", "n", Kind.COUNT),
    )
    return Table(columns=columns, rows=tuple(cells for row in rows for cells in _list_cells(kept, row)))


def _list_cells(kept: KeptResults, row: PlannedRow) -> list[tuple[Cell, ...]]:
    """One line for each number of a row."""
    if not kept.is_finished(row):
        return [
            (row.name, describe_number(number), number.printed, _MISSING, None, None, None, None)
            for number in row.published
        ]
    seconds = kept.seconds(row)
    return [_cells_of(kept, one, seconds) for one in measure(kept, row)]


def _cells_of(kept: KeptResults, one: Measurement, seconds: str | None) -> tuple[Cell, ...]:
    digits = kept.plan.recipe.digits
    difference = print_difference(one, digits=digits) if kept.plan.comparable else None
    ours = print_ours(one, digits=digits)
    return (
        one.row.name, describe_number(one.number), one.number.printed, ours, difference, seconds, one.points, one.n,
    )  # fmt: skip


def _list_notes(kept: KeptResults, rows: Sequence[PlannedRow]) -> list[str]:
    recipe = kept.plan.recipe
    missing = [row.name for row in rows if not kept.is_finished(row)]
    notes = [] if kept.plan.comparable else [NOT_COMPARABLE]
    if missing:
        notes.append(
            f"Not run: {len(missing)} of {len(rows)} rows. All rows together take {recipe.time}: "
            f"`python -m experiments {recipe.name}`."
        )
    if kept.stale:
        notes.append(
            f"Not shown: {len(kept.stale)} kept results of an earlier version of the recipe, which must be made again."
        )
    if others := len(kept.plan.rows) - len(rows):
        rows_of_logs = f"{others} row{'s' if others > 1 else ''}"
        notes.append(f"Not kept, because they are computed from logs that others released: {rows_of_logs}.")
    return notes


def make_page(kept: KeptResults) -> str:
    """The page README.md beside the kept results: tables, commands, seconds and machines."""
    recipe = kept.plan.recipe
    machines = dict.fromkeys(_name_machine(step.machine) for step in kept.steps.values())
    return "\n\n".join(
        [
            f"# {recipe.title}",
            f"Published: {recipe.source}",
            recipe.about,
            "This page is made from the files beside it, by the command below. Seconds are those of all steps of a "
            "row, trainings included; steps that several rows share are counted in each.",
            f"```\npython -m experiments {recipe.name}{' --quick' if kept.plan.quick else ''} --keep\n```",
            *tables_of(kept, form=TableFormat.MARKDOWN, depth=2),
            "## Commands",
            "\n".join(
                [
                    "| step | seconds | machine |",
                    "|:---|---:|---:|",
                    *(
                        f"| `{step.command}` | {_print_seconds(step.seconds, lost=step.lost_attempt)} | "
                        f"{list(machines).index(_name_machine(step.machine)) + 1} |"
                        for _, step in sorted(kept.steps.items())
                    ),
                ]
            ),
            "Machines: " + "; ".join(f"{number}: {name}" for number, name in enumerate(machines, start=1)) + ".\n",
        ]
    )


def _name_machine(machine: object) -> str:
    assert isinstance(machine, dict)
    return f"{machine.get('processor')}, {machine.get('cores')} cores, {machine.get('system')}"


def _print_seconds(seconds: float | None, *, lost: bool) -> str:
    return "–" if seconds is None else f"{'≥ ' if lost else ''}{seconds:.0f}"
