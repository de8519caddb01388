"""The choices of a caller of this room. This module imports nothing heavy, so the command line can import it first."""

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
    """A high-probability bound on a test set's certified accuracy, wrong with probability at most rho.

    alpha: error probability of one certificate; None uses that of the run.
    """

    method: BoundMethod = BoundMethod.EXACT
    rho: float = 0.001
    alpha: float | None = None
