"""Small selected runs of the bundled digits by models that need no training, made in this process."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

from smoothcert.errors import InterruptedRunError
from smoothcert.records import CertifiedPoint
from smoothcert.records.selection import choose_upper_alpha
from smoothcert.runs.building import RunParts
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.selected_execution import NamedObjects, make_selected_run
from smoothcert.runs.selected_run import SelectedRun
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.spec import DataSpec, FixedN, ModelSpec, NoiseSpec, RunSpec

LEVELS = (0.05, 0.1, 0.2)


def selected_spec(**changed: Any) -> SelectedSpec:
    """n0=10, n=60, α=.05 on five inputs, with a seed; every value can be changed."""
    question = changed.pop("question", FixedN(n=60, n0=10))
    values: dict[str, Any] = {
        "task": "certify",
        "selector": ModelSpec(place="selector_models:by_brightness"),
        "selector_sigma": 0.1,
        "levels": LEVELS,
        "models": (ModelSpec(place="sample_models:digits_by_brightness"),),
        "data": DataSpec(place="digits", skip=60, max_inputs=5),
        "noise": NoiseSpec(),
        "question": question,
        "selector_question": question,
        "alpha": 0.05,
        "selector_alpha": 0.025,
        "sampled": len(LEVELS),
        "selector_bounds": "multi-class",
        "certificates": ("selected", "selected-published"),
        "seed": 7,
        "batch": 256,
    }
    values |= changed
    if "upper_alpha" not in values:  # as the command line and Python calls choose it
        values["upper_alpha"] = choose_upper_alpha(
            values["alpha"], values["selector_alpha"], bounds=values["selector_bounds"], forms=values["certificates"]
        )
    return SelectedSpec(**values)


class StoppingMaker:
    """Makes parts until `parts` of them are complete, and stops after the first shard of the next one."""

    def __init__(self, parts: int | None = None) -> None:
        self.left, self.made = parts, list[str]()

    def __call__(self, spec: RunSpec, out: Path, /, *, parts: RunParts) -> None:
        stop = threading.Event()
        if self.left == 0:
            stop.set()
        with prepare_run(spec, out, parts=parts) as run:
            execute_run(run, stop=stop)
        if stop.is_set():
            raise InterruptedRunError(f"stopped after {out.name}")
        self.left = None if self.left is None else self.left - 1
        self.made.append(out.name)


def make_selected(spec: SelectedSpec, out: Path, *, maker: StoppingMaker | None = None) -> SelectedRun:
    return make_selected_run(spec, out, objects=NamedObjects(), make_part=maker or StoppingMaker())


def without_seconds(points: list[CertifiedPoint] | tuple[CertifiedPoint, ...]) -> list[CertifiedPoint]:
    return [dataclasses.replace(point, seconds=0.0) for point in points]


def read_claims(run: Path) -> list[dict[str, Any]]:
    """The claims as they are stored, without seconds."""
    points = json.loads((run / "claims.json").read_text())["points"]
    return [{name: value for name, value in point.items() if name != "seconds"} for point in points]
