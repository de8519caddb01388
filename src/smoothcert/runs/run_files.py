"""Files that a run keeps beside its results, and places of what was given as a Python object."""

from __future__ import annotations

from pathlib import Path

import msgspec

from smoothcert.errors import RunError
from smoothcert.spec import DataSpec, RuleLevel, RunSpec

SIGMA_RULE = "sigma.safetensors"
"""The copy of the rule for sigma in the directory of a run."""
INPUTS = "inputs.npz"
"""Inputs and labels that were given as arrays, in the directory of a run."""
SELECTION = "selection.json"
"""In place of a manifest: what was requested of a selected run, whose directory holds several ordinary runs."""
HAS_PARTS = "has a noise level chosen by a selector: this is only possible for its parts, which are ordinary runs"


def is_selected(path: Path) -> bool:
    """Whether this is the directory of a selected run."""
    return (path / SELECTION).is_file()


def locate_data(run: Path, data: DataSpec) -> DataSpec:
    """Where the data of a run is: in its directory, if it is kept there, wherever that directory is now."""
    kept = run / INPUTS
    return msgspec.structs.replace(data, place=str(kept)) if kept.exists() else data


def place_of_object(name: str) -> str:
    """What a spec has in place of a file or code for an object that has no place."""
    return f"<{name.replace(':', ' ')}>"  # a colon would be read as the name of code


def is_object(place: str) -> bool:
    """Whether a spec says this of what has no place."""
    return place.startswith("<") and place.endswith(">") and not Path(place).exists()


def check_places(spec: RunSpec, run: Path) -> None:
    """Refuse to load what was a Python object when the run was made."""
    again = f"or call {spec.task}(…, out={str(run)!r}) again in Python, with the same objects"
    if is_object(spec.model.place):
        raise RunError(
            f"the model of {run} was a Python object, {spec.model.place}, which only its own program has: name it by "
            f"--model, as a file or as package.module:attribute, {again}"
        )
    if isinstance(spec.sigma, RuleLevel) and is_object(spec.sigma.place):
        raise RunError(
            f"the rule for sigma of {run} was a Python object, {spec.sigma.place}, which only its own program has: "
            f"name one as package.module:attribute when a run is made, {again}"
        )
