"""Parts that all charts of a report share: colours, dashes, axes and short numbers.

Charts are Vega-Lite specifications. Colours are CSS variables of the page, so one drawing serves light, dark and print.
Names from outside are values of data, never part of an expression. Every chart has the parameter `hidden`, the numbers
of the runs that the reader has switched off.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context
from typing import Any

Spec = dict[str, Any]

COLOURS = 7
"""Number of run colours in the style sheet. Further runs repeat a colour with the next dash."""
DASHES: tuple[list[int], ...] = ([], [6, 3], [2, 2], [8, 3, 2, 3])
NOT_HIDDEN = {"filter": "indexof(hidden, datum.run) < 0"}
TEXT, FAINT, GRID = "var(--text)", "var(--faint)", "var(--rule)"
_SEVEN_DIGITS_DOWN = Context(prec=7, rounding=ROUND_FLOOR)


def run_dash(number: int) -> list[int]:
    return list(DASHES[number // COLOURS % len(DASHES)])


def run_colour(number: int) -> str:
    return f"var(--run-{number % COLOURS})"


def encode_runs(runs: int, *, dashes: bool = False) -> Spec:
    """Encodings that draw each run in its colour, and with its dash."""
    # Vega reads an empty list of dashes as "none given" and uses its default.
    ranges: dict[str, list[Any]] = {"color": [run_colour(k) for k in range(runs)]}
    if dashes:
        ranges["strokeDash"] = [run_dash(k) or [1, 0] for k in range(runs)]
    return {"detail": {"field": "run"}} | {
        channel: {
            "field": "run",
            "type": "nominal",
            "legend": None,
            "scale": {"domain": list(range(runs)), "range": by_run},
        }
        for channel, by_run in ranges.items()
    }


def make_spec(*, height: int, params: Sequence[Spec] = (), **parts: Any) -> Spec:
    axis = {
        "labelColor": FAINT,
        "titleColor": TEXT,
        "gridColor": GRID,
        "domainColor": FAINT,
        "tickColor": FAINT,
        "labelFontSize": 12,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelLimit": 140,
        "gridOpacity": 1,
    }
    # As many labels as fit, from a telephone to a wide screen.
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


def shorten(value: float) -> float:
    """Seven digits, enough for any screen. Printed figures are computed from the full number."""
    return float(f"{value:.7g}")


def shorten_down(value: float) -> float:
    """As `shorten`, but never above the value: for radii and lower bounds."""
    return float(_SEVEN_DIGITS_DOWN.create_decimal_from_float(value))
