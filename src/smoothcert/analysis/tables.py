"""Tables of results as text, Markdown, LaTeX, CSV or JSON.

Rounding in print: a fraction of inputs (accuracy, abstention, …) is a count, not a promise, and goes to
nearest, which is also what the papers print (Cohen et al., table 2: 0.6674 as 0.67). ACR, radii and lower
bounds go down. CSV and JSON carry full precision unless digits are asked for.
"""

from __future__ import annotations

import csv
import enum
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from smoothcert.analysis import metrics
from smoothcert.analysis.metrics import ClassAccuracy, GoldComparison
from smoothcert.analysis.options import TableFormat
from smoothcert.analysis.summary import RunSummary
from smoothcert.errors import InputError
from smoothcert.numerics.rounding import format_down_as_read, format_nearest
from smoothcert.runs.results import Results

DEFAULT_DIGITS = 3
_ABSENT = "–"

Cell = str | int | float | None


class Kind(enum.Enum):
    """What a column holds, which decides how it is printed."""

    NAME = "text, left aligned"
    COUNT = "a whole number"
    SETTING = "a number as the user gave it"
    FRACTION = "a share of the inputs, to nearest"
    LOWER = "a number that must not be overstated, rounded down"


@dataclass(frozen=True, slots=True)
class Column:
    """key: the header in CSV. title: the header for people. best: the largest value of the column is set in bold."""

    key: str
    title: str
    kind: Kind
    best: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns; None is a value that does not exist. Notes are sentences below the table."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def summary_table(summaries: Sequence[RunSummary], *, notes: Sequence[str] = ()) -> Table:
    """Rows are runs; columns are the metrics, then certified accuracy (and its lower bound) per radius.

    Columns nobody has a value for, and failures where there are none, are left out.
    """
    columns: list[tuple[Column, Callable[[RunSummary], Cell]]] = [
        (Column("run", "run", Kind.NAME), lambda s: s.run),
        (Column("points", "points", Kind.COUNT), lambda s: s.points),
        (Column("sigma", "sigma", Kind.SETTING), _sigma),
        (Column("acr", "ACR", Kind.LOWER, best=True), lambda s: s.acr),
        # Beside the ACR it would only confuse; without labels it is all there is to say about radii.
        (Column("mean_radius", "mean radius", Kind.LOWER), lambda s: s.mean_radius if s.acr is None else None),
        (Column("accuracy", "accuracy", Kind.FRACTION, best=True), lambda s: s.accuracy),
        (Column("abstention", "abstained", Kind.FRACTION), lambda s: s.abstention),
        (Column("misclassification", "misclassified", Kind.FRACTION), lambda s: s.misclassification),
        (Column("failure", "failed", Kind.FRACTION), lambda s: s.failure or None),
        (
            Column("samples_per_input", "samples", Kind.COUNT),
            lambda s: None if s.samples_per_input is None else round(s.samples_per_input),
        ),
    ]
    for text in summaries[0].certified_accuracy:
        title = f"r={text}"
        columns.append((Column(f"certified_{text}", title, Kind.FRACTION, best=True), _certified(text)))
        if summaries[0].lower_bound is not None:
            columns.append((Column(f"lower_{text}", "≥", Kind.LOWER), _lower(text)))
    needed = [(column, value) for column, value in columns if any(value(s) is not None for s in summaries)]
    rows = tuple(tuple(value(summary) for _, value in needed) for summary in summaries)
    return Table(columns=tuple(column for column, _ in needed), rows=rows, notes=tuple(notes))


def _sigma(summary: RunSummary) -> Cell:
    """The level, or its range where inputs differ in it."""
    if summary.sigma is not None or summary.sigma_range is None:
        return summary.sigma
    least, most = summary.sigma_range
    return f"{least:.3g}-{most:.3g}"


def class_table(runs: Sequence[Results], *, radius: float = 0.0) -> Table:
    """Rows are classes, then the spread over classes; columns are runs. Certified accuracy at one radius."""
    by_run = [metrics.class_accuracy(run, radius=radius) for run in runs]
    classes = sorted({int(label) for found in by_run for label in found.classes})
    lookups = [_accuracy_by_class(found) for found in by_run]
    columns = (Column("class", "class", Kind.NAME), *(Column(run.name, run.name, Kind.FRACTION) for run in runs))
    rows: list[tuple[Cell, ...]] = [(str(label), *(lookup.get(label) for lookup in lookups)) for label in classes]
    rows.append(("spread", *(found.spread for found in by_run)))
    note = (
        f"Certified accuracy at radius {radius:g} by class; spread is the population standard deviation over classes."
    )
    return Table(columns=columns, rows=tuple(rows), notes=(note,))


def gold_table(comparisons: Mapping[str, GoldComparison], *, gold: str) -> Table:
    """Rows are runs; columns say how their answers stand to the label and to the gold standard's answer."""
    columns = [
        Column("run", "run", Kind.NAME),
        Column("correct_accurate", "correct, accurate", Kind.FRACTION),
        Column("correct_inaccurate", "correct, inaccurate", Kind.FRACTION),
        Column("incorrect_accurate", "incorrect, accurate", Kind.FRACTION),
        Column("incorrect_inaccurate", "incorrect, inaccurate", Kind.FRACTION),
        Column("abstain", "abstain", Kind.FRACTION),
    ]
    if any(comparison.failed for comparison in comparisons.values()):
        columns.append(Column("failed", "failed", Kind.FRACTION))
    rows = tuple(
        (name, *(getattr(comparison, column.key) for column in columns[1:])) for name, comparison in comparisons.items()
    )
    note = f"correct: the answer is the label; accurate: it is the answer of {gold}."
    return Table(columns=tuple(columns), rows=rows, notes=(note,))


def render(table: Table, *, form: TableFormat, digits: int | None = None, width: int | None = None) -> str:
    """The table as text without a final newline. digits: decimals (default 3); see the module for CSV and JSON.

    width: of the terminal; a text table that does not fit is printed with its columns as rows.
    """
    if digits is not None and not 0 <= digits <= 15:
        raise InputError(f"{digits} digits were asked for; expected 0 to 15")
    if form is TableFormat.TEXT:
        wide = _render_text(table, digits)
        fits = width is None or max(map(len, wide.split("\n")[:2])) <= width
        return wide if fits else _render_stacked(table, digits)
    return _RENDERERS[form](table, digits)


def _render_text(table: Table, digits: int | None) -> str:
    body = printed_cells(table, digits)
    titles = [column.title for column in table.columns]
    widths = [max(len(row[k]) for row in [titles, *body]) for k in range(len(titles))]
    left = [column.kind is Kind.NAME for column in table.columns]

    def line(cells: Sequence[str]) -> str:
        padded = (c.ljust(w) if is_left else c.rjust(w) for c, w, is_left in zip(cells, widths, left, strict=True))
        return "  ".join(padded).rstrip()

    rule = "  ".join("─" * width for width in widths)
    return "\n".join([line(titles), rule, *map(line, body), *table.notes])


def _render_stacked(table: Table, digits: int | None) -> str:
    """One line for each column, one column for each row of the table."""
    body = printed_cells(table, digits)
    lines = [[column.title, *(row[k] for row in body)] for k, column in enumerate(table.columns)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    first, *rest = widths

    def line(cells: Sequence[str]) -> str:
        title, *values = cells
        return "  ".join([title.ljust(first), *(v.rjust(w) for v, w in zip(values, rest, strict=True))]).rstrip()

    return "\n".join([*map(line, lines), *table.notes])


def _render_markdown(table: Table, digits: int | None) -> str:
    rows = _emphasised(table, printed_cells(table, digits), lambda cell: f"**{cell}**", _escape_markdown)
    titles = [_escape_markdown(column.title) for column in table.columns]
    rule = [":---" if column.kind is Kind.NAME else "---:" for column in table.columns]
    lines = [f"| {' | '.join(cells)} |" for cells in [titles, rule, *rows]]
    return "\n".join(lines + [f"\n{_escape_markdown(note)}" for note in table.notes])


def _render_latex(table: Table, digits: int | None) -> str:
    rows = _emphasised(table, printed_cells(table, digits), lambda cell: rf"\textbf{{{cell}}}", _escape_latex)
    titles = [_escape_latex(column.title) for column in table.columns]
    alignment = "".join("l" if column.kind is Kind.NAME else "r" for column in table.columns)
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(titles) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(f"% {note}" for note in table.notes),
    ]
    return "\n".join(lines)


def _render_csv(table: Table, digits: int | None) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows(table.rows if digits is None else printed_cells(table, digits, absent=""))
    return text.getvalue().removesuffix("\n")


def _render_json(table: Table, digits: int | None) -> str:
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, row, strict=True)) for row in table.rows]
    return json.dumps(rows, indent=1, allow_nan=False, ensure_ascii=False)


_RENDERERS: dict[TableFormat, Callable[[Table, int | None], str]] = {
    TableFormat.TEXT: _render_text,
    TableFormat.MARKDOWN: _render_markdown,
    TableFormat.LATEX: _render_latex,
    TableFormat.CSV: _render_csv,
    TableFormat.JSON: _render_json,
}


def printed_cells(table: Table, digits: int | None = None, *, absent: str = _ABSENT) -> list[list[str]]:
    """The cells as people read them, each rounded in the direction of its column; digits: decimals (default 3)."""
    decimals = DEFAULT_DIGITS if digits is None else digits
    return [
        [
            absent if cell is None else _print_cell(cell, column.kind, decimals)
            for cell, column in zip(row, table.columns, strict=True)
        ]
        for row in table.rows
    ]


def _print_cell(cell: str | int | float, kind: Kind, decimals: int) -> str:
    if isinstance(cell, str) or kind in (Kind.NAME, Kind.COUNT):
        return str(cell)
    if kind is Kind.SETTING:
        return f"{cell:g}"
    return (format_down_as_read if kind is Kind.LOWER else format_nearest)(cell, decimals=decimals)


def _emphasised(
    table: Table, body: list[list[str]], embolden: Callable[[str], str], escape: Callable[[str], str]
) -> list[list[str]]:
    """The printed cells escaped, with the largest of every `best` column in bold when there are rows to compare."""
    rows = [[escape(cell) for cell in row] for row in body]
    for k, column in enumerate(table.columns):
        numbers = [row[k] for row in table.rows if isinstance(row[k], int | float)]
        if column.best and len(numbers) > 1:
            largest = max(numbers)  # type: ignore[type-var]
            for row, cells in zip(table.rows, rows, strict=True):
                if row[k] == largest and largest > 0:  # type: ignore[operator]
                    cells[k] = embolden(cells[k])
    return rows


def _accuracy_by_class(found: ClassAccuracy) -> dict[int, float]:
    return {int(label): float(value) for label, value in zip(found.classes, found.accuracy, strict=True)}


def _certified(text: str) -> Callable[[RunSummary], Cell]:
    return lambda summary: summary.certified_accuracy[text]


def _lower(text: str) -> Callable[[RunSummary], Cell]:
    return lambda summary: None if summary.lower_bound is None else summary.lower_bound[text]


def _escape_markdown(text: str) -> str:
    for special in "\\|*_`":
        text = text.replace(special, f"\\{special}")
    return text


_LATEX_SPECIALS = {
    "\\": r"\textbackslash{}",
    "≥": r"$\geq$",
    "–": "--",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
} | {special: f"\\{special}" for special in "&%$#_{}"}


def _escape_latex(text: str) -> str:
    return "".join(_LATEX_SPECIALS.get(character, character) for character in text)
