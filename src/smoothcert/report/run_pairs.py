"""Comparisons of two runs on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from smoothcert.analysis.comparison import Comparison, compare, comparison_tables, summarise_comparison
from smoothcert.analysis.notes import Note, NoteCode, count_inputs
from smoothcert.analysis.tables import Table
from smoothcert.errors import RunError
from smoothcert.numerics.rounding import format_down_as_read
from smoothcert.records import FloatArray
from smoothcert.report.chart_parts import Spec, fill_part, make_chart, run_colour, shorten, shorten_down
from smoothcert.report.notices import Notice, Weight
from smoothcert.report.shown_tables import ShownTable, show_table
from smoothcert.report.sources import Inputs, Source

_MOST_PAIRS = 6
_MOST_DOTS = 1500
_CELLS = 50
_TITLES = {
    "common": "inputs in both runs",
    "counted": "certified correctly by A or B",
    "both": "by both",
    "only_a": "only by A",
    "only_b": "only by B",
    "conflicting": "as different classes",
    "a_larger": "larger radius in A",
    "b_larger": "larger radius in B",
    "equal": "equal radius",
    "ratio_mean": "mean",
    "ratio_geometric_mean": "geometric mean",
    "ratio_min": "smallest",
    "ratio_q05": "5 % have at most",
    "ratio_q25": "25 % have at most",
    "ratio_q75": "75 % have at most",
    "ratio_q95": "95 % have at most",
    "ratio_max": "largest",
    "share_larger": "share above 1",
}
"""Longer titles than those that `compare` prints, by the key of the column."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs, input by input. a, b: their numbers. chart: the name of its chart.

    in_cells: whether the chart counts inputs in cells instead of drawing them one by one.
    """

    a: int
    b: int
    name_a: str
    name_b: str
    sentence: str
    tables: tuple[ShownTable, ...]
    notes: tuple[str, ...]
    chart: str
    in_cells: bool


@dataclass(frozen=True, slots=True)
class ShownPairs:
    """The comparisons of a page. charts: by name. contradictions: of all pairs. left_out: pairs not shown."""

    shown: tuple[Pair, ...]
    charts: dict[str, Spec]
    contradictions: tuple[Notice, ...]
    left_out: int


def compare_pairs(sources: Sequence[Source]) -> ShownPairs:
    """Compare every two runs that can be compared, and show the first of them. A is the later run, B the earlier."""
    shown: list[Pair] = []
    charts: dict[str, Spec] = {}
    contradictions: list[Notice] = []
    left_out = 0
    for b, a in combinations(range(len(sources)), 2):
        try:
            comparison = compare(sources[a].results, sources[b].results)
        except RunError:
            continue
        if len(comparison) == 0:
            continue
        notes = comparison.notes
        conflicts = [note for note in notes if isinstance(note, Note) and note.code is NoteCode.CONTRADICTION]
        names = (comparison.name_a, comparison.name_b)
        contradictions += [Notice(Weight.SERIOUS, "contradiction", note.sentence, names) for note in conflicts]
        if len(shown) == _MOST_PAIRS:
            left_out += 1
            continue
        name = f"pair-{len(shown)}"
        charts[name] = _draw_pair(comparison, sources[a].inputs, run_a=a, run_b=b)
        shown.append(_show_pair(a, b, comparison, name, tuple(map(str, notes))))
    return ShownPairs(tuple(shown), charts, tuple(contradictions), left_out)


def _show_pair(a: int, b: int, comparison: Comparison, name: str, notes: tuple[str, ...]) -> Pair:
    summary = summarise_comparison(comparison)
    sentence = (
        f"Of {summary.common:,} common inputs {summary.counted:,} are certified correctly by A or B: "
        f"{summary.both:,} by both, {summary.only_a:,} only by A, {summary.only_b:,} only by B. "
        f"Where both certify, the radius is larger in A for {summary.a_larger:,}, larger in B for "
        f"{summary.b_larger:,}, and equal for {summary.equal:,}."
    )
    if summary.conflicting:
        sentence += f" For {summary.conflicting:,} they certify different classes."
    captions = ("How many inputs", "Mean radii", "Radius in A divided by radius in B, where both certify")
    tables = tuple(
        show_table(f"{name}-{k}", caption, _with_long_titles(table))
        for k, (caption, table) in enumerate(zip(captions, comparison_tables(summary), strict=True))
    )
    in_cells = len(comparison) > _MOST_DOTS
    return Pair(a, b, comparison.name_a, comparison.name_b, sentence, tables, notes, name, in_cells)


def _with_long_titles(table: Table) -> Table:
    columns = tuple(replace(column, title=_TITLES.get(column.key, column.title)) for column in table.columns)
    return replace(table, columns=columns)


def _draw_pair(comparison: Comparison, inputs: Inputs, *, run_a: int, run_b: int) -> Spec:
    """Every counted input by its radius in B (across) and in A (up); above the diagonal A certifies more.

    A dot has the colour of the run with the larger radius.
    """
    a, b = comparison.credited_a, comparison.credited_b
    largest = max(float(a.max(initial=0.0)), float(b.max(initial=0.0))) or 1.0
    if len(comparison) > _MOST_DOTS:
        marks = fill_part("cells", rows=_list_cells(a, b, largest), largest=1.03 * largest)
    else:
        kinds = [run_colour(run_a), "var(--faint)", run_colour(run_b)]
        marks = fill_part("dots", rows=_list_dots(comparison, inputs), kinds=kinds, largest=1.03 * largest)
    return make_chart("pair", height=360, marks=marks, largest=1.03 * largest)


def _list_dots(comparison: Comparison, inputs: Inputs) -> list[Spec]:
    columns = (comparison.index, comparison.label, comparison.credited_a, comparison.credited_b)
    return [
        {
            "a": shorten_down(a),
            "b": shorten_down(b),
            "kind": int(a > b) - int(a < b),
            "text": f"input {index}, {inputs.class_name(label) if label >= 0 else 'no label'}: "
            f"A {format_down_as_read(a, decimals=3)}, B {format_down_as_read(b, decimals=3)}",
        }
        for index, label, a, b in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _list_cells(a: FloatArray, b: FloatArray, largest: float) -> list[Spec]:
    """The number of inputs in each cell of a grid, because thousands of dots would cover each other."""
    edges = np.linspace(0.0, largest, _CELLS + 1)
    counts, _, _ = np.histogram2d(b, a, bins=[edges, edges])
    return [
        {
            "b": shorten(float(edges[i])),
            "b2": shorten(float(edges[i + 1])),
            "a": shorten(float(edges[j])),
            "a2": shorten(float(edges[j + 1])),
            "inputs": int(counts[i, j]),
            "text": f"{count_inputs(int(counts[i, j]))}\n"
            f"A {edges[j]:.3f} to {edges[j + 1]:.3f}, B {edges[i]:.3f} to {edges[i + 1]:.3f}",
        }
        for i, j in np.argwhere(counts > 0).tolist()
    ]
