"""Either a result or a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, settings

from smoothcert.errors import SmoothcertError

Result = TypeVar("Result")

same_every_time = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
"""Hostile input is tried the same way every time."""


def foreseen(action: Callable[[], Result]) -> Result | None:
    """What it gives; None where it raises one of smoothcert's own errors, with a sentence. All else comes through."""
    try:
        return action()
    except SmoothcertError as error:
        if len(str(error).split()) < 4:
            raise AssertionError(f"{error!r} is no sentence") from error
        return None
