"""Comparisons of two runs on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from smoothcert.analysis.comparison import Comparison, compare, comparison_tables, summarise_comparison
from smoothcert.analysis.notes import Note, NoteCode
from smoothcert.analysis.tables import Table
from smoothcert.errors import RunError
from smoothcert.report.chart_parts import Spec
from smoothcert.report.notices import Notice, Weight
from smoothcert.report.pair_chart import comparison_chart, is_in_cells
from smoothcert.report.shown_tables import ShownTable, show_table
from smoothcert.report.sources import Source

_MOST_PAIRS = 6
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
    """Two runs, input by input. a, b: their numbers. chart: the name of its chart."""

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
        if _have_other_models(sources[a], sources[b]):
            # Different models may certify different classes.
            notes, conflicts = tuple(note for note in notes if note not in conflicts), []
        names = (comparison.name_a, comparison.name_b)
        contradictions += [Notice(Weight.SERIOUS, "contradiction", note.sentence, names) for note in conflicts]
        if len(shown) == _MOST_PAIRS:
            left_out += 1
            continue
        name = f"pair-{len(shown)}"
        charts[name] = comparison_chart(comparison, sources[a].inputs, run_a=a, run_b=b)
        shown.append(_show_pair(a, b, comparison, name, tuple(map(str, notes))))
    return ShownPairs(tuple(shown), charts, tuple(contradictions), left_out)


def _have_other_models(a: Source, b: Source) -> bool:
    models = [source.results.settings.get("model") for source in (a, b)]
    return None not in models and models[0] != models[1]


def _show_pair(a: int, b: int, comparison: Comparison, name: str, notes: tuple[str, ...]) -> Pair:
    summary = summarise_comparison(comparison)
    sentence = (
        f"Of {summary.common:,} common inputs {summary.counted:,} are certified correctly by A or B. A certifies a "
        f"larger radius for {summary.a_larger + summary.only_a:,}, B for {summary.b_larger + summary.only_b:,}, both "
        f"the same for {summary.equal:,}."
    )
    if summary.conflicting:
        sentence += f" For {summary.conflicting:,} they certify different classes."
    captions = ("How many inputs", "Mean radii", "Radius in A divided by radius in B, where both certify")
    tables = tuple(
        show_table(f"{name}-{k}", caption, _with_long_titles(table))
        for k, (caption, table) in enumerate(zip(captions, comparison_tables(summary), strict=True))
    )
    in_cells = is_in_cells(comparison)
    return Pair(a, b, comparison.name_a, comparison.name_b, sentence, tables, notes, name, in_cells)


def _with_long_titles(table: Table) -> Table:
    columns = tuple(replace(column, title=_TITLES.get(column.key, column.title)) for column in table.columns)
    return replace(table, columns=columns)
