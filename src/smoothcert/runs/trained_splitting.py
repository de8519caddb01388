"""Whether a network was trained on inputs that are split as in this run: what its checkpoint says."""

from __future__ import annotations

from smoothcert.models.zoo import locate_model
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import ConstantLevel, RunSpec


def describe_other_splitting(spec: RunSpec, smoothed: SmoothedClassifier) -> str:
    """What the training did otherwise than this run of all evaluations; "" if nothing, or if it is not known."""
    place = locate_model(spec.model.weights or spec.model.place)
    if place.suffix.lower() != ".safetensors" or not place.is_file():
        return ""
    from smoothcert.models.checkpoints import read_training_facts  # needs torch, as such a file does

    trained = read_training_facts(place)
    here = {"grid": smoothed.grid, "offset_seed": smoothed.seed}
    if isinstance(spec.sigma, ConstantLevel):
        here = {"evaluations": spec.question.n, **here}
    names = {"evaluations": "{} evaluations", "grid": "a grid of {} levels", "offset_seed": "offsets by seed {}"}
    changed = [name for name, value in here.items() if trained.get(name, value) != value]
    if not changed:
        return ""
    before, now = (", ".join(names[name].format(facts[name]) for name in changed) for facts in (trained, here))
    return f"{place.name} was trained for {before}, and this run has {now}, which may cost accuracy"
