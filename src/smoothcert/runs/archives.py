"""Archives: a run as two small files that never change, to be kept in a repository or sent to others.

An archive is a directory with the manifest and the compressed rows of a run. Everything that reads runs reads archives:
tables, figures, exports, recertification and the independent checker. It cannot be resumed. Its manifest names files
without their folders, so it says nothing about the machine that made it but its versions.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import msgspec

from smoothcert.errors import RunError
from smoothcert.files import write_atomically
from smoothcert.runs.archive_files import ARCHIVE, compress, decompress
from smoothcert.runs.manifest import dump_manifest
from smoothcert.runs.run_database import MANIFEST, RESULTS
from smoothcert.runs.run_files import SELECTION, is_selected
from smoothcert.runs.selected_run import CLAIMS, SelectedRun, dump_selection
from smoothcert.runs.store import RunStore
from smoothcert.spec import (
    DataSpec,
    EngineSpec,
    ModelSpec,
    RayEngineSpec,
    RuleLevel,
    RunManifest,
    RunSpec,
    decode_manifest,
    to_json,
)


def write_archive(run: Path, out: Path, *, overwrite: bool = False) -> int:
    """Write the archive of a run to the directory `out`; returns the number of inputs.

    Equal runs give equal files. Files that hold the same already are not written again; others are refused unless
    `overwrite`. A selected run becomes a directory of archives.
    """
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; an archive is written to a directory")
    if (out / RESULTS).exists():
        raise RunError(f"{out} holds a run, which is never overwritten: choose another directory for the archive")
    return _archive_selected(run, out, overwrite) if is_selected(run) else _archive_run(run, out, overwrite)


def _archive_run(run: Path, out: Path, overwrite: bool) -> int:
    with RunStore.open(run) as store:
        manifest = without_folders(store.manifest)
        rows, inputs = store.dump_rows(manifest), len(store.indices())
    if inputs == 0:
        raise RunError(f"{run} has no finished input yet")
    _make_directory(out)
    if not (out / ARCHIVE).exists() or decompress(out / ARCHIVE) != rows:
        write_atomically(out / ARCHIVE, compress(rows), overwrite=overwrite)
    _write_changed(out / MANIFEST, dump_manifest(manifest), overwrite)
    return inputs


def _archive_selected(run: Path, out: Path, overwrite: bool) -> int:
    selected = SelectedRun.open(run)
    inputs = len(selected.points())  # an unfinished run has none
    spec = selected.spec
    spec = msgspec.structs.replace(
        spec,
        selector=_strip_model(spec.selector),
        models=tuple(map(_strip_model, spec.models)),
        data=_strip_data(spec.data),
        engine=_strip_address(spec.engine),
    )
    _make_directory(out)
    for part in (selected.selector, *selected.list_levels().values()):
        write_archive(part, out / part.name, overwrite=overwrite)
    _write_changed(out / SELECTION, dump_selection(spec), overwrite)
    _write_changed(out / CLAIMS, (run / CLAIMS).read_bytes(), overwrite)
    return inputs


def _make_directory(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out} cannot be created: {error.strerror or error}; give another directory") from error


def _write_changed(path: Path, content: bytes, overwrite: bool) -> None:
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content, overwrite=overwrite)


def without_folders(manifest: RunManifest) -> RunManifest:
    """The manifest with names of files instead of their places on this machine."""
    source = manifest.recertified_from
    if source is not None:
        source = to_json(without_folders(decode_manifest(source, source="recertified_from")))
    return msgspec.structs.replace(manifest, spec=_strip_spec(manifest.spec), recertified_from=source)


def _strip_spec(spec: RunSpec) -> RunSpec:
    sigma = spec.sigma
    if isinstance(sigma, RuleLevel):
        sigma = RuleLevel(place=_strip_folder(sigma.place))
    return msgspec.structs.replace(
        spec,
        model=_strip_model(spec.model),
        data=_strip_data(spec.data),
        sigma=sigma,
        memory=None if spec.memory is None else _strip_folder(spec.memory),
        engine=_strip_address(spec.engine),
    )


def _strip_model(model: ModelSpec) -> ModelSpec:
    weights = None if model.weights is None else _strip_folder(model.weights)
    return msgspec.structs.replace(model, place=_strip_folder(model.place), weights=weights, code_folder=None)


def _strip_data(data: DataSpec) -> DataSpec:
    return msgspec.structs.replace(data, place=_strip_folder(data.place), root=None)


def _strip_address(engine: EngineSpec) -> EngineSpec:
    return msgspec.structs.replace(engine, address=None) if isinstance(engine, RayEngineSpec) else engine


def _strip_folder(place: str) -> str:
    """The last part of an absolute path, and the kind of a server. Names of datasets and code stay as they are."""
    if "://" in place:
        return f"{place.partition('://')[0]}:"
    for path in (PurePosixPath(place), PureWindowsPath(place)):
        if path.is_absolute():
            return path.name
    return place
