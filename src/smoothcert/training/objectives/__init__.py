"""The objectives, one per file.

To add an objective, add a module to this package with a class that satisfies `Objective`. It is found by its attribute
`noises_allowed`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from smoothcert.settings_text import collect_settings, parse_settings
from smoothcert.training.objective import Objective

__all__ = ["OBJECTIVES", "collect_facts", "parse_objective"]


def _find_objectives() -> dict[str, type[Objective]]:
    """Import every module of this package and collect the objectives that it defines, by name."""
    objectives: dict[str, type[Objective]] = {}
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        own_classes = [
            member for member in vars(module).values() if getattr(member, "__module__", "") == module.__name__
        ]
        objectives |= {member.name: member for member in own_classes if hasattr(member, "noises_allowed")}
    return objectives


OBJECTIVES = _find_objectives()
_ALIASES = {alias: kind for kind in OBJECTIVES.values() for alias in getattr(kind, "aliases", ())}


def parse_objective(text: str) -> Objective:
    """Parse an objective: its name and settings, such as "consistency" or "smoothadv:radius=0.5,method=ddn"."""
    return parse_settings(text, OBJECTIVES | _ALIASES, what="objective")


def collect_facts(objective: Objective) -> dict[str, Any]:
    """Name and settings as JSON values. A training is resumed only if they are equal."""
    return {"name": objective.name, **collect_settings(objective)}
