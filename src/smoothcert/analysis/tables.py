"""Tables of results as text, Markdown, LaTeX, CSV or JSON.

In print, a fraction of inputs (accuracy, abstention, …) is rounded to nearest, as in the papers (Cohen et al., table 2:
0.6674 as 0.67), because it is a count and not a guarantee. ACR, radii and lower bounds are rounded down. CSV and JSON
have full precision unless digits are given.
"""

from __future__ import annotations

import csv
import enum
import io
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smoothcert.analysis import metrics
from smoothcert.analysis.confidence import QUANTILES, THRESHOLDS, PADistribution
from smoothcert.analysis.metrics import GoldComparison
from smoothcert.analysis.summary import RunSummary
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.errors import InputError
from smoothcert.numerics.rounding import format_down_as_read, format_nearest
from smoothcert.pandas_extra import import_pandas
from smoothcert.records.class_names import title_class
from smoothcert.runs.result_columns import ResultColumns

if TYPE_CHECKING:
    import pandas

DEFAULT_DIGITS = 3
_ABSENT = "–"

Cell = str | int | float | None


class Kind(enum.Enum):
    """The content of a column, which decides how it is printed."""

    NAME = "text, left aligned"
    COUNT = "a whole number"
    SETTING = "a number as the user gave it"
    FRACTION = "a share of the inputs, to nearest"
    LOWER = "a number that must not be overstated, rounded down"


@dataclass(frozen=True, slots=True)
class Column:
    """key: the header in CSV. title: the header for people. best: the largest value of the column is set in bold.

    decimals: printed unless others are requested.
    """

    key: str
    title: str
    kind: Kind
    best: bool = False
    decimals: int = DEFAULT_DIGITS


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Rows of cells under columns; None is a value that does not exist. notes: sentences below the table.

    It prints as text, and as HTML in a notebook.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> list[dict[str, Cell]]:
        """Plain JSON values in full precision, one mapping for each row."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]

    def to_frame(self) -> pandas.DataFrame:
        """A pandas frame in full precision."""
        return import_pandas().DataFrame(self.to_json(), columns=[column.key for column in self.columns])

    def __repr__(self) -> str:
        return render(self, form=TableFormat.TEXT)

    def _repr_html_(self) -> str:
        from smoothcert.analysis.html_tables import render_html

        return render_html(self)

    def is_best(self, row: int, column: int) -> bool:
        """Whether the cell is the largest of several numbers of a `best` column."""
        numbers = [cells[column] for cells in self.rows if isinstance(cells[column], int | float)]
        cell = self.rows[row][column]
        if not (self.columns[column].best and isinstance(cell, int | float) and len(numbers) > 1):
            return False
        return cell == max(numbers) > 0  # type: ignore[type-var, operator]


_ColumnOf = tuple[Column, Callable[[RunSummary], Cell]]
"""A column, and its cell for a run."""


def summary_table(summaries: Sequence[RunSummary], *, notes: Sequence[object] = (), with_p_a: bool = False) -> Table:
    """Rows are runs; columns are the metrics, then certified accuracy (and its lower bound) per radius.

    Columns without any value are left out. notes: printed below, as `str` gives them. with_p_a: the columns of
    `p_a_table` follow.
    """
    columns: list[_ColumnOf] = [
        (Column("run", "run", Kind.NAME), lambda s: s.run),
        (Column("points", "points", Kind.COUNT), lambda s: s.points),
        (Column("sigma", "sigma", Kind.SETTING), _sigma),
        (Column("acr", "ACR", Kind.LOWER, best=True), lambda s: s.acr),
        # Shown only without labels, where there is no ACR.
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
        column = Column(f"certified_{text}", f"r={text}", Kind.FRACTION, best=True)
        columns.append((column, lambda s, text=text: s.certified_accuracy[text]))  # type: ignore[misc]
        if summaries[0].lower_bound is not None:
            column = Column(f"lower_{text}", "≥", Kind.LOWER)
            columns.append((column, lambda s, text=text: (s.lower_bound or {}).get(text)))  # type: ignore[misc]
    for column, read in _p_a_columns() if with_p_a else ():
        columns.append((column, lambda s, read=read: None if s.p_a is None else read(s.p_a)))  # type: ignore[misc]
    needed = [(column, value) for column, value in columns if any(value(s) is not None for s in summaries)]
    rows = tuple(tuple(value(summary) for _, value in needed) for summary in summaries)
    return Table(columns=tuple(column for column, _ in needed), rows=rows, notes=tuple(map(str, notes)))


def p_a_table(distributions: Mapping[str, PADistribution | None]) -> Table | None:
    """Rows are the runs with a known p_A; columns are its quantiles, then the share of the inputs above thresholds."""
    known = {run: found for run, found in distributions.items() if found is not None}
    if not known:
        return None
    columns = _p_a_columns()
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (run, *(value(found) for _, value in columns)) for run, found in known.items()
    )
    note = (
        "p_A: lower bound on the probability of the class; 0 where it is not correct. 10 % to 90 %: this share of the "
        "inputs has at most this p_A. ≥: share of the inputs with at least this p_A."
    )
    return Table(
        columns=(Column("run", "p_A", Kind.NAME), *(column for column, _ in columns)), rows=rows, notes=(note,)
    )


def _p_a_columns() -> list[tuple[Column, Callable[[PADistribution], float]]]:
    """Five digits, because differences near 1 matter."""
    columns: list[tuple[Column, Callable[[PADistribution], float]]] = []
    for text, share in QUANTILES.items():
        title = "median" if share == 0.5 else f"{100 * share:g} %"
        columns.append((Column(f"p_a_q{text}", title, Kind.LOWER, decimals=5), lambda p, text=text: p.quantiles[text]))  # type: ignore[misc]
    for text in THRESHOLDS:
        column = Column(f"p_a_at_least_{text}", f"≥{text}", Kind.FRACTION)
        columns.append((column, lambda p, text=text: p.share_at_least[text]))  # type: ignore[misc]
    return columns


def _sigma(summary: RunSummary) -> Cell:
    """The level, or its range if it varies."""
    if summary.sigma is not None or summary.sigma_range is None:
        return summary.sigma
    least, most = summary.sigma_range
    return f"{least:.3g}-{most:.3g}"


def class_table(runs: Sequence[ResultColumns], *, radius: float = 0.0, names: Sequence[str] = ()) -> Table:
    """Rows are classes, then the spread over classes; columns are runs. Certified accuracy at one radius.

    names: of the classes, to be shown after their numbers.
    """
    by_run = [metrics.class_accuracy(run, radius=radius) for run in runs]
    lookups = [dict(zip(one.classes.tolist(), one.accuracy.tolist(), strict=True)) for one in by_run]
    classes = sorted({label for lookup in lookups for label in lookup})
    columns = (Column("class", "class", Kind.NAME), *(Column(run.name, run.name, Kind.FRACTION) for run in runs))
    rows: list[tuple[Cell, ...]] = [
        (title_class(label, names), *(lookup.get(label) for lookup in lookups)) for label in classes
    ]
    rows.append(("spread", *(one.spread for one in by_run)))
    note = (
        f"Certified accuracy at radius {radius:g} by class; spread is the population standard deviation over classes."
    )
    return Table(columns=columns, rows=tuple(rows), notes=(note,))


def gold_table(comparisons: Mapping[str, GoldComparison], *, gold: str) -> Table:
    """Rows are runs; columns compare their answers with the label and with the answer of the gold standard."""
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
    """The table as text without a final newline. digits: decimals (default 3; CSV and JSON: full precision).

    width: of the terminal; a text table that does not fit is printed with its columns as rows, in blocks that fit,
    and notes are wrapped between words.
    """
    if digits is not None and not 0 <= digits <= 15:
        raise InputError(f"{digits} digits were given; expected 0 to 15")
    if form is TableFormat.TEXT:
        lines = _render_text(table, digits)
        if width is not None and len(lines[1]) > width:
            lines = _render_stacked(table, digits, width)
        return "\n".join([*lines, *(_wrap_note(note, width) for note in table.notes)])
    return _RENDERERS[form](table, digits)


def _wrap_note(note: str, width: int | None) -> str:
    """The note in lines of at most this width. A setting such as name:key=value stays whole, so it can be copied."""
    return note if width is None else textwrap.fill(note, width, break_long_words=False, break_on_hyphens=False)


def _render_text(table: Table, digits: int | None) -> list[str]:
    rows = [[column.title for column in table.columns], *format_cells(table, digits)]
    titles, *body = _align(rows, left=[column.kind is Kind.NAME for column in table.columns])
    rule = "  ".join("─" * max(map(len, cells)) for cells in zip(*rows, strict=True))
    return [titles, rule, *body]


def _render_stacked(table: Table, digits: int | None, width: int) -> list[str]:
    """One line for each column, one column for each row of the table; blocks of as many rows as fit the width."""
    titles = [column.title for column in table.columns]
    blocks: list[list[list[str]]] = []
    free = 0
    for row in format_cells(table, digits):
        needed = 2 + max(map(len, row))
        if needed > free or not blocks:
            blocks.append([titles])
            free = width - max(map(len, titles))
        blocks[-1].append(row)
        free -= needed
    lines: list[str] = []
    for block in blocks:
        lines += [""] if lines else []
        lines += _align([list(cells) for cells in zip(*block, strict=True)], left=[True] + [False] * (len(block) - 1))
    return lines


def _align(rows: list[list[str]], *, left: Sequence[bool]) -> list[str]:
    """The rows as lines with aligned columns. left: which columns are aligned to the left."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, left, strict=True)
        padded = [cell.ljust(width) if is_left else cell.rjust(width) for cell, width, is_left in cells]
        lines.append("  ".join(padded).rstrip())
    return lines


def _render_markdown(table: Table, digits: int | None) -> str:
    rows = _emphasise(table, format_cells(table, digits), lambda cell: f"**{cell}**", _escape_markdown)
    titles = [_escape_markdown(column.title) for column in table.columns]
    rule = [":---" if column.kind is Kind.NAME else "---:" for column in table.columns]
    lines = [f"| {' | '.join(cells)} |" for cells in [titles, rule, *rows]]
    return "\n".join(lines + [f"\n{_escape_markdown(note)}" for note in table.notes])


def _render_latex(table: Table, digits: int | None) -> str:
    rows = _emphasise(table, format_cells(table, digits), lambda cell: rf"\textbf{{{cell}}}", _escape_latex)
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
    writer.writerows(table.rows if digits is None else format_cells(table, digits, absent=""))
    return text.getvalue().removesuffix("\n")


def _render_json(table: Table, digits: int | None) -> str:
    return json.dumps(table.to_json(), indent=1, allow_nan=False, ensure_ascii=False)


_RENDERERS: dict[TableFormat, Callable[[Table, int | None], str]] = {
    TableFormat.MARKDOWN: _render_markdown,
    TableFormat.LATEX: _render_latex,
    TableFormat.CSV: _render_csv,
    TableFormat.JSON: _render_json,
}


def format_cells(table: Table, digits: int | None = None, *, absent: str = _ABSENT) -> list[list[str]]:
    """The cells as printed, each rounded in the direction of its column. digits: decimals (default: the column's)."""
    return [
        [
            absent if cell is None else _format_cell(cell, column.kind, column.decimals if digits is None else digits)
            for cell, column in zip(row, table.columns, strict=True)
        ]
        for row in table.rows
    ]


def _format_cell(cell: str | int | float, kind: Kind, decimals: int) -> str:
    if isinstance(cell, str) or kind in (Kind.NAME, Kind.COUNT):
        return str(cell)
    if kind is Kind.SETTING:
        return f"{cell:g}"
    return (format_down_as_read if kind is Kind.LOWER else format_nearest)(cell, decimals=decimals)


def _emphasise(
    table: Table, body: list[list[str]], embolden: Callable[[str], str], escape: Callable[[str], str]
) -> list[list[str]]:
    """The printed cells, escaped, the best ones in bold."""
    return [
        [embolden(escape(cell)) if table.is_best(k, column) else escape(cell) for column, cell in enumerate(row)]
        for k, row in enumerate(body)
    ]


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
