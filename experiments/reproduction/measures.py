"""Measures that a recipe can compare with a published number."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity computed from a result.

    title: shown in tables. by_radius: one number per radius. needs_other: compares two results. rounds_down: a
    guarantee, printed rounded down; other numbers are rounded to nearest.
    """

    title: str
    by_radius: bool = False
    needs_other: bool = False
    rounds_down: bool = False


MEASURES = MappingProxyType(
    {
        "acr": Measure("ACR", rounds_down=True),
        "accuracy": Measure("accuracy"),
        "certified": Measure("certified at", by_radius=True),
        "abstention": Measure("abstained"),
        "misclassification": Measure("misclassified"),
        "class_spread": Measure("spread over classes"),
        "largest_radius": Measure("largest radius", rounds_down=True),
        "radius_ratio": Measure("mean ratio of radii", needs_other=True),
        "acr_ratio": Measure("ratio of ACRs", needs_other=True),
        "time_ratio": Measure("ratio of times", needs_other=True),
        "correct_accurate": Measure("correct, accurate", needs_other=True),
        "correct_inaccurate": Measure("correct, inaccurate", needs_other=True),
        "incorrect_accurate": Measure("incorrect, accurate", needs_other=True),
        "incorrect_inaccurate": Measure("incorrect, inaccurate", needs_other=True),
        "abstain": Measure("abstain", needs_other=True),
    }
)
"""Measures by their name in recipes. The last five are the columns of Cohen et al. 2019, table 4."""
