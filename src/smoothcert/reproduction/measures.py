"""What can be read off a result and set beside a published number."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Measure:
    """title: for people. by_radius: a number for each radius. needs_other: compares the result with a second one.

    rounds_down: a promise, printed towards zero like everywhere else; other numbers go to nearest.
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
"""By the name recipes use. The five of a comparison with a gold standard are those of Cohen et al., table 4."""
