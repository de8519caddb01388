"""Resuming a run: its spec with what may be changed, the choices it has recorded, and the memory it has promised in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from smoothcert.data import list_datasets
from smoothcert.errors import RegionMemoryError, RunError
from smoothcert.memory import MemoryKey, RegionMemory, count_claims, is_server, list_digests, resolve_location
from smoothcert.models.backends import FASTEST
from smoothcert.records import Promise
from smoothcert.runs.run_files import SIGMA_RULE, check_places, locate_data
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.spec import DETECT, EngineSpec, ModelSpec, RuleLevel, RunManifest, RunSpec, Task
from smoothcert.user_code import is_code_name, locate_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What may be given again when a run is resumed: where things are now, and where samples are drawn.

    None keeps what the run has. selector: of a selected run, whose model may name several. A model that is given is
    imported from here, not from the folder that the run recorded.
    """

    model: str | None = None
    selector: str | None = None
    weights: str | None = None
    data: str | None = None
    data_root: str | None = None
    memory: str | None = None
    device: str | None = None
    engine: EngineSpec | None = None


NOT_MOVED = Moved()


def spec_of_run(path: Path, *, task: Task, moved: Moved) -> RunSpec:
    """The spec an existing run was made by, with its seed, batch size and grid. The manifest is compared later."""
    manifest = read_manifest(path)
    if manifest.task != task:
        raise RunError(f"{path} is a {manifest.task} run: it cannot be resumed by {task}")
    if moved.selector is not None:
        raise RunError(f"{path} has one model and no selector: leave --selector out")
    spec = take_recorded_choices(manifest.spec, manifest)
    sigma = RuleLevel(place=str(path / SIGMA_RULE)) if (path / SIGMA_RULE).exists() else spec.sigma
    data = locate_data(path, spec.data)
    spec = msgspec.structs.replace(
        spec,
        model=_move_model(spec.model, moved),
        data=msgspec.structs.replace(data, place=moved.data or data.place, root=moved.data_root or data.root),
        sigma=sigma,
        memory=moved.memory or spec.memory,
        engine=moved.engine or spec.engine,
    )
    check_places(spec, path)
    return spec


def _move_model(recorded: ModelSpec, moved: Moved) -> ModelSpec:
    model = msgspec.structs.replace(
        recorded, device=moved.device or recorded.device, weights=moved.weights or recorded.weights
    )
    if moved.model is None:
        return model
    if _is_weights(moved.model, recorded):
        return msgspec.structs.replace(model, weights=moved.weights or moved.model)
    # A file has its own weights; the recorded ones belong to code.
    weights = model.weights if is_code_name(moved.model) else moved.weights
    return msgspec.structs.replace(model, place=moved.model, weights=weights, code_folder=None)


def _is_weights(place: str, recorded: ModelSpec) -> bool:
    """Whether a file is the weights of the recorded code: `--model FILE --arch mynet:Net` is recorded as both."""
    if recorded.weights is None or is_code_name(place):
        return False
    return Path(place).suffix == Path(recorded.weights).suffix


def take_recorded_choices(spec: RunSpec, recorded: RunManifest) -> RunSpec:
    """A seed, batch size, back end or grid that was not requested is the one the run was begun with."""
    noise = spec.noise if spec.noise.grid != DETECT else spec.noise.settle(recorded.grid)
    open_backend = spec.model.backend in (None, FASTEST)
    model = msgspec.structs.replace(spec.model, backend=recorded.spec.model.backend) if open_backend else spec.model
    return msgspec.structs.replace(
        spec,
        model=model,
        noise=noise,
        seed=recorded.seed if spec.seed is None else spec.seed,
        batch=recorded.measured.batch if spec.batch is None else spec.batch,
        # A run that was begun with it stays rigorous.
        rigorous=spec.rigorous or recorded.spec.rigorous,
    )


def with_absolute_places(spec: RunSpec) -> RunSpec:
    """The same spec with absolute paths, so that the run can be resumed from another folder.

    Call it when model and rule are loaded: the folders of their code are those they were imported from.
    """
    is_name = spec.data.place in {info.entry.name for info in list_datasets()}
    data = msgspec.structs.replace(
        spec.data,
        # A name, even if there is a folder of that name.
        place=spec.data.place if is_name else _absolute(spec.data.place),
        root=None if spec.data.root is None else _absolute(spec.data.root),
    )
    sigma = spec.sigma
    if isinstance(sigma, RuleLevel):
        sigma = RuleLevel(place=_absolute(sigma.place), code_folder=_locate(sigma.place))
    return msgspec.structs.replace(
        spec,
        model=msgspec.structs.replace(
            spec.model,
            place=_absolute(spec.model.place),
            weights=None if spec.model.weights is None else _absolute(spec.model.weights),
            code_folder=_locate(spec.model.place),
        ),
        data=data,
        sigma=sigma,
        # A password is never written down: give it again, or keep it where the server's own clients look for it.
        memory=None if spec.memory is None else resolve_location(spec.memory),
    )


def _absolute(place: str) -> str:
    return str(Path(place).resolve()) if Path(place).exists() else place


def _locate(place: str) -> str | None:
    return locate_code(place) if is_code_name(place) else None


def check_memory_exists(place: str, run: Path) -> None:
    """A resumed run must not create a new memory: its promises are in the old one."""
    if not is_server(place) and not Path(place).exists():
        raise RunError(
            f"the memory {place} does not exist, but {run} has promised regions in one; give its place by --memory"
        )


def check_key_is_known(key: MemoryKey, place: str, run: Path) -> None:
    """Before a memory is opened, which would create one for this key: the memory of a run has it already."""
    with RunStore.open(run) as store:
        promises = _list_promises(store)
    if promises and key.digest not in list_digests(place):
        raise _lost_promises_error(promises, promises, place=resolve_location(place), run=run)


def check_has_promises(key: MemoryKey, place: str) -> None:
    """Predictions are looked up in an existing memory: a mistyped place, or other settings, must not create another."""
    held = count_claims(place)
    if not held.get(key.digest):
        others = ", ".join(digest[:12] for digest in held if digest != key.digest) or "none"
        raise RegionMemoryError(
            f"{resolve_location(place)} holds no regions of this classifier, whose key is {key.digest[:12]} (others "
            f"there: {others}). The key covers model, back end, sigma rule with all its settings, noise and inputs: "
            "give what the regions were certified with, or certify something first"
        )


def check_promises_are_kept(memory: RegionMemory, store: RunStore) -> None:
    """The memory of a resumed run must hold everything the run has promised."""
    promises = _list_promises(store)
    missing = memory.missing(promises)
    if missing:
        raise _lost_promises_error(missing, promises, place=memory.location, run=store.path)


def _list_promises(store: RunStore) -> list[Promise]:
    return [point.promise for point in store.points(with_tallies=False) if point.promise is not None]


def _lost_promises_error(missing: Sequence[Promise], promises: Sequence[Promise], *, place: str, run: Path) -> RunError:
    return RunError(
        f"{place} does not hold {len(missing)} of the {len(promises)} regions that {run} has promised, the first at "
        f"position {missing[0].position}: it is not the memory the run was begun with, or it was restored to an "
        "earlier state. Give the right one by --memory; if it is lost, these certificates are void, and the inputs "
        "must be certified again in a new run"
    )
