"""How long work tells its caller how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One report. total: None while the end is not known; done and total are bytes unless `message` says otherwise."""

    message: str
    done: int = 0
    total: int | None = None


ProgressCallback = Callable[[Progress], None]


def silent(_: Progress, /) -> None:
    """The callback of a caller who does not want to know."""
