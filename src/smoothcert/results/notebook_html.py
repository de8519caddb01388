"""Results in one line, and as HTML for a notebook: outcomes, settings, and the curve as inline SVG.

The HTML is self-contained, runs no script, and takes its colours from the notebook, light or dark.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from smoothcert.analysis import metrics
from smoothcert.analysis.html_tables import render_html, render_notes
from smoothcert.analysis.tables import Cell, Column, Kind, Table
from smoothcert.numerics.rounding import format_down_as_read, format_nearest, round_step
from smoothcert.records import FloatArray, Outcome
from smoothcert.runs.result_columns import OUTCOMES, ResultColumns
from smoothcert.spec import ConstantLevel

if TYPE_CHECKING:
    from smoothcert.results.results import Results

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 360, 210, 44, 40, 10, 12
_MOST_STEPS = 400
# Blue that is readable on white and on dark grey.
_CURVE = "#2f81c7"


def describe_in_a_line(results: Results) -> str:
    """Name, number of inputs, outcomes, accuracy and settings."""
    if not len(results):
        return f"{results.name}: 0 inputs"
    columns = results.columns
    parts = [f"{len(results)} input{'s' if len(results) > 1 else ''}"]
    parts += [f"{count} {outcome}" for outcome, count in _count_outcomes(columns).items()]
    return f"{results.name}: " + "; ".join(
        ", ".join(part) for part in (parts, _list_numbers(columns), _list_settings(results)) if part
    )


def render_results(results: Results) -> str:
    """A table of outcomes beside the curve, and what a reader should know below."""
    head = f"<div><b>{escape(results.name)}</b> {escape(', '.join(_list_settings(results)))}</div>"
    if not len(results):
        return f"<div>{head}<div>0 inputs</div></div>"
    columns = results.columns
    numbers = escape(", ".join(_list_numbers(columns)))
    curve = f"<div>{_draw_curve(columns)}</div>" if columns.has_radius else ""
    return (
        f'<div>{head}<div style="display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start">'
        f"<div>{render_html(_make_outcome_table(columns))}<div>{numbers}</div></div>{curve}</div>"
        f"{render_notes(tuple(columns.notes))}</div>"
    )


def _count_outcomes(columns: ResultColumns) -> dict[Outcome, int]:
    """How many inputs have each outcome that occurs."""
    counts = {outcome: int(columns.is_outcome(outcome).sum()) for outcome in OUTCOMES}
    return {outcome: count for outcome, count in counts.items() if count}


def _list_numbers(columns: ResultColumns) -> list[str]:
    if not columns.labelled.all():
        return [f"mean radius {_round_down(metrics.mean_radius(columns))}"] if columns.has_radius else []
    numbers = [f"accuracy {format_nearest(metrics.accuracy(columns), decimals=3)}"]
    if columns.has_radius:
        numbers.append(f"ACR {_round_down(metrics.average_certified_radius(columns))}")
    return numbers


def _list_settings(results: Results) -> list[str]:
    spec = results.spec
    if spec is None:
        return ["a log"]
    symbol = spec.noise.kind.facts.level_symbol
    sigma = f"{symbol}={spec.sigma.level:g}" if isinstance(spec.sigma, ConstantLevel) else f"{symbol} by input"
    certificate = [spec.certificate_text] if spec.certificates else []
    settings = [f"{spec.noise.kind} noise", sigma, *certificate, f"n={spec.question.n}"]
    settings += [f"alpha={spec.alpha:g}"] if spec.noise.kind.sampled else ["certain"]
    return [setting for setting in settings if setting != results.name]


def _round_down(value: float) -> str:
    return format_down_as_read(value, decimals=3)


def _make_outcome_table(columns: ResultColumns) -> Table:
    """Rows are outcomes; where labels are known, how many of the answers are correct."""
    labelled = bool(columns.labelled.all())
    correct: list[Column] = [Column("correct", "correct", Kind.COUNT)] if labelled else []
    rows: list[tuple[Cell, ...]] = []
    for outcome, count in _count_outcomes(columns).items():
        answered = columns.is_outcome(outcome) & columns.decided
        right = int((answered & columns.correct).sum()) if answered.any() else None
        rows.append((outcome.value, count, count / len(columns), right))
    return Table(
        columns=(
            Column("outcome", "outcome", Kind.NAME),
            Column("inputs", "inputs", Kind.COUNT),
            Column("share", "share", Kind.FRACTION),
            *correct,
        ),
        rows=tuple(rows if labelled else [row[:3] for row in rows]),
    )


def _draw_curve(columns: ResultColumns) -> str:
    """The share of inputs with at least this radius: of those answered correctly, or of all if labels are missing."""
    labelled = bool(columns.labelled.all())
    radii = np.sort(columns.radius[columns.correct] if labelled else columns.radius[columns.decided])
    x, y = _make_steps(radii, len(columns))
    most = float(x[-1]) * 1.04 or 1.0
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(radius: float, share: float) -> str:
        return f"{_LEFT + across * radius / most:.1f},{_TOP + down * (1 - share):.1f}"

    corners = [place(0.0, float(y[0]))]
    for k in range(len(x)):
        after = float(y[k + 1]) if k + 1 < len(y) else 0.0
        corners += [place(float(x[k]), float(y[k])), place(float(x[k]), after)]
    corners.append(place(most, 0.0))
    title = "certified accuracy" if labelled else "share certified"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title} over the radius" '
        f'style="max-width:100%" font-family="sans-serif" font-size="11" fill="currentColor">'
        f"{_draw_axes(most, across, down)}"
        f'<polyline points="{" ".join(corners)}" fill="none" stroke="{_CURVE}" stroke-width="2"/>'
        f'<text x="{_LEFT + across / 2}" y="{_HEIGHT - 6}" text-anchor="middle">radius '
        f"({escape(columns.norm_symbol)})</text>"
        f'<text x="11" y="{_TOP + down / 2}" text-anchor="middle" '
        f'transform="rotate(-90 11 {_TOP + down / 2})">{title}</text></svg>'
    )


def _make_steps(radii: FloatArray, inputs: int) -> tuple[FloatArray, FloatArray]:
    """Radii at which the curve falls, ascending, and its height up to each of them. Many are thinned, downwards."""
    x = np.unique(np.append(radii, 0.0))
    if x.size > _MOST_STEPS:
        x = x[np.unique(np.linspace(0, x.size - 1, _MOST_STEPS).astype(np.int64))]
    return x, (radii.size - np.searchsorted(radii, x, side="left")) / inputs


def _draw_axes(most: float, across: int, down: int) -> str:
    """Lines and numbers: shares 0, ½ and 1, and a few round radii."""
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = _TOP + down * (1 - share)
        parts.append(_line(_LEFT, y, _LEFT + across, y, 0.55 if share == 0 else 0.2))
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:g}</text>')
    step = round_step(most / 5, factors=(1.0, 2.0, 5.0))
    for k in range(int(most / step) + 1):
        x = _LEFT + across * k * step / most
        parts.append(_line(x, _TOP + down, x, _TOP + down + 4, 0.55))
        parts.append(f'<text x="{x:.1f}" y="{_TOP + down + 16}" text-anchor="middle">{k * step:g}</text>')
    return "".join(parts)


def _line(x1: float, y1: float, x2: float, y2: float, opacity: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        f'stroke-opacity="{opacity}"/>'
    )
