"""Settings that objectives and schedules share: how they are checked, and how a strength grows."""

from __future__ import annotations

import math

from smoothcert.errors import InputError


def check_number(what: str, value: float, *, least: float = 0.0, most: float = math.inf) -> None:
    if not (isinstance(value, (int, float)) and math.isfinite(value) and least <= value <= most):
        raise InputError(f"{what} is {value}; give a finite number, {_range(least, most)}")


def check_count(what: str, value: int, *, least: int = 1, most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{what} is {value}; give a whole number, {_range(least, most)}")


def grown(progress: float, *, warm_up: float) -> float:
    """How much of its full strength something has: from 0 at the start to 1 once the share `warm_up` is done."""
    return 1.0 if progress >= warm_up else progress / warm_up


def _range(least: float, most: float) -> str:
    return f"at least {least:g}" if math.isinf(most) else f"between {least:g} and {most:g}"
