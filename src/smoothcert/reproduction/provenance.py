"""What a run says itself about the files it was made with, beside those that lie there now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from smoothcert.reproduction.contents import rule_digest
from smoothcert.reproduction.plan import Step
from smoothcert.runs.store import RunStore, read_manifest


@dataclass(frozen=True, slots=True)
class Promised:
    """What a run has promised in a memory. key: digest of what the memory belongs to. claims: how many it must hold."""

    memory: str
    key: str
    claims: int


def contradictions(step: Step, directory: Path, *, logs: Path | None) -> list[str]:
    """A sentence for each file that is not the one the finished run of this step was made with, as far as manifests and
    file names tell: the rule for sigma by its digest, the memory by being there.
    """
    run = step.place(directory, logs)
    if not RunStore.exists(run):
        return []
    found = _other_rule(step, directory, run)
    promised = promised_by(step, directory, logs=logs)
    if promised is not None and not (directory / promised.memory).is_file():
        # Without the memory that keeps them apart from all others, the regions of a run are worth nothing.
        found.append(f"{step.product} has promised regions in {promised.memory}, which is gone")
    return found


def promised_by(step: Step, directory: Path, *, logs: Path | None) -> Promised | None:
    """What the run of this step counts on in a memory; None if it has no memory, or has promised nothing."""
    name, run = step.option("--memory"), step.place(directory, logs)
    if name is None or not RunStore.exists(run):
        return None
    with RunStore.open(run) as store:
        positions = [point.promise.position for point in store.points(with_tallies=False) if point.promise is not None]
        key = store.manifest.parameters.get("memory")
    return Promised(memory=name, key=str(key), claims=max(positions)) if positions else None


def _other_rule(step: Step, directory: Path, run: Path) -> list[str]:
    name, stored = step.option("--sigma-rule"), read_manifest(run).parameters.get("sigma_rule")
    now = None if name is None else rule_digest(directory / name)
    was = stored.get("digest") if isinstance(stored, dict) else None
    if now is None or now == was:
        return []
    return [f"{step.product} was made with another {name}: its digest was {str(was)[:12]}, now it is {now[:12]}"]
