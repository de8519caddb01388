"""All that a page shows, as plain values: computed here, laid out by the templates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from smoothcert.analysis.comparison import (
    Comparison,
    compare,
    comparison_tables,
    summarise_comparison,
)
from smoothcert.analysis.options import BoundChoice, TableFormat
from smoothcert.analysis.reporting import table_notes
from smoothcert.analysis.summary import RunSummary, default_radii, parse_radii, summarise
from smoothcert.analysis.tables import Cell, Column, Kind, Table, class_table, printed_cells, render, summary_table
from smoothcert.errors import InputError, RunError
from smoothcert.numerics.rounding import format_down_as_read, format_nearest
from smoothcert.report import charts, words
from smoothcert.report.charts import Spec
from smoothcert.report.gallery import Gallery, gallery
from smoothcert.report.plain_text import no_formula
from smoothcert.report.plane import Decide, Plane, planes
from smoothcert.report.sources import Inputs, Source, load_sources, shared_inputs
from smoothcert.runs.results import Results

_COPIES = {"LaTeX": TableFormat.LATEX, "Markdown": TableFormat.MARKDOWN, "CSV": TableFormat.CSV}
_MOST_PAIRS = 6
_MOST_GALLERIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to report. radii: as typed, None to choose from the data. gallery: inputs shown of each run, 0 for none.

    data: where the inputs lie, if not where the runs say. bound: of the high-probability curve.
    decide: asks for the decision regions of runs in the plane; without it they are not drawn.
    """

    runs: tuple[Path, ...]
    radii: str | None = None
    gallery: int = 24
    data: str | None = None
    title: str | None = None
    bound: BoundChoice = field(default_factory=BoundChoice)
    decide: Decide | None = None


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table as text, cell by cell, with the full number behind each printed one, and as text to be copied."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[tuple[str, Cell, bool], ...], ...]
    notes: tuple[str, ...]
    copies: dict[str, str]


@dataclass(frozen=True, slots=True)
class Run:
    """One line of the legend, and its card. dash: of its line. facts: (what, figure, full number)."""

    number: int
    name: str
    dash: str
    facts: tuple[tuple[str, str, Cell], ...]
    settings: tuple[tuple[str, str], ...]
    manifest: str | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs, input by input."""

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
class ClassesAt:
    """Certified accuracy by class at one radius."""

    text: str
    table: ShownTable


@dataclass(frozen=True, slots=True)
class Content:
    """charts: Vega-Lite specifications by name; probes: figures for the reader's own radius; see `charts.Curves`.

    certified: whether any run asked for radii; nothing_certified: none has an input that is right and has one. p_a,
    sigma: what their histograms show, in numbers. class_at: which of the classes' tables is shown first.
    """

    title: str
    headline: words.Headline
    remarks: tuple[words.Remark, ...]
    runs: tuple[Run, ...]
    norm: str
    approximate: ShownTable
    bounded: ShownTable | None
    bound: BoundChoice
    refused: tuple[str, ...]
    charts: dict[str, Spec]
    probes: tuple[Spec, ...]
    certified: bool
    nothing_certified: bool
    p_a: ShownTable | None
    sigma: ShownTable | None
    classes: tuple[ClassesAt, ...]
    class_at: int
    class_radii: ShownTable | None
    costs: ShownTable
    galleries: tuple[Gallery, ...]
    galleries_left_out: int
    one_pixel: str
    planes: tuple[Plane, ...]
    pairs: tuple[Pair, ...]
    pairs_left_out: int


def content(request: Request) -> Content:
    """Read the runs and compute everything."""
    if request.gallery < 0:
        raise InputError(f"a gallery of {request.gallery} inputs cannot be shown: give 0 or more")
    sources = load_sources(request.runs, data=request.data)
    results = [source.results for source in sources]
    radii = default_radii(results) if request.radii is None else parse_radii(request.radii)
    summaries = [summarise(run, radii=radii) for run in results]
    found = charts.curves(sources, request.bound)
    pairs, specs, contradictions, left_out = _pairs(sources)
    galleries = _galleries(sources, request.gallery)
    remarks = words.remarks(sources, contradictions)
    headline = words.headline(sources, radii)
    classes = _classes(sources, radii)
    class_radii = charts.class_radii(sources)
    drawn = {
        "accuracy": charts.accuracy_chart(sources, found) if found.certifies else None,
        "p_a": charts.p_a_chart(sources),
        "sigma": charts.sigma_chart(sources),
        "classes": charts.class_chart(sources, class_radii),
        **specs,
    }
    return Content(
        title=request.title or _title(sources),
        headline=headline,
        remarks=tuple(remarks),
        runs=tuple(
            _run(k, source, summary) for k, (source, summary) in enumerate(zip(sources, summaries, strict=True))
        ),
        norm=" and ".join(dict.fromkeys(words.NORMS[run.norm] for run in results)),
        approximate=_shown(
            "certified",
            _caption(results),
            summary_table(summaries, notes=table_notes(results, radii=radii, bound=None)),
        ),
        bounded=_bounded(sources, radii, found.refused, request.bound),
        bound=request.bound,
        refused=tuple(found.refused.values()),
        charts={name: spec for name, spec in drawn.items() if spec is not None},
        probes=tuple(found.probes) if found.certifies else (),
        certified=any(run.has_radius for run in results),
        nothing_certified=bool(found.steps) and not found.certifies,
        p_a=_spreads(sources, charts.p_a_spreads(sources), "p_a", "Winner's share of the votes, at least (p_A)"),
        sigma=_spreads(sources, charts.sigma_spreads(sources), "sigma", "Noise level σ(x)"),
        classes=classes,
        class_at=next((k for k, one in enumerate(classes) if one.text == headline.radius), 0),
        class_radii=_class_radii(sources, class_radii),
        costs=_costs(sources),
        galleries=galleries,
        galleries_left_out=max(0, len(sources) - _MOST_GALLERIES) if request.gallery else 0,
        one_pixel=words.one_pixel(sources, before="For scale: "),
        planes=planes(sources, request.decide),
        pairs=tuple(pairs),
        pairs_left_out=left_out,
    )


def _caption(results: Sequence[Results]) -> str:
    if any(run.has_radius for run in results):
        return "Certified accuracy: the share of inputs answered correctly with a radius of at least r."
    return "The share of inputs answered correctly, not at all, and wrongly. No radii were asked for."


def _spreads(sources: Sequence[Source], spreads: Sequence[charts.Spread], name: str, what: str) -> ShownTable | None:
    """What a histogram shows, in numbers; to five digits, because the differences near 1 are what counts."""
    if not spreads:
        return None
    titles = [Column(f"q{k}", title, Kind.LOWER) for k, title in enumerate(charts.SPREAD_TITLES)]
    columns = (Column("run", "run", Kind.NAME), Column("inputs", "inputs", Kind.COUNT), *titles)
    rows: list[tuple[tuple[str, Cell, bool], ...]] = []
    for one in spreads:
        numbers: list[tuple[str, Cell, bool]] = [
            (format_down_as_read(value, decimals=5), value, False) for value in one.quantiles
        ]
        run = sources[one.run].name
        rows.append(((run, run, False), (f"{one.inputs:,}", one.inputs, False), *numbers))
    caption = f"{what}: so many percent of the inputs have at most this."
    return ShownTable(name, caption, columns, tuple(rows), (), {})


def _title(sources: Sequence[Source]) -> str:
    names = [source.name for source in sources]
    data = {str(s.origin.get("data")) for s in sources if s.origin.get("data")}
    about = data.pop() if len(data) == 1 else ""
    return f"{about}: {', '.join(names)}" if about and len(names) <= 3 else about or ", ".join(names[:3])


def _shown(name: str, caption: str, table: Table) -> ShownTable:
    """Cells with the printed text, the full number, and whether it is the best of its column."""
    rows = []
    for cells, texts in zip(table.rows, printed_cells(table), strict=True):
        shown = zip(cells, texts, table.columns, strict=True)
        rows.append(tuple((text, cell, _is_best(table, cell, column)) for cell, text, column in shown))
    copies = {
        title: render(_without_formulas(table) if form is TableFormat.CSV else table, form=form)
        for title, form in _COPIES.items()
    }
    return ShownTable(name, caption, table.columns, tuple(rows), table.notes, copies)


def _without_formulas(table: Table) -> Table:
    """For a spreadsheet: names come from outside."""
    columns = tuple(replace(column, key=no_formula(column.key)) for column in table.columns)
    rows = tuple(tuple(no_formula(cell) if isinstance(cell, str) else cell for cell in row) for row in table.rows)
    return Table(columns, rows, table.notes)


def _is_best(table: Table, cell: Cell, column: Column) -> bool:
    numbers = [row[table.columns.index(column)] for row in table.rows]
    comparable = [number for number in numbers if isinstance(number, int | float)]
    return column.best and isinstance(cell, int | float) and len(comparable) > 1 and cell == max(comparable) > 0


def _bounded(
    sources: Sequence[Source], radii: dict[str, float], refused: dict[int, str], choice: BoundChoice
) -> ShownTable | None:
    able = [source for k, source in enumerate(sources) if k not in refused and source.has_curve]
    if not able:
        return None
    summaries = [summarise(source.results, radii=radii, bound=choice) for source in able]
    columns = [Column("run", "run", Kind.NAME), Column("points", "points", Kind.COUNT)]
    columns += [Column(f"lower_{text}", f"r={text}", Kind.LOWER, best=True) for text in radii]
    rows = tuple((s.run, s.points, *((s.lower_bound or {}).get(text) for text in radii)) for s in summaries)
    note = (
        f"Lower bound on the true certified accuracy of these inputs, wrong with probability at most {choice.rho:g} at "
        f"each radius ({choice.method.value})."
    )
    caption = f"At least this share is truly robust, except with probability {choice.rho:g} at each radius."
    return _shown("bounded", caption, Table(tuple(columns), rows, (note,)))


def _run(number: int, source: Source, summary: RunSummary) -> Run:
    results = source.results
    facts: list[tuple[str, str, Cell]] = [("inputs", f"{len(results):,}", len(results))]
    if summary.accuracy is not None:
        facts.append(("accuracy", _fraction(summary.accuracy), summary.accuracy))
    if summary.acr is not None:
        facts.append(("average certified radius", format_down_as_read(summary.acr, decimals=3), summary.acr))
    elif summary.mean_radius is not None:
        facts.append(("mean radius", format_down_as_read(summary.mean_radius, decimals=3), summary.mean_radius))
    if summary.abstention is not None:
        facts.append(("abstained", _fraction(summary.abstention), summary.abstention))
    if summary.misclassification is not None:
        facts.append(("wrong", _fraction(summary.misclassification), summary.misclassification))
    if (ceiling := words.at_ceiling(source)) is not None:
        facts.append(("won every vote", f"{ceiling:,}", ceiling))
    return Run(
        number=number,
        name=source.name,
        dash=" ".join(map(str, charts.dash(number))),
        facts=tuple(facts),
        settings=tuple(_settings(source)),
        manifest=None
        if source.manifest is None
        else json.dumps(source.manifest.to_json(), indent=2, sort_keys=True, ensure_ascii=False),
    )


def _settings(source: Source) -> list[tuple[str, str]]:
    """What a reader asks first about how a run was made."""
    if source.manifest is None:
        return [("source", "a log")]
    manifest, parameters = source.manifest, source.parameters
    sigma = parameters.get("sigma")
    if sigma is None:
        known = source.levels
        sigma = f"by input, {known.min():.4g} to {known.max():.4g}" if known.size else "by input"
    told = {
        "model": source.origin.get("model"),
        "data": source.origin.get("data"),
        "split": parameters.get("split"),
        "noise": parameters.get("noise"),
        "σ": sigma,
        "samples to pick the class (n0)": parameters.get("n0"),
        "samples to prove it (n)": parameters.get("n"),
        "error probability (α)": parameters.get("alpha"),
        "certificate": parameters.get("certificate"),
        "back end": manifest.model.get("backend"),
        "seed": manifest.seed,
    }
    return [(key, f"{value}") for key, value in told.items() if value is not None]


def _fraction(value: float) -> str:
    return format_nearest(value, decimals=3)


def _classes(sources: Sequence[Source], radii: dict[str, float]) -> tuple[ClassesAt, ...]:
    """Accuracy by class at every radius of the table that all labelled runs know."""
    able = [source.results for source in sources if source.results.labelled.all()]
    if not able or len({int(label) for run in able for label in np.unique(run.label)}) < 2:
        return ()
    names = shared_inputs(sources)
    found: list[ClassesAt] = []
    for text, radius in radii.items():
        if any(run.says_nothing_of(radius) or (radius > 0 and not run.has_radius) for run in able):
            continue
        table = _weakest_classes(class_table(able, radius=radius))
        named = tuple((_class_title(names, row[0]), *row[1:]) for row in table.rows)
        caption = f"Share of the inputs of each class that are certified at radius {text}."
        if radius == 0:
            caption = "Share of the inputs of each class that are answered correctly."
        found.append(
            ClassesAt(text, _shown(f"classes-{len(found)}", caption, Table(table.columns, named, table.notes)))
        )
    return tuple(found)


def _weakest_classes(table: Table) -> Table:
    """The table by class, cut down to the classes with the lowest mean over runs where there are very many."""
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


def _class_radii(sources: Sequence[Source], radii: Sequence[charts.ClassRadii]) -> ShownTable | None:
    if not radii:
        return None
    shown = set(charts.hardest(radii))
    columns = (
        Column("run", "run", Kind.NAME),
        Column("class", "class", Kind.NAME),
        Column("inputs", "inputs", Kind.COUNT),
        *(Column(f"q{q}", f"{q} %", Kind.LOWER) for q in (10, 25, 50, 75, 90)),
    )
    rows = tuple(
        (sources[one.run].name, _class_title(sources[one.run].inputs, str(one.label)), one.inputs, *one.quantiles)
        for one in radii
        if one.label in shown
    )
    caption = "Certified radii by class: so many percent of the inputs have at most this radius; 0 where not right."
    return _shown("class-radii", caption, Table(columns, rows))


def _costs(sources: Sequence[Source]) -> ShownTable:
    rows: list[tuple[Cell, ...]] = []
    for source in sources:
        seconds, inputs = source.results.seconds, len(source.results)
        known = bool(np.isfinite(seconds).all())
        total = float(seconds.sum()) if known else None
        samples = source.samples
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
        Column("run", "run", Kind.NAME),
        Column("inputs", "inputs", Kind.COUNT),
        Column("samples", "samples", Kind.COUNT),
        Column("samples_per_input", "samples an input", Kind.COUNT),
        Column("seconds", "seconds", Kind.COUNT),
        Column("seconds_per_input", "seconds an input", Kind.COUNT),
        Column("samples_per_second", "samples a second", Kind.COUNT),
    )
    needed = [k for k in range(len(columns)) if any(row[k] is not None for row in rows)]
    table = Table(tuple(columns[k] for k in needed), tuple(tuple(row[k] for k in needed) for row in rows))
    return _shown("cost", "What the certificates cost: noisy copies classified, and seconds.", table)


def _galleries(sources: Sequence[Source], most: int) -> tuple[Gallery, ...]:
    if most == 0:
        return ()
    return tuple(gallery(k, source, most=most) for k, source in enumerate(sources[:_MOST_GALLERIES]))


def _pairs(sources: Sequence[Source]) -> tuple[list[Pair], dict[str, Spec], list[words.Remark], int]:
    """Every two runs that can be compared, up to some number of them; the later run is A, the earlier B.

    With the charts by name, what contradicts itself in any pair, and how many pairs are left out.
    """
    pairs: list[Pair] = []
    specs: dict[str, Spec] = {}
    contradictions: list[words.Remark] = []
    left_out = 0
    for b, a in combinations(range(len(sources)), 2):
        try:
            comparison = compare(sources[a].results, sources[b].results)
        except RunError:
            continue
        if len(comparison) == 0:
            continue
        other_models = _other_models(sources[a], sources[b])
        contradictions += [] if other_models else words.contradictions(comparison)
        if len(pairs) == _MOST_PAIRS:
            left_out += 1
            continue
        name = f"pair-{len(pairs)}"
        specs[name] = charts.comparison_chart(comparison, sources[a], run_a=a, run_b=b)
        pairs.append(_pair(a, b, comparison, name, other_models=other_models))
    return pairs, specs, contradictions, left_out


def _other_models(a: Source, b: Source) -> bool:
    """Whether the runs are known to be about different models, which may well disagree."""
    models = [source.results.settings.get("model") for source in (a, b)]
    return None not in models and models[0] != models[1]


_COMPARED = {
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
"""What `compare` prints in few letters, for a reader who has room."""


def _spelt_out(table: Table) -> Table:
    columns = tuple(replace(column, title=_COMPARED.get(column.key, column.title)) for column in table.columns)
    return replace(table, columns=columns)


def _pair(a: int, b: int, comparison: Comparison, name: str, *, other_models: bool) -> Pair:
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
        _shown(f"{name}-{k}", caption, _spelt_out(table))
        for k, (caption, table) in enumerate(zip(captions, comparison_tables(summary), strict=True))
    )
    # Two models that disagree contradict each other as little as two people do.
    notes = tuple(n for n in comparison.notes if not (other_models and n.startswith(words.CONTRADICTION)))
    cells = charts.in_cells(comparison)
    return Pair(a, b, comparison.name_a, comparison.name_b, sentence, tables, notes, name, cells)
