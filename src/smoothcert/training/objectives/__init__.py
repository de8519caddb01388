"""The objectives, one a file. A new one is a file here and a line in `OBJECTIVES`."""

from __future__ import annotations

from typing import Any

from smoothcert.settings_text import parse_worded, settings_of
from smoothcert.training.objective import Objective
from smoothcert.training.objectives.adversarial import Adversarial
from smoothcert.training.objectives.augmentation import NoiseAugmentation
from smoothcert.training.objectives.consistency import Consistency
from smoothcert.training.objectives.macer import Macer
from smoothcert.training.objectives.smoothadv import SmoothAdv
from smoothcert.training.objectives.smoothmix import SmoothMix
from smoothcert.training.objectives.stability import Stability

__all__ = [
    "OBJECTIVES",
    "Adversarial",
    "Consistency",
    "Macer",
    "NoiseAugmentation",
    "SmoothAdv",
    "SmoothMix",
    "Stability",
    "objective_facts",
    "parse_objective",
]

OBJECTIVES: dict[str, type[Objective]] = {
    kind.name: kind for kind in (NoiseAugmentation, Adversarial, SmoothAdv, Macer, Stability, Consistency, SmoothMix)
}
_ALSO_CALLED: dict[str, type[Objective]] = {"gaussian": NoiseAugmentation}


def parse_objective(text: str) -> Objective:
    """An objective from its name and settings, as "consistency" or "smoothadv:radius=0.5,method=ddn"."""
    return parse_worded(text, OBJECTIVES | _ALSO_CALLED, what="objective")


def objective_facts(objective: Objective) -> dict[str, Any]:
    """Everything it depends on, as plain JSON: a training is resumed only if this is equal."""
    return {"name": objective.name, **settings_of(objective)}
