"""Fill the Vega-Lite specifications of templates/charts.json with data, and shorten numbers for charts.

A string "$name" in the file is replaced by a value or by an entry of its "parts". Colours are CSS variables of the
page, so one drawing serves light, dark and print. Names from outside are values of data, never part of an expression.
Every chart has the parameter `hidden`, the numbers of the runs that the reader has switched off.
"""

from __future__ import annotations

import json
from decimal import ROUND_FLOOR, Context
from functools import cache
from pathlib import Path
from typing import Any

Spec = dict[str, Any]

COLOURS = 7
"""Number of run colours in the style sheet. Further runs repeat a colour with the next dash."""
DASHES: tuple[list[int], ...] = ([], [6, 3], [2, 2], [8, 3, 2, 3])
_FILE = Path(__file__).parent / "templates" / "charts.json"
_SEVEN_DIGITS_DOWN = Context(prec=7, rounding=ROUND_FLOOR)


def run_dash(number: int) -> list[int]:
    return list(DASHES[number // COLOURS % len(DASHES)])


def run_colour(number: int) -> str:
    return f"var(--run-{number % COLOURS})"


def make_chart(name: str, *, height: int, runs: int = 0, **values: Any) -> Spec:
    """The chart of this name. runs: how many have a colour in it. values: by the names in the file."""
    by_run = {
        "runs": list(range(runs)),
        "colours": [run_colour(k) for k in range(runs)],
        # Vega reads an empty list of dashes as "none given" and uses its default.
        "dashes": [run_dash(k) or [1, 0] for k in range(runs)],
    }
    return {**fill_part("base", height=height), **fill_part(name, **by_run, **values)}


def fill_part(name: str, **values: Any) -> Spec:
    """The entry of the file, filled. A key whose value is None is left out."""
    filled: Spec = _fill(_read_file()[name], values)
    return filled


def _fill(part: Any, values: dict[str, Any]) -> Any:
    # Values are inserted as they are: text from outside that starts with "$" is not replaced.
    if isinstance(part, str) and part.startswith("$"):
        name = part[1:]
        return values[name] if name in values else _fill(_read_file()["parts"][name], values)
    if isinstance(part, list):
        return [_fill(inner, values) for inner in part]
    if isinstance(part, dict):
        filled = {key: _fill(inner, values) for key, inner in part.items()}
        return {key: inner for key, inner in filled.items() if inner is not None or part[key] is None}
    return part


@cache
def _read_file() -> Spec:
    document: Spec = json.loads(_FILE.read_text(encoding="utf-8"))
    return document


def shorten(value: float) -> float:
    """Seven digits, enough for any screen. Printed figures are computed from the full number."""
    return float(f"{value:.7g}")


def shorten_down(value: float) -> float:
    """As `shorten`, but never above the value: for radii and lower bounds."""
    return float(_SEVEN_DIGITS_DOWN.create_decimal_from_float(value))
