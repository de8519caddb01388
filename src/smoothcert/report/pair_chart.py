"""The chart of two runs: every input by its radius in B (across) and in A (up)."""

from __future__ import annotations

import numpy as np

from smoothcert.analysis.comparison import Comparison
from smoothcert.analysis.notes import count_inputs
from smoothcert.numerics.rounding import format_down_as_read
from smoothcert.records import FloatArray
from smoothcert.report.chart_parts import FAINT, Spec, make_spec, run_colour, shorten, shorten_down
from smoothcert.report.sources import Inputs

_MOST_DOTS = 1500
_CELLS = 50


def is_in_cells(comparison: Comparison) -> bool:
    """Whether inputs are counted in the cells of a grid instead of being drawn one by one."""
    return len(comparison) > _MOST_DOTS


def comparison_chart(comparison: Comparison, inputs: Inputs, *, run_a: int, run_b: int) -> Spec:
    """Every input that counts; above the diagonal A certifies more. A dot has the colour of the run with the larger
    radius."""
    a, b = comparison.credited_a, comparison.credited_b
    largest = max(float(a.max(initial=0.0)), float(b.max(initial=0.0))) or 1.0
    scale = {"domain": [0, largest * 1.03], "nice": False}
    x = {"field": "b", "type": "quantitative", "title": "radius in B", "scale": scale}
    y = {"field": "a", "type": "quantitative", "title": "radius in A", "scale": scale}
    diagonal = {
        "data": {"values": [{"a": 0, "b": 0}, {"a": largest * 1.03, "b": largest * 1.03}]},
        "mark": {"type": "line", "color": FAINT, "strokeDash": [4, 4], "strokeWidth": 1, "tooltip": None},
        "encoding": {"x": x, "y": y},
    }
    if is_in_cells(comparison):
        marks = _draw_cells(a, b, largest, x, y)
    else:
        marks = _draw_dots(comparison, inputs, x, y, [run_colour(run_a), FAINT, run_colour(run_b)])
    return make_spec(height=360, layer=[diagonal, marks])


def _draw_dots(comparison: Comparison, inputs: Inputs, x: Spec, y: Spec, colours: list[str]) -> Spec:
    columns = (comparison.index, comparison.label, comparison.credited_a, comparison.credited_b)
    rows = [
        {
            "a": shorten_down(a),
            "b": shorten_down(b),
            "kind": int(a > b) - int(a < b),
            "text": f"input {index}, {inputs.class_name(label) if label >= 0 else 'no label'}: "
            f"A {format_down_as_read(a, decimals=3)}, B {format_down_as_read(b, decimals=3)}",
        }
        for index, label, a, b in zip(*(column.tolist() for column in columns), strict=True)
    ]
    scale = {"domain": [1, 0, -1], "range": colours}
    tooltip = {"expr": "{text: datum.text}"}
    return {
        "data": {"values": rows},
        "mark": {"type": "point", "filled": True, "size": 34, "opacity": 0.7, "tooltip": tooltip},
        "encoding": {"x": x, "y": y, "color": {"field": "kind", "type": "nominal", "legend": None, "scale": scale}},
    }


def _draw_cells(a: FloatArray, b: FloatArray, largest: float, x: Spec, y: Spec) -> Spec:
    """The number of inputs in each cell of a grid, because thousands of dots would cover each other."""
    edges = np.linspace(0.0, largest, _CELLS + 1)
    counts, _, _ = np.histogram2d(b, a, bins=[edges, edges])
    rows = [
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
    opacity = {"type": "quantitative", "legend": None, "scale": {"type": "log", "range": [0.25, 1]}}
    return {
        "data": {"values": rows},
        "mark": {"type": "rect", "color": "var(--note)", "tooltip": {"expr": "{text: datum.text}"}},
        "encoding": {
            "x": x,
            "x2": {"field": "b2"},
            "y": y,
            "y2": {"field": "a2"},
            "opacity": {"field": "inputs", **opacity},
        },
    }
