"""Opening what a user points at: a run directory of ours, or a log file somebody has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from smoothcert.errors import RunError
from smoothcert.runs.results import Results
from smoothcert.runs.tsv import read_log


def load_results(path: Path, *, name: str | None = None) -> Results:
    """The results in a run directory or a TSV log; `name` is what tables call it."""
    if not path.exists():
        raise RunError(f"{path} does not exist; expected a run directory or a log file")
    name = name or distinguishing_names([path])[0]
    return _load_directory(path, name=name) if path.is_dir() else read_log(path, name=name)


def load_all(paths: Sequence[Path]) -> list[Results]:
    """Several runs, each named by the shortest tail of its path that tells it from the others."""
    return [load_results(path, name=name) for path, name in zip(paths, distinguishing_names(paths), strict=True)]


def distinguishing_names(paths: Sequence[Path]) -> list[str]:
    """For each path its shortest tail that no other path ends in; the same path given again is numbered."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    names: list[str] = []
    for own in parts:
        others = [other for other in parts if other != own]
        depth = next((n for n in range(1, len(own)) if all(other[-n:] != own[-n:] for other in others)), len(own))
        name = "/".join(own[-depth:])
        repeats = sum(1 for earlier in parts[: len(names)] if earlier == own)
        names.append(f"{name} ({repeats + 1})" if repeats else name)
    return names


def _load_directory(path: Path, *, name: str) -> Results:
    # The store brings SQLite and file locks along, which a log file does not need.
    from smoothcert.runs.store import RunStore

    with RunStore.open(path) as store:
        points, manifest = store.points(with_tallies=False), store.manifest
    alpha, num_classes = manifest.parameters.get("alpha"), manifest.model.get("num_classes")
    return Results.from_points(
        points,
        name=name,
        alpha=None if alpha is None else float(alpha),
        num_classes=None if num_classes is None else int(num_classes),
        has_radius=manifest.task != "predict",
        independent_noise=bool(manifest.parameters.get("independent_noise", True)),
        expected=manifest.parameters.get("inputs"),
    )
