"""The charts of a report: certified accuracy, votes, noise levels and classes.

The accuracy chart has further parameters: `bound`, whether the high-probability curve is shown; `pinned` and `pointed`,
the numbers of the radii that the reader has picked by the slider and points at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from smoothcert.analysis import metrics
from smoothcert.analysis.intervals import certified_accuracy_lower_bound
from smoothcert.analysis.plots import accuracy_curve
from smoothcert.analysis.table_choices import BoundChoice
from smoothcert.errors import InputError, RunError
from smoothcert.numerics.rounding import format_down_as_read, format_nearest, round_step
from smoothcert.records import FloatArray, Norm
from smoothcert.report.chart_parts import Spec, make_chart, shorten, shorten_down
from smoothcert.report.sources import Source, shared_inputs

_MOST_STEPS = 500
_PROBES = 120
_P_A_BINS = 40
_P_A_STEP = 0.125
"""Width of a bin of p_A on the scale of the normal distribution: an eighth of σ in radius."""
_P_A_TICKS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_SIGMA_BINS = 30
MOST_CLASSES = 30
_MOST_BOXES = 6
"""Runs beside each other in a class; more are shown in the table only."""
_LEAST_IN_A_BOX = 4
"""Inputs of a class below which quartiles are not meaningful."""


@dataclass(frozen=True, slots=True)
class AccuracyCurves:
    """Certified accuracy of all runs. steps: the drawn points. probes: radii and the printed figures of each run there.

    On (r[k-1], r[k]] a curve has the value at r[k]. A curve of many steps is thinned: it is exact at the drawn points
    and never above the true curve between them. refused: by run, why it has no high-probability curve.
    """

    steps: list[Spec]
    probes: list[Spec]
    refused: dict[int, str]

    @property
    def certifies(self) -> bool:
        """Whether there is anything to draw: an input that is correct and has a radius."""
        return any(row["r"] > 0 and row["y"] > 0 for row in self.steps)


def compute_curves(sources: Sequence[Source], choice: BoundChoice) -> AccuracyCurves:
    drawn = {k: s for k, s in enumerate(sources) if s.has_curve}
    steps: list[Spec] = []
    refused: dict[int, str] = {}
    for number, source in drawn.items():
        x = thin(accuracy_curve(source.results).x)
        y = metrics.certified_accuracy(source.results, x).tolist()
        low: list[float] | None = None
        try:
            low = certified_accuracy_lower_bound(source.results, x, choice=choice).tolist()
        except (RunError, InputError) as error:
            refused[number] = str(error)
        for k, radius in enumerate(x.tolist()):
            steps.append(_step(number, radius, y[k], None if low is None else low[k]))
        if not source.results.decided_radii:
            # Nothing is certified beyond the largest radius, unless only some radii were decided.
            steps.append(_step(number, float(x[-1]), 0.0, None if low is None else 0.0))
    return AccuracyCurves(steps, _list_probes(drawn, choice, refused), refused)


def _step(run: int, radius: float, share: float, low: float | None) -> Spec:
    lower = None if low is None else shorten_down(low)
    return {"run": run, "r": shorten_down(radius), "y": shorten(share), "low": lower}


def _list_probes(drawn: dict[int, Source], choice: BoundChoice, refused: dict[int, str]) -> list[Spec]:
    """Printed figures at round radii: a<k> is the counted figure of run k, b<k> its high-probability bound."""
    largest = max((float(s.results.radius.max()) for s in drawn.values()), default=0.0)
    if largest == 0:
        return []
    step = round_step(largest / _PROBES)
    radii = np.array([float(f"{k * step:.6g}") for k in range(int(largest / step) + 2)])
    rows: list[Spec] = [{"r": float(radius), "text": f"{radius:.6g}"} for radius in radii]
    for number, source in drawn.items():
        counted = metrics.certified_accuracy(source.results, radii)
        bounds = None
        if number not in refused:
            bounds = certified_accuracy_lower_bound(source.results, radii, choice=choice)
        for k, row in enumerate(rows):
            if source.results.is_unknown_at(float(radii[k])):
                continue
            row[f"a{number}"] = format_nearest(float(counted[k]), decimals=3)
            if bounds is not None:
                row[f"b{number}"] = format_down_as_read(float(bounds[k]), decimals=3)
    return rows


def thin(x: FloatArray) -> FloatArray:
    """At most 500 of many steps, spread evenly by rank and by radius, including the first and the last."""
    if x.size <= _MOST_STEPS:
        return x
    by_rank = np.linspace(0, x.size - 1, _MOST_STEPS // 2).astype(np.int64)
    by_radius = np.searchsorted(x, np.linspace(0.0, x[-1], _MOST_STEPS // 2))
    chosen = np.unique(np.concatenate([by_rank, np.minimum(by_radius, x.size - 1)]))
    return np.asarray(x[chosen], dtype=np.float64)


def draw_accuracy_chart(sources: Sequence[Source], drawn: AccuracyCurves) -> Spec:
    norms = list(dict.fromkeys(source.results.norm_symbol for source in sources))
    return make_chart(
        "accuracy",
        height=320,
        runs=len(sources),
        rows=drawn.steps,
        probes=[{"r": row["r"], "row": k} for k, row in enumerate(drawn.probes)],
        title=f"radius: size of the change ({' or '.join(norms)})",
        largest=1.02 * max((row["r"] for row in drawn.steps), default=1.0),
    )


def draw_p_a_chart(sources: Sequence[Source]) -> Spec | None:
    """The share of inputs by the lower bound on the winner's probability."""
    with_p_a = {k: s for k, s in enumerate(sources) if np.isfinite(s.results.p_a).any()}
    if not with_p_a:
        return None
    title = "winner's share of the votes, at least (p_A)"
    if any(source.results.norm is not Norm.L2 for source in with_p_a.values()):
        edges = places = np.linspace(0.0, 1.0, _P_A_BINS + 1)
        axis: Spec = {}
    else:
        edges, places = normal_bins([source.results.p_a for source in with_p_a.values()])
        ticks = [float(ndtri(p)) for p in _P_A_TICKS if places[0] <= ndtri(p) <= places[-1]]
        axis = {"values": ticks, "labelExpr": "format(cumulativeNormal(datum.value), '.6~f')"}
    rows = []
    for number, source in with_p_a.items():
        rows += _list_stairs(number, edges, metrics.p_a_distribution(source.results, edges=edges), places)
    return _draw_histogram(rows, len(sources), title=title, places=places, axis=axis)


def normal_bins(shares: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Edges from 0 to 1, and the places where they are drawn: equidistant in Φ⁻¹(p).

    Radii under Gaussian noise are proportional to Φ⁻¹(p). With equidistant p nearly all inputs would share one bin.
    """
    known = np.concatenate([p[np.isfinite(p)] for p in shares])
    low, high = (float(ndtri(np.clip(p, 0.01, 1 - 1e-6))) for p in (known.min(), known.max()))
    first, last = min(np.floor(low / _P_A_STEP), -2), max(np.floor(high / _P_A_STEP) + 1, 8)
    places = _P_A_STEP * np.arange(first, last + 1)
    edges = ndtr(places)
    edges[0], edges[-1] = 0.0, 1.0
    return edges, places


def draw_sigma_chart(sources: Sequence[Source]) -> Spec | None:
    """The noise levels of the runs whose level depends on the input."""
    levels = {k: s.levels for k, s in enumerate(sources)}
    varying = {k: values for k, values in levels.items() if np.unique(values).size > 1}
    if not varying:
        return None
    together = np.concatenate(list(varying.values()))
    edges = np.linspace(float(together.min()), float(together.max()), _SIGMA_BINS + 1)
    rows = []
    for number, values in varying.items():
        counts, _ = np.histogram(values, bins=edges)
        rows += _list_stairs(number, edges, counts / values.size, edges)
    return _draw_histogram(rows, len(sources), title="noise level σ(x)", places=edges)


def _list_stairs(run: int, edges: FloatArray, shares: FloatArray, places: FloatArray) -> list[Spec]:
    """Points of the outline of a histogram, to be joined by steps. places: where the edges are drawn."""
    rows = [
        {
            "run": run,
            "x": shorten(float(places[k])),
            "x2": shorten(float(places[k + 1])),
            "from": shorten(float(edges[k])),
            "to": shorten(float(edges[k + 1])),
            "share": shorten(float(share)),
        }
        for k, share in enumerate(shares)
    ]
    return [*rows, {**rows[-1], "x": rows[-1]["x2"]}]


def _draw_histogram(rows: list[Spec], runs: int, *, title: str, places: FloatArray, axis: Spec | None = None) -> Spec:
    return make_chart(
        "histogram",
        height=200,
        runs=runs,
        rows=rows,
        title=title,
        domain=[float(places[0]), float(places[-1])],
        axis=axis or {},
        # A fixed limit keeps the chart from jumping when a run is switched off.
        tallest=1.05 * max(row["share"] for row in rows),
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of a number over the inputs of a run, or over those of one class: values that inputs really have."""

    run: int
    inputs: int
    quantiles: tuple[float, ...]
    label: int | None = None


SPREAD_TITLES = {"least": 0.0, "10 %": 0.1, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "90 %": 0.9, "most": 1.0}
CLASS_TITLES = {"10 %": 0.1, "25 %": 0.25, "50 %": 0.5, "75 %": 0.75, "90 %": 0.9}


def p_a_spreads(sources: Sequence[Source]) -> list[Spread]:
    return [spread for k, s in enumerate(sources) if (spread := _spread(k, s.results.p_a)) is not None]


def sigma_spreads(sources: Sequence[Source]) -> list[Spread]:
    """Of the runs whose noise level depends on the input."""
    spreads = [_spread(k, s.results.sigma) for k, s in enumerate(sources)]
    return [one for one in spreads if one is not None and one.quantiles[0] < one.quantiles[-1]]


def _spread(run: int, values: FloatArray) -> Spread | None:
    known = values[np.isfinite(values)]
    return Spread(run, known.size, _quantiles(known, SPREAD_TITLES)) if known.size else None


def _quantiles(values: FloatArray, shares: dict[str, float]) -> tuple[float, ...]:
    # Order statistics without interpolation: values that inputs really have.
    return tuple(np.quantile(values, list(shares.values()), method="lower").tolist())


def class_radii(sources: Sequence[Source]) -> list[Spread]:
    """Certified radii by run and class; 0 where the answer is not the label."""
    spreads = []
    for number, source in enumerate(sources):
        results = source.results
        if not results.has_radius:
            continue
        credited = np.where(results.correct, results.radius, 0.0)
        for label in np.unique(results.label[results.labelled]).tolist():
            radii = credited[results.label == label]
            spreads.append(Spread(number, radii.size, _quantiles(radii, CLASS_TITLES), label))
    return spreads


def draw_class_chart(sources: Sequence[Source], radii: Sequence[Spread]) -> Spec | None:
    """Radii by class: line from 10 to 90 %, box from 25 to 75 %, tick at the median."""
    shown = hardest_classes(radii)
    typical = float(np.median([one.inputs for one in radii])) if radii else 0.0
    largest = max((one.quantiles[-1] for one in radii), default=0.0)
    if len(shown) < 2 or len(sources) > _MOST_BOXES or typical < _LEAST_IN_A_BOX or largest == 0:
        return None
    names = [shared_inputs(sources).class_name(label) for label in shown]
    rows = [
        {
            "run": one.run,
            "class": names[shown.index(one.label)],
            "order": shown.index(one.label),
            "inputs": one.inputs,
            **{f"q{k}": shorten_down(value) for k, value in enumerate(one.quantiles)},
        }
        for one in radii
        if one.label is not None and one.label in shown
    ]
    several = len(sources) > 1
    offset = {"field": "run", "type": "nominal", "scale": {"domain": list(range(len(sources)))}}
    bar = 9 if several else 14
    return make_chart(
        "classes",
        height=len(shown) * max(24, 12 * len(sources) + 6) + 10,
        runs=len(sources),
        rows=rows,
        names=names,
        orders=list(range(len(shown))),
        offset=offset if several else None,
        largest=1.03 * largest,
        bar=bar,
        tick=bar + 2,
    )


def hardest_classes(radii: Sequence[Spread]) -> list[int]:
    """The labels in order. If there are too many to draw, those with the smallest median radius."""
    medians: dict[int, float] = {}
    for one in radii:
        if one.label is not None:
            medians[one.label] = min(one.quantiles[2], medians.get(one.label, np.inf))
    labels = sorted(medians)
    return sorted(sorted(labels, key=medians.__getitem__)[:MOST_CLASSES])
