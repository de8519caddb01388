"""The choices a caller of this room has, without the weight of what carries them out."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class TableFormat(enum.StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"
    JSON = "json"


class PlotKind(enum.StrEnum):
    ACCURACY = "accuracy"
    ENVELOPE = "envelope"
    P_A = "p-a"
    CLASSES = "classes"


class BoundMethod(enum.StrEnum):
    EXACT = "exact"
    BERNSTEIN = "bernstein"


@dataclass(frozen=True, slots=True)
class BoundChoice:
    """Which high-probability bound on a test set's certified accuracy, wrong with probability at most rho.

    alpha: error probability of one certificate; None takes the one the run states.
    """

    method: BoundMethod = BoundMethod.EXACT
    rho: float = 0.001
    alpha: float | None = None
