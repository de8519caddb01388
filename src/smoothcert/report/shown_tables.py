"""The tables of a page: every cell as printed text with the full number behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from smoothcert.analysis.summary import summarise
from smoothcert.analysis.table_choices import BoundChoice, TableFormat
from smoothcert.analysis.tables import Cell, Column, Kind, Table, class_table, format_cells, render
from smoothcert.numerics.rounding import format_down_as_read
from smoothcert.records import Outcome
from smoothcert.report import charts
from smoothcert.report.plain_text import escape_formula
from smoothcert.report.sources import Inputs, Source, shared_inputs

_COPIES = {"LaTeX": TableFormat.LATEX, "Markdown": TableFormat.MARKDOWN, "CSV": TableFormat.CSV}
_RUN = Column("run", "run", Kind.NAME)


@dataclass(frozen=True, slots=True)
class ShownTable:
    """rows: for each cell the printed text, the full value, and whether it is the best of its column.

    copies: the table as text to be copied, by format.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[tuple[str, Cell, bool], ...], ...]
    notes: tuple[str, ...]
    copies: dict[str, str]


@dataclass(frozen=True, slots=True)
class ClassesAt:
    """Certified accuracy by class at one radius. text: the radius."""

    text: str
    table: ShownTable


def show_table(name: str, caption: str, table: Table) -> ShownTable:
    rows = tuple(
        tuple(
            (text, cell, table.is_best(k, column)) for column, (cell, text) in enumerate(zip(cells, texts, strict=True))
        )
        for k, (cells, texts) in enumerate(zip(table.rows, format_cells(table), strict=True))
    )
    copies = {
        title: render(_without_formulas(table) if form is TableFormat.CSV else table, form=form)
        for title, form in _COPIES.items()
    }
    return ShownTable(name, caption, table.columns, rows, table.notes, copies)


def _without_formulas(table: Table) -> Table:
    """The table for a spreadsheet, which must not execute names from outside."""
    columns = tuple(replace(column, key=escape_formula(column.key)) for column in table.columns)
    rows = tuple(tuple(escape_formula(cell) if isinstance(cell, str) else cell for cell in row) for row in table.rows)
    return Table(columns, rows, table.notes)


def bounded_table(
    sources: Sequence[Source], radii: Mapping[str, float], refused: Mapping[int, str], choice: BoundChoice
) -> ShownTable | None:
    """High-probability lower bounds of the runs that have them."""
    able = [source for k, source in enumerate(sources) if k not in refused and source.has_curve]
    if not able:
        return None
    summaries = [summarise(source.results, radii=radii, bound=choice) for source in able]
    columns = [_RUN, Column("points", "points", Kind.COUNT)]
    columns += [Column(f"lower_{text}", f"r={text}", Kind.LOWER, best=True) for text in radii]
    rows = tuple((s.run, s.points, *((s.lower_bound or {}).get(text) for text in radii)) for s in summaries)
    note = (
        f"Lower bound on the true certified accuracy of these inputs, wrong with probability at most {choice.rho:g} at "
        f"each radius ({choice.method.value})."
    )
    caption = f"At least this share is truly robust, except with probability {choice.rho:g} at each radius."
    return show_table("bounded", caption, Table(tuple(columns), rows, (note,)))


def spread_table(
    sources: Sequence[Source], spreads: Sequence[charts.Spread], name: str, quantity: str
) -> ShownTable | None:
    """The quantiles of a histogram, with five digits, because differences near 1 matter."""
    if not spreads:
        return None
    titles = [Column(f"q{k}", title, Kind.LOWER) for k, title in enumerate(charts.SPREAD_TITLES)]
    columns = (_RUN, Column("inputs", "inputs", Kind.COUNT), *titles)
    rows: list[tuple[tuple[str, Cell, bool], ...]] = []
    for one in spreads:
        numbers: list[tuple[str, Cell, bool]] = [
            (format_down_as_read(value, decimals=5), value, False) for value in one.quantiles
        ]
        run = sources[one.run].name
        rows.append(((run, run, False), (f"{one.inputs:,}", one.inputs, False), *numbers))
    caption = f"{quantity}: this percentage of the inputs has at most this value."
    return ShownTable(name, caption, columns, tuple(rows), (), {})


def chosen_levels_table(sources: Sequence[Source]) -> ShownTable | None:
    """Which noise levels the selectors chose, and what the inputs of each level got; None without a selector."""
    rows: list[tuple[Cell, ...]] = []
    for source in sources:
        results = source.results
        for level in source.selectable_levels:
            chosen = results.sigma == level
            certified = chosen & results.is_outcome(Outcome.CERTIFIED) & (results.correct | ~results.labelled)
            mean = float(results.radius[certified].mean()) if certified.any() else None
            count = int(chosen.sum())
            rows.append((source.name, level, count, count / len(results), int(certified.sum()), mean))
    if not rows:
        return None
    columns = (
        _RUN,
        Column("level", "noise level", Kind.SETTING),
        Column("inputs", "inputs", Kind.COUNT),
        Column("share", "share", Kind.FRACTION),
        Column("certified", "certified, not wrongly", Kind.COUNT),
        Column("radius", "mean radius of these", Kind.LOWER),
    )
    return show_table("levels", "Which noise level the selector chose.", Table(columns, tuple(rows)))


def class_tables(sources: Sequence[Source], radii: Mapping[str, float]) -> tuple[ClassesAt, ...]:
    """Accuracy by class at every radius of the table that all labelled runs know."""
    able = [source.results for source in sources if source.results.labelled.all()]
    if not able or len({int(label) for run in able for label in np.unique(run.label)}) < 2:
        return ()
    names = shared_inputs(sources)
    tables: list[ClassesAt] = []
    for text, radius in radii.items():
        if any(run.is_unknown_at(radius) or (radius > 0 and not run.has_radius) for run in able):
            continue
        table = _keep_weakest_classes(class_table(able, radius=radius))
        rows = tuple((_class_title(names, row[0]), *row[1:]) for row in table.rows)
        caption = f"Share of the inputs of each class that are certified at radius {text}."
        if radius == 0:
            caption = "Share of the inputs of each class that are answered correctly."
        tables.append(ClassesAt(text, show_table(f"classes-{len(tables)}", caption, replace(table, rows=rows))))
    return tuple(tables)


def _keep_weakest_classes(table: Table) -> Table:
    """The table by class, restricted to the classes with the lowest mean over runs if there are very many."""
    *classes, spread = table.rows
    if len(classes) <= charts.MOST_CLASSES:
        return table

    def mean(row: tuple[Cell, ...]) -> float:
        known = [cell for cell in row[1:] if isinstance(cell, float)]
        return sum(known) / len(known) if known else 0.0

    kept = sorted(sorted(classes, key=mean)[: charts.MOST_CLASSES], key=classes.index)
    note = f"The {len(kept)} of {len(classes)} classes with the lowest accuracy; the spread is over all of them."
    return Table(table.columns, (*kept, spread), (*table.notes, note))


def _class_title(names: Inputs, label: Cell) -> Cell:
    text = str(label)
    if not text.isdigit():
        return label
    name = names.class_name(int(text))
    return text if name == text else f"{text} {name}"


def class_radii_table(sources: Sequence[Source], radii: Sequence[charts.Spread]) -> ShownTable | None:
    if not radii:
        return None
    shown = set(charts.hardest_classes(radii))
    columns = (
        _RUN,
        Column("class", "class", Kind.NAME),
        Column("inputs", "inputs", Kind.COUNT),
        *(Column(f"q{share * 100:g}", title, Kind.LOWER) for title, share in charts.CLASS_TITLES.items()),
    )
    rows = tuple(
        (sources[one.run].name, _class_title(sources[one.run].inputs, str(one.label)), one.inputs, *one.quantiles)
        for one in radii
        if one.label in shown
    )
    caption = "Certified radii by class: this percentage of the inputs has at most this radius; 0 if not correct."
    return show_table("class-radii", caption, Table(columns, rows))


def cost_table(sources: Sequence[Source]) -> ShownTable:
    rows: list[tuple[Cell, ...]] = []
    for source in sources:
        seconds, inputs, samples = source.results.seconds, len(source.results), source.samples
        total = float(seconds.sum()) if np.isfinite(seconds).all() else None
        rows.append(
            (
                source.name,
                f"{inputs:,}",
                None if samples is None else f"{samples:,}",
                None if samples is None else f"{samples / inputs:,.0f}",
                None if total is None else f"{total:,.1f}",
                None if total is None else f"{total / inputs:,.3f}",
                None if total is None or samples is None or total <= 0 else f"{samples / total:,.0f}",
            )
        )
    columns = (
        _RUN,
        Column("inputs", "inputs", Kind.COUNT),
        Column("samples", "samples", Kind.COUNT),
        Column("samples_per_input", "samples per input", Kind.COUNT),
        Column("seconds", "seconds", Kind.COUNT),
        Column("seconds_per_input", "seconds per input", Kind.COUNT),
        Column("samples_per_second", "samples per second", Kind.COUNT),
    )
    needed = [k for k in range(len(columns)) if any(row[k] is not None for row in rows)]
    table = Table(tuple(columns[k] for k in needed), tuple(tuple(row[k] for k in needed) for row in rows))
    return show_table("cost", "What the certificates cost: noisy copies classified, and seconds.", table)
