"""The charts of a report as Vega-Lite specifications.

Colours are CSS variables of the page, so that one drawing serves light, dark and print. Names from outside are values
of data, never part of an expression. Every chart takes the parameter `hidden`, the numbers of the runs that the reader
has switched off; the accuracy chart also `bound`, whether the high-probability curve is shown, and `pinned` and
`pointed`, the numbers of the radii that the reader has picked by the slider and points at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from smoothcert.analysis import metrics
from smoothcert.analysis.comparison import Comparison
from smoothcert.analysis.intervals import certified_accuracy_lower_bound
from smoothcert.analysis.options import BoundChoice
from smoothcert.analysis.plots import accuracy_curve
from smoothcert.errors import InputError, RunError
from smoothcert.numerics.rounding import format_down_as_read, format_nearest, round_step
from smoothcert.records import FloatArray, Norm
from smoothcert.report.sources import Source, shared_inputs
from smoothcert.report.words import NORMS

Spec = dict[str, Any]

COLOURS = 7
"""How many run colours the page's style sheet has; beyond them a colour comes again with the next dash."""
DASHES: tuple[list[int], ...] = ([], [6, 3], [2, 2], [8, 3, 2, 3])
_MOST_STEPS = 500
_PROBES = 120
_P_A_BINS = 40
_P_A_STEP = 0.125
"""Width of a bin of p_A on the scale of the normal distribution: an eighth of σ in radius."""
_P_A_TICKS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_SIGMA_BINS = 30
MOST_CLASSES = 30
_MOST_BOXES = 6
"""Runs beside each other in a class; more are a table only."""
_LEAST_IN_A_BOX = 4
"""Inputs of a class below which its quartiles say nothing."""
_MOST_DOTS = 1500
_CELLS = 50
_SEVEN_DIGITS_DOWN = Context(prec=7, rounding=ROUND_FLOOR)
_NOT_HIDDEN = {"filter": "indexof(hidden, datum.run) < 0"}
_TEXT, _FAINT, _GRID = "var(--text)", "var(--faint)", "var(--rule)"


@dataclass(frozen=True, slots=True)
class Curves:
    """Certified accuracy of all runs. steps: what is drawn. probes: radii and, for each run, the printed figures there.

    On (r[k-1], r[k]] a curve has the value at r[k]. A curve of many steps is drawn by some of them: exact where it is
    drawn and never above the truth in between. refused: by run, why it has no high-probability curve.
    """

    steps: list[Spec]
    probes: list[Spec]
    refused: dict[int, str]

    @property
    def certifies(self) -> bool:
        """Whether there is anything to draw: some input is right and has a radius."""
        return any(row["r"] > 0 and row["y"] > 0 for row in self.steps)


def curves(sources: Sequence[Source], choice: BoundChoice) -> Curves:
    drawn = {k: s for k, s in enumerate(sources) if s.has_curve}
    steps, refused = [], {}
    for number, source in drawn.items():
        x = _thinned(accuracy_curve(source.results).x)
        y = metrics.certified_accuracy(source.results, x)
        low: FloatArray | None = None
        try:
            low = certified_accuracy_lower_bound(source.results, x, choice=choice)
        except (RunError, InputError) as error:
            refused[number] = str(error)
        for k, radius in enumerate(x.tolist()):
            steps.append(_step(number, radius, float(y[k]), None if low is None else float(low[k])))
        if not source.results.asked:
            # Beyond the largest radius nothing is certified; where radii were asked about, nothing is known there.
            steps.append(_step(number, float(x[-1]), 0.0, None if low is None else 0.0))
    return Curves(steps, _probes(drawn, choice, refused), refused)


def _step(run: int, radius: float, share: float, low: float | None) -> Spec:
    return {"run": run, "r": _down(radius), "y": _short(share), "low": None if low is None else _down(low)}


def _probes(drawn: dict[int, Source], choice: BoundChoice, refused: dict[int, str]) -> list[Spec]:
    """Printed figures at round radii: a<k> is what was counted in run k, b<k> what holds with high probability."""
    largest = max((float(s.results.radius.max()) for s in drawn.values()), default=0.0)
    if largest == 0:
        return []
    step = round_step(largest / _PROBES)
    radii = np.array([float(f"{k * step:.6g}") for k in range(int(largest / step) + 2)])
    rows: list[Spec] = [{"r": float(radius), "text": f"{radius:.6g}"} for radius in radii]
    for number, source in drawn.items():
        counted = metrics.certified_accuracy(source.results, radii)
        bounded = None
        if number not in refused:
            bounded = certified_accuracy_lower_bound(source.results, radii, choice=choice)
        for k, row in enumerate(rows):
            if source.results.says_nothing_of(float(radii[k])):
                continue
            row[f"a{number}"] = format_nearest(float(counted[k]), decimals=3)
            if bounded is not None:
                row[f"b{number}"] = format_down_as_read(float(bounded[k]), decimals=3)
    return rows


def _thinned(x: FloatArray) -> FloatArray:
    """Some of many steps: evenly spread in number and in radius, the first and the last among them."""
    if x.size <= _MOST_STEPS:
        return x
    by_rank = np.linspace(0, x.size - 1, _MOST_STEPS // 2).astype(np.int64)
    by_radius = np.searchsorted(x, np.linspace(0.0, x[-1], _MOST_STEPS // 2))
    chosen = np.unique(np.concatenate([by_rank, np.minimum(by_radius, x.size - 1)]))
    return np.asarray(x[chosen], dtype=np.float64)


def accuracy_chart(sources: Sequence[Source], found: Curves) -> Spec:
    norms = list(dict.fromkeys(NORMS[source.results.norm] for source in sources))
    largest = max((row["r"] for row in found.steps), default=1.0)
    radius = {
        "field": "r",
        "type": "quantitative",
        "title": f"radius: size of the change ({' or '.join(norms)})",
        "scale": {"domain": [0, largest * 1.02], "nice": False, "zero": True},
    }
    # The same form as in the table and beside the slider.
    axis = {"format": ".1f", "tickCount": 10}
    share = {"type": "quantitative", "title": "certified accuracy", "scale": {"domain": [0, 1]}, "axis": axis}
    line: Spec = {"type": "line", "interpolate": "step-before", "strokeWidth": 2, "clip": True}
    return _spec(
        params=[{"name": "bound", "value": False}, {"name": "pinned", "value": -1}, {"name": "pointed", "value": -1}],
        height=320,
        # Once for both layers: a reader who switches a run off waits for what is computed here.
        data={"values": found.steps},
        transform=[_NOT_HIDDEN],
        layer=[
            {
                "transform": [{"filter": "datum.low !== null"}],
                "mark": {"type": "area", "interpolate": "step-before", "opacity": 0.18, "clip": True, "tooltip": None},
                # The first layer to name the radius owns what the reader drags.
                "params": [
                    {
                        "name": "zoom",
                        "select": {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.shiftKey]"},
                        "bind": "scales",
                    }
                ],
                "encoding": {
                    "x": radius,
                    "y": {**share, "field": "low"},
                    "y2": {"field": "y"},
                    "color": _run_colour(len(sources)),
                    "detail": {"field": "run"},
                },
            },
            {
                "transform": [
                    {"calculate": "bound ? datum.low : datum.y", "as": "shown"},
                    {"filter": "datum.shown !== null"},
                ],
                "mark": {**line, "tooltip": None},
                "encoding": {
                    "x": radius,
                    "y": {**share, "field": "shown"},
                    "color": _run_colour(len(sources)),
                    "strokeDash": _run_dash(len(sources)),
                    "detail": {"field": "run"},
                },
            },
            {
                "data": {"values": [{"r": row["r"], "row": k} for k, row in enumerate(found.probes)]},
                "transform": [{"filter": "datum.row === pinned || datum.row === pointed"}],
                "mark": {"type": "rule", "strokeWidth": 1, "strokeDash": [3, 3], "clip": True, "tooltip": None},
                "encoding": {"x": radius, "color": {"value": _TEXT}},
            },
        ],
    )


def p_a_chart(sources: Sequence[Source]) -> Spec | None:
    """How one-sided the votes were: the share of inputs by the lower bound on the winner's probability."""
    telling = {k: s for k, s in enumerate(sources) if np.isfinite(s.results.p_a).any()}
    if not telling:
        return None
    title = "winner's share of the votes, at least (p_A)"
    if any(source.results.norm is not Norm.L2 for source in telling.values()):
        edges = places = np.linspace(0.0, 1.0, _P_A_BINS + 1)
        axis: Spec = {}
    else:
        edges, places = _normal_bins([source.results.p_a for source in telling.values()])
        ticks = [float(ndtri(p)) for p in _P_A_TICKS if places[0] <= ndtri(p) <= places[-1]]
        axis = {"values": ticks, "labelExpr": "format(cumulativeNormal(datum.value), '.6~f')"}
    rows = []
    for number, source in telling.items():
        rows += _stairs(number, edges, metrics.p_a_distribution(source.results, edges=edges), places)
    return _histogram(rows, len(sources), title=title, domain=[float(places[0]), float(places[-1])], axis=axis)


def _normal_bins(shares: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Edges from 0 to 1, and where they are drawn: evenly in Φ⁻¹(p), to which radii under Gaussian noise are
    proportional. On an even scale in p nearly all inputs would share the last bin."""
    known = np.concatenate([p[np.isfinite(p)] for p in shares])
    low, high = (float(ndtri(np.clip(p, 0.01, 1 - 1e-6))) for p in (known.min(), known.max()))
    first, last = min(np.floor(low / _P_A_STEP), -2), max(np.floor(high / _P_A_STEP) + 1, 8)
    places = _P_A_STEP * np.arange(first, last + 1)
    edges = ndtr(places)
    edges[0], edges[-1] = 0.0, 1.0
    return edges, places


def sigma_chart(sources: Sequence[Source]) -> Spec | None:
    """The levels of noise, where they differ from input to input."""
    levels = {k: s.levels for k, s in enumerate(sources)}
    varying = {k: values for k, values in levels.items() if np.unique(values).size > 1}
    if not varying:
        return None
    together = np.concatenate(list(varying.values()))
    edges = np.linspace(float(together.min()), float(together.max()), _SIGMA_BINS + 1)
    rows = []
    for number, values in varying.items():
        counts, _ = np.histogram(values, bins=edges)
        rows += _stairs(number, edges, counts / values.size, edges)
    return _histogram(rows, len(sources), title="noise level σ(x)", domain=[float(edges[0]), float(edges[-1])])


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, 10, 25, 50, 75, 90 % and most of some number of each input of a run: numbers that inputs really have."""

    run: int
    inputs: int
    quantiles: tuple[float, ...]


SPREAD_TITLES = ("least", "10 %", "25 %", "median", "75 %", "90 %", "most")


def p_a_spreads(sources: Sequence[Source]) -> list[Spread]:
    return [found for k, s in enumerate(sources) if (found := _spread(k, s.results.p_a)) is not None]


def sigma_spreads(sources: Sequence[Source]) -> list[Spread]:
    """Of the runs whose noise level differs from input to input."""
    found = [_spread(k, s.results.sigma) for k, s in enumerate(sources)]
    return [one for one in found if one is not None and one.quantiles[0] < one.quantiles[-1]]


def _spread(run: int, values: FloatArray) -> Spread | None:
    known = values[np.isfinite(values)]
    if not known.size:
        return None
    at = np.quantile(known, [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0], method="lower")
    return Spread(run, known.size, tuple(at.tolist()))


def _stairs(run: int, edges: FloatArray, shares: FloatArray, places: FloatArray) -> list[Spec]:
    """Points of a histogram's outline, to be joined by steps; places: where the edges are drawn."""
    rows = [
        {
            "run": run,
            "x": _short(float(places[k])),
            "x2": _short(float(places[k + 1])),
            "from": _short(float(edges[k])),
            "to": _short(float(edges[k + 1])),
            "share": _short(float(share)),
        }
        for k, share in enumerate(shares)
    ]
    return [*rows, {**rows[-1], "x": rows[-1]["x2"]}]


def _histogram(rows: list[Spec], runs: int, *, title: str, domain: list[float], axis: Spec | None = None) -> Spec:
    scale = {"domain": domain, "nice": False, "zero": False}
    x = {"field": "x", "type": "quantitative", "title": title, "scale": scale, "axis": axis or {}}
    # Fixed, so that a chart does not jump when a run is switched off.
    tallest = max(row["share"] for row in rows)
    y = {
        "field": "share",
        "type": "quantitative",
        "title": "share of inputs",
        "axis": {"format": "%"},
        "scale": {"domain": [0, tallest * 1.05]},
    }
    mark = {"interpolate": "step-after", "tooltip": None}
    return _spec(
        data={"values": rows},
        transform=[_NOT_HIDDEN],
        height=200,
        layer=[
            {
                "mark": {"type": "area", "opacity": 0.15, **mark},
                "encoding": {"x": x, "y": {**y, "stack": None}, "color": _run_colour(runs), "detail": {"field": "run"}},
            },
            {
                "mark": {"type": "line", "strokeWidth": 2, **mark},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": _run_colour(runs),
                    "strokeDash": _run_dash(runs),
                    "detail": {"field": "run"},
                },
            },
            {
                "transform": [{"filter": "datum.x < datum.x2"}],
                "mark": {"type": "rect", "opacity": 0, "tooltip": {"expr": "{bin: datum}"}},
                "encoding": {"x": x, "x2": {"field": "x2"}},
            },
        ],
    )


@dataclass(frozen=True, slots=True)
class ClassRadii:
    """Certified radii of the inputs of one class in one run; 0 where the answer is not the label."""

    run: int
    label: int
    inputs: int
    quantiles: tuple[float, ...]
    """10, 25, 50, 75 and 90 %."""


def class_radii(sources: Sequence[Source]) -> list[ClassRadii]:
    found = []
    for number, source in enumerate(sources):
        results = source.results
        if not results.has_radius:
            continue
        credited = np.where(results.correct, results.radius, 0.0)
        for label in np.unique(results.label[results.labelled]).tolist():
            own = credited[results.label == label]
            # Order statistics, not something between them: a radius that an input really has.
            at = np.quantile(own, [0.1, 0.25, 0.5, 0.75, 0.9], method="lower")
            found.append(ClassRadii(number, label, own.size, tuple(at.tolist())))
    return found


def class_chart(sources: Sequence[Source], radii: Sequence[ClassRadii]) -> Spec | None:
    """Radii by class: line from 10 to 90 %, box from 25 to 75 %, tick at the median."""
    shown = hardest(radii)
    typical = float(np.median([one.inputs for one in radii])) if radii else 0.0
    largest = max((one.quantiles[-1] for one in radii), default=0.0)
    if len(shown) < 2 or len(sources) > _MOST_BOXES or typical < _LEAST_IN_A_BOX or largest == 0:
        return None
    names = shared_inputs(sources)
    rows = [
        {
            "run": one.run,
            "class": f"{names.class_name(one.label)}",
            "order": shown.index(one.label),
            "inputs": one.inputs,
            **{f"q{k}": _down(value) for k, value in enumerate(one.quantiles)},
        }
        for one in radii
        if one.label in shown
    ]
    y = {
        "field": "order",
        "type": "ordinal",
        "title": None,
        "axis": {"labelExpr": "classes[datum.value]", "grid": False},
        "scale": {"domain": list(range(len(shown)))},
    }
    scale = {"domain": [0, largest * 1.03], "nice": False}
    x = {"type": "quantitative", "title": "certified radius", "scale": scale}
    runs = {"domain": list(range(len(sources)))}
    offset = {"yOffset": {"field": "run", "type": "nominal", "scale": runs}} if len(sources) > 1 else {}
    colour = {"color": _run_colour(len(sources))}
    tooltip = {"expr": "{box: datum}"}
    bar = 14 if len(sources) == 1 else 9
    return _spec(
        params=[{"name": "classes", "value": [names.class_name(label) for label in shown]}],
        data={"values": rows},
        transform=[_NOT_HIDDEN],
        height=len(shown) * max(24, 12 * len(sources) + 6) + 10,
        layer=[
            {
                "mark": {"type": "rule", "strokeWidth": 1.5, "tooltip": tooltip},
                "encoding": {"y": y, **offset, "x": {**x, "field": "q0"}, "x2": {"field": "q4"}, **colour},
            },
            {
                "mark": {"type": "bar", "height": bar, "opacity": 0.75, "tooltip": tooltip},
                "encoding": {"y": y, **offset, "x": {**x, "field": "q1"}, "x2": {"field": "q3"}, **colour},
            },
            {
                "mark": {"type": "tick", "thickness": 2, "size": bar + 2, "color": _TEXT, "tooltip": tooltip},
                "encoding": {"y": y, **offset, "x": {**x, "field": "q2"}},
            },
        ],
    )


def hardest(radii: Sequence[ClassRadii]) -> list[int]:
    """The labels in order; where there are too many to draw, those with the smallest median radius."""
    labels = sorted({one.label for one in radii})
    if len(labels) <= MOST_CLASSES:
        return labels
    median = {label: min(one.quantiles[2] for one in radii if one.label == label) for label in labels}
    return sorted(sorted(labels, key=lambda label: median[label])[:MOST_CLASSES])


def in_cells(comparison: Comparison) -> bool:
    """Whether inputs are counted in the cells of a grid instead of being drawn one by one."""
    return len(comparison) > _MOST_DOTS


def comparison_chart(comparison: Comparison, names: Source, *, run_a: int, run_b: int) -> Spec:
    """Every input that counts by its radius in B (across) and in A (up); above the diagonal A certifies more.

    run_a, run_b: whose colours the dots have: that of the run with the larger radius.
    """
    a, b = comparison.credited_a, comparison.credited_b
    largest = max(float(a.max(initial=0.0)), float(b.max(initial=0.0))) or 1.0
    scale = {"domain": [0, largest * 1.03], "nice": False}
    x = {"field": "b", "type": "quantitative", "title": "radius in B", "scale": scale}
    y = {"field": "a", "type": "quantitative", "title": "radius in A", "scale": scale}
    diagonal = {
        "data": {"values": [{"a": 0, "b": 0}, {"a": largest * 1.03, "b": largest * 1.03}]},
        "mark": {"type": "line", "color": _FAINT, "strokeDash": [4, 4], "strokeWidth": 1, "tooltip": None},
        "encoding": {"x": x, "y": y},
    }
    colours = [f"var(--run-{run_a % COLOURS})", _FAINT, f"var(--run-{run_b % COLOURS})"]
    marks = _heat(a, b, largest, scale) if in_cells(comparison) else _dots(comparison, names, x, y, colours)
    return _spec(height=360, layer=[diagonal, marks])


def _dots(comparison: Comparison, names: Source, x: Spec, y: Spec, colours: list[str]) -> Spec:
    rows = [
        {
            "a": _down(float(a)),
            "b": _down(float(b)),
            "kind": int(a > b) - int(a < b),
            "text": f"input {index}, {names.inputs.class_name(label) if label >= 0 else 'no label'}: "
            f"A {format_down_as_read(float(a), decimals=3)}, B {format_down_as_read(float(b), decimals=3)}",
        }
        for index, label, a, b in zip(
            comparison.index.tolist(),
            comparison.label.tolist(),
            comparison.credited_a,
            comparison.credited_b,
            strict=True,
        )
    ]
    colour = {
        "field": "kind",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": [1, 0, -1], "range": colours},
    }
    return {
        "data": {"values": rows},
        "mark": {
            "type": "point",
            "filled": True,
            "size": 34,
            "opacity": 0.7,
            "tooltip": {"expr": "{text: datum.text}"},
        },
        "encoding": {"x": x, "y": y, "color": colour},
    }


def _heat(a: FloatArray, b: FloatArray, largest: float, scale: Spec) -> Spec:
    """How many inputs lie in each cell of a grid: thousands of dots would hide each other."""
    edges = np.linspace(0.0, largest, _CELLS + 1)
    counts, _, _ = np.histogram2d(b, a, bins=[edges, edges])
    rows = [
        {
            "b": _short(float(edges[i])),
            "b2": _short(float(edges[i + 1])),
            "a": _short(float(edges[j])),
            "a2": _short(float(edges[j + 1])),
            "inputs": int(counts[i, j]),
            "text": f"{int(counts[i, j]):,} {'input' if counts[i, j] == 1 else 'inputs'}\n"
            f"A {edges[j]:.3f} to {edges[j + 1]:.3f}, B {edges[i]:.3f} to {edges[i + 1]:.3f}",
        }
        for i, j in np.argwhere(counts > 0).tolist()
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "rect", "color": "var(--note)", "tooltip": {"expr": "{text: datum.text}"}},
        "encoding": {
            "x": {"field": "b", "type": "quantitative", "scale": scale, "title": "radius in B"},
            "x2": {"field": "b2"},
            "y": {"field": "a", "type": "quantitative", "scale": scale, "title": "radius in A"},
            "y2": {"field": "a2"},
            "opacity": {
                "field": "inputs",
                "type": "quantitative",
                "legend": None,
                "scale": {"type": "log", "range": [0.25, 1]},
            },
        },
    }


def dash(number: int) -> list[int]:
    return list(DASHES[number // COLOURS % len(DASHES)])


def _run_colour(runs: int) -> Spec:
    return {
        "field": "run",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": list(range(runs)), "range": [f"var(--run-{k % COLOURS})" for k in range(runs)]},
    }


def _run_dash(runs: int) -> Spec:
    # Vega takes an empty list of dashes for "none given" and falls back to its own.
    return {
        "field": "run",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": list(range(runs)), "range": [dash(k) or [1, 0] for k in range(runs)]},
    }


def _spec(*, height: int, params: Sequence[Spec] = (), **parts: Any) -> Spec:
    axis = {
        "labelColor": _FAINT,
        "titleColor": _TEXT,
        "gridColor": _GRID,
        "domainColor": _FAINT,
        "tickColor": _FAINT,
        "labelFontSize": 12,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelLimit": 140,
        "gridOpacity": 1,
    }
    # As many labels as there is room for, from a telephone to a wide screen.
    along = {"tickCount": {"expr": "max(3, floor(width / 80))"}, "labelOverlap": True, "labelFlush": False}
    return {
        "width": "container",
        "height": height,
        "background": "transparent",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": 4,
        "params": [{"name": "hidden", "value": []}, *params],
        "config": {
            "aria": False,
            "font": "system-ui, sans-serif",
            "axis": axis,
            "axisX": along,
            "view": {"stroke": None},
        },
        **parts,
    }


def _short(value: float) -> float:
    """Seven digits, enough for any screen; what is printed is printed from the full number."""
    return float(f"{value:.7g}")


def _down(value: float) -> float:
    """As `_short`, but never above the value: for radii and lower bounds."""
    return float(_SEVEN_DIGITS_DOWN.create_decimal_from_float(value))
