"""Everything that a page shows, as plain values. The templates lay it out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from smoothcert.analysis.formatting import table_notes
from smoothcert.analysis.summary import RunSummary, default_radii, parse_radii, summarise
from smoothcert.analysis.table_choices import BoundChoice
from smoothcert.analysis.tables import Cell, p_a_table, summary_table
from smoothcert.errors import InputError
from smoothcert.numerics.rounding import format_down_as_read, format_nearest
from smoothcert.report import charts
from smoothcert.report.chart_parts import Spec, run_dash
from smoothcert.report.gallery import Gallery, build_gallery
from smoothcert.report.headline import Headline, compare_with_pixel, write_headline
from smoothcert.report.notices import Notice, count_unanimous, list_notices
from smoothcert.report.plain_text import hide_folders, hide_folders_in_document
from smoothcert.report.plane import AnswerRegions, Plane, draw_planes
from smoothcert.report.run_pairs import Pair, compare_pairs
from smoothcert.report.shown_tables import (
    ClassesAt,
    ShownTable,
    bounded_table,
    chosen_levels_table,
    class_radii_table,
    class_tables,
    cost_table,
    show_table,
    spread_table,
)
from smoothcert.report.sources import Source, load_sources
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.result_columns import ResultColumns

_MOST_GALLERIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What to report. radii: as typed; None chooses them from the data. gallery: inputs shown of each run.

    data: where the inputs are, if not where the runs state. bound: of the high-probability curve. decide: evaluates the
    decision regions of runs in the plane; None does not draw them. held: as in `load_sources`. paths: show the folders
    of files on this machine.
    """

    runs: tuple[Path, ...] = ()
    radii: str | None = None
    gallery: int = 24
    data: str | None = None
    title: str | None = None
    bound: BoundChoice = field(default_factory=BoundChoice)
    decide: AnswerRegions | None = None
    held: Mapping[str, tuple[HeldRun, str | None]] = field(default_factory=dict)
    paths: bool = False


@dataclass(frozen=True, slots=True)
class ShownRun:
    """An entry of the legend, and its card. dash: of its line. facts: (title, figure, full number)."""

    number: int
    name: str
    dash: str
    facts: tuple[tuple[str, str, Cell], ...]
    settings: tuple[tuple[str, str], ...]
    manifest: str | None


@dataclass(frozen=True, slots=True)
class Content:
    """charts: Vega-Lite specifications by name. probes: figures for the slider, see `charts.AccuracyCurves`.

    certified: whether any run has radii; nothing_certified: no input is correct and has a radius. confidence: the
    distribution of p_A as in `smoothcert table`. p_a, sigma: the quantiles of their histograms. class_at: which of the
    tables by class is shown first.
    """

    title: str
    headline: Headline
    remarks: tuple[Notice, ...]
    runs: tuple[ShownRun, ...]
    norm: str
    approximate: ShownTable
    confidence: ShownTable | None
    bounded: ShownTable | None
    bound: BoundChoice
    refused: tuple[str, ...]
    charts: dict[str, Spec]
    probes: tuple[Spec, ...]
    certified: bool
    nothing_certified: bool
    p_a: ShownTable | None
    sigma: ShownTable | None
    chosen_levels: ShownTable | None
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


def build_content(request: ReportRequest) -> Content:
    """Read the runs and compute everything."""
    if request.gallery < 0:
        raise InputError(f"a gallery of {request.gallery} inputs is not possible; expected 0 or more")
    sources = load_sources(request.runs, data=request.data, held=request.held)
    results = [source.results for source in sources]
    radii = default_radii(results) if request.radii is None else parse_radii(request.radii)
    summaries = [summarise(run, radii=radii) for run in results]
    curves = charts.compute_curves(sources, request.bound)
    pairs = compare_pairs(sources)
    headline = write_headline(sources, radii)
    classes = class_tables(sources, radii)
    class_radii = charts.class_radii(sources)
    drawn = {
        "accuracy": charts.draw_accuracy_chart(sources, curves) if curves.certifies else None,
        "p_a": charts.draw_p_a_chart(sources),
        "sigma": charts.draw_sigma_chart(sources),
        "classes": charts.draw_class_chart(sources, class_radii),
        **pairs.charts,
    }
    # The run of the headline comes first.
    shown = sorted(range(len(sources)), key=lambda k: k != headline.run)[: _MOST_GALLERIES if request.gallery else 0]
    return Content(
        title=request.title or _title(sources),
        headline=headline,
        remarks=tuple(list_notices(sources, pairs.contradictions)),
        runs=tuple(
            _show_run(k, *pair, paths=request.paths) for k, pair in enumerate(zip(sources, summaries, strict=True))
        ),
        norm=" and ".join(dict.fromkeys(run.norm_symbol for run in results)),
        approximate=show_table(
            "certified",
            _caption(results),
            summary_table(summaries, notes=table_notes(results, radii=radii, bound=None)),
        ),
        confidence=_show_confidence(summaries),
        bounded=bounded_table(sources, radii, curves.refused, request.bound),
        bound=request.bound,
        refused=tuple(curves.refused.values()),
        charts={name: spec for name, spec in drawn.items() if spec is not None},
        probes=tuple(curves.probes) if curves.certifies else (),
        certified=any(run.has_radius for run in results),
        nothing_certified=bool(curves.steps) and not curves.certifies,
        p_a=spread_table(sources, charts.p_a_spreads(sources), "p_a", "Winner's share of the votes, at least (p_A)"),
        sigma=spread_table(sources, charts.sigma_spreads(sources), "sigma", "Noise level σ(x)"),
        chosen_levels=chosen_levels_table(sources),
        classes=classes,
        class_at=next((k for k, one in enumerate(classes) if one.text == headline.radius), 0),
        class_radii=class_radii_table(sources, class_radii),
        costs=cost_table(sources),
        galleries=tuple(build_gallery(k, sources[k], most=request.gallery) for k in shown),
        galleries_left_out=len(sources) - len(shown) if request.gallery else 0,
        one_pixel=compare_with_pixel(sources),
        planes=draw_planes(sources, request.decide),
        pairs=pairs.shown,
        pairs_left_out=pairs.left_out,
    )


def _show_confidence(summaries: Sequence[RunSummary]) -> ShownTable | None:
    table = p_a_table({summary.run: summary.p_a for summary in summaries})
    return None if table is None else show_table("confidence", "How sure the runs are of their inputs.", table)


def _caption(results: Sequence[ResultColumns]) -> str:
    if any(run.has_radius for run in results):
        return "Certified accuracy: the share of inputs answered correctly with a radius of at least r."
    return "The share of inputs answered correctly, not at all, and wrongly. No radii were computed."


def _title(sources: Sequence[Source]) -> str:
    names = [source.name for source in sources]
    data = {source.manifest.data.name for source in sources if source.manifest is not None}
    about = data.pop() if len(data) == 1 else ""
    return f"{about}: {', '.join(names)}" if about and len(names) <= 3 else about or ", ".join(names[:3])


def _show_run(number: int, source: Source, summary: RunSummary, *, paths: bool) -> ShownRun:
    facts: list[tuple[str, str, Cell]] = [("inputs", f"{len(source.results):,}", len(source.results))]
    radius = ("average certified radius", summary.acr)
    if summary.acr is None:
        radius = ("mean radius", summary.mean_radius)
    for title, value, printed in (
        ("accuracy", summary.accuracy, format_nearest),
        (*radius, format_down_as_read),
        ("abstained", summary.abstention, format_nearest),
        ("wrong", summary.misclassification, format_nearest),
    ):
        if value is not None:
            facts.append((title, printed(value, decimals=3), value))
    if (unanimous := count_unanimous(source)) is not None:
        facts.append(("won every vote", f"{unanimous:,}", unanimous))
    manifest, settings = None, source.settings
    if source.manifest is not None:
        document = source.manifest.to_json()
        document = document if paths else hide_folders_in_document(document)
        manifest = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
    if not paths:
        settings = tuple((title, hide_folders(text)) for title, text in settings)
    return ShownRun(
        number=number,
        name=source.name,
        dash=" ".join(map(str, run_dash(number))),
        facts=tuple(facts),
        settings=settings,
        manifest=manifest,
    )
