"""Opening what a user points at: a run directory of ours, or a log file somebody has."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smoothcert.errors import RunError
from smoothcert.records import TallyKind
from smoothcert.runs.results import Results
from smoothcert.runs.tsv import read_log


def load_results(path: Path, *, name: str | None = None) -> Results:
    """The results in a run directory or a TSV log; `name` is what tables call it.

    RUN@CERTIFICATE means that one of the certificates the run carries; RUN alone means the first, or the best of them.
    """
    name = name or distinguishing_names([path])[0]
    place, certificate = _split(path)
    return _load_directory(place, certificate, name=name)[0] if place.is_dir() else read_log(place, name=name)


def load_all(paths: Sequence[Path]) -> list[Results]:
    """Several runs, each named by the shortest tail of its path that tells it from the others.

    A run that carries several certificates is there once for each of them.
    """
    found: list[Results] = []
    for path, name in zip(paths, distinguishing_names(paths), strict=True):
        place, certificate = _split(path)
        if place.is_dir():
            found += _load_directory(place, certificate, name=name)
        else:
            found.append(read_log(place, name=name))
    return found


def load_pair(first: Path, second: Path) -> tuple[Results, Results]:
    """Two runs to be compared, with names that tell them apart; of each the first certificate, or the one named."""
    one, other = distinguishing_names([first, second])
    return load_results(first, name=one), load_results(second, name=other)


def _split(path: Path) -> tuple[Path, str | None]:
    """The place and the certificate that RUN@CERTIFICATE names; a path that exists is taken as it is."""
    if path.exists():
        return path, None
    run, at, certificate = str(path).rpartition("@")
    if at and certificate and Path(run).is_dir():
        return Path(run), certificate
    raise RunError(f"{path} does not exist; expected a run directory or a log file")


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


def _load_directory(path: Path, certificate: str | None, *, name: str) -> list[Results]:
    """The results by that certificate; without one, by each of those the run carries, the first one first."""
    # The store brings SQLite and file locks along, which a log file does not need.
    from smoothcert.runs.store import RunStore

    with RunStore.open(path) as store:
        points, manifest, kinds = store.points(with_tallies=False), store.manifest, store.kinds()
    alpha, num_classes = manifest.parameters.get("alpha"), manifest.model.get("num_classes")
    stated = manifest.parameters.get("certificate", "")
    carried = carried_certificates(stated) if certificate is None else [certificate]
    found = [
        Results.from_points(
            points,
            name=f"{name}@{one}" if one is not None and certificate is None else name,
            alpha=None if alpha is None else float(alpha),
            num_classes=None if num_classes is None else int(num_classes),
            has_radius=manifest.task != "predict",
            independent_noise=bool(manifest.parameters.get("independent_noise", True)),
            expected=manifest.parameters.get("inputs"),
            certificate=one,
        )
        for one in carried
    ]
    return [dataclasses.replace(one, remarks=_remarks(one)) if TallyKind.PAIRS in kinds else one for one in found]


def _remarks(results: Results) -> tuple[str, ...]:
    """What the reader of results from pairs should know: a bound on p_A alone has used half of the votes."""
    if not np.isfinite(results.p_a).any():
        return ()
    return (
        f"{results.name} used the votes at x+ε only, half of all, because those at x-ε depend on them: "
        "compare dipole with a run of its own.",
    )


def carried_certificates(stated: str) -> list[str | None]:
    """The certificates to show apart, of what a manifest states.

    All of "a,b". For "best-of(a,b)" and for a single one None, which means the point's own verdict.
    """
    names = [] if stated.startswith("best-of(") else stated.split(",")
    return list(names) if len(names) > 1 else [None]
