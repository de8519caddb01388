"""Checks of settings that objectives and schedules share, and the warm-up."""

from __future__ import annotations

import math

from smoothcert.errors import InputError


def check_number(what: str, value: float, *, least: float = 0.0, most: float = math.inf) -> None:
    if not (isinstance(value, (int, float)) and math.isfinite(value) and least <= value <= most):
        raise InputError(f"{what} is {value}: expected a finite number, {_describe_range(least, most)}")


def check_count(what: str, value: int, *, least: int = 1, most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{what} is {value}: expected a whole number, {_describe_range(least, most)}")


def warm_up_factor(progress: float, *, warm_up: float) -> float:
    """Grows linearly from 0 at the start of the training to 1 at the fraction `warm_up` of it."""
    return 1.0 if progress >= warm_up else progress / warm_up


def _describe_range(least: float, most: float) -> str:
    return f"at least {least:g}" if math.isinf(most) else f"between {least:g} and {most:g}"
