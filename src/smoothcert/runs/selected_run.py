"""A selected run on disk: `selection.json`, the directories of its parts, and `claims.json`, what they give together.

`selection.json` is written once, before anything is sampled. `claims.json` is written when all parts are complete. It
is a function of the parts, so it can be deleted and made again; the independent checker compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from smoothcert.errors import CorruptRunError, InputError, RunError
from smoothcert.files import write_atomically
from smoothcert.records import Bounds, CertifiedPoint, Norm, Outcome, Reason, TallyKind, Verdict
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.run_database import stage_run
from smoothcert.runs.run_files import SELECTION, is_selected
from smoothcert.runs.selected_parts import Labels, SelectedParts, describe_selected
from smoothcert.runs.selected_spec import SELECTOR, SelectedSpec
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.spec import RunManifest, decode_part, to_json
from smoothcert.strict_json import strict_loads

CLAIMS = "claims.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class SelectedRun:
    """The directory of a selected run, and what was requested of it. It is read like a `RunStore`."""

    path: Path
    spec: SelectedSpec

    @classmethod
    def open(cls, path: Path) -> Self:
        document = _read(path / SELECTION)
        try:
            if document.get("schema") != SCHEMA:
                raise ValueError(f"format {document.get('schema')!r}; this version reads format {SCHEMA}")
            spec = decode_part(document.get("spec"), SelectedSpec)
            spec.check()
        except (ValueError, InputError) as error:
            raise CorruptRunError(f"{path / SELECTION} is not valid: {error}") from error
        return cls(path, spec)

    @classmethod
    def create(cls, path: Path, spec: SelectedSpec) -> Self:
        """Begin a run in a new or empty directory."""
        check_can_create(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path} cannot be created: {error.strerror or error}") from error
        write_atomically(path / SELECTION, dump_selection(spec), overwrite=False)
        return cls(path, spec)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    # The parts.

    @property
    def selector(self) -> Path:
        return self.path / SELECTOR

    def level(self, number: int) -> Path:
        return self.path / self.spec.name_level(number)

    def list_levels(self) -> dict[int, Path]:
        """The directories of the levels that are sampled, by number."""
        places = {number: self.level(number) for number in range(len(self.spec.levels))}
        return {number: place for number, place in places.items() if RunStore.exists(place)}

    def read_part(self, part: Path) -> HeldRun:
        """The points of a part with their tallies; a RunError if it is unfinished."""
        with RunStore.open(part) as store:
            manifest, points = store.manifest, store.points()
        if len(points) < manifest.data.inputs:
            raise self._unfinished(f": {part.name} has {len(points)} of {manifest.data.inputs} inputs")
        return HeldRun(points, manifest)

    def read_parts(self, labels: Labels | None = None) -> SelectedParts:
        """All parts, which must be complete. labels: of all inputs; by default those of the claims."""
        known = {point.index: point.label for point in self.points()} if labels is None else labels
        levels = {number: self.read_part(place) for number, place in self.list_levels().items()}
        return SelectedParts(self.spec, self.read_part(self.selector), levels, known)

    def _unfinished(self, detail: str = "") -> RunError:
        again = f"Resume it with: smoothcert {self.spec.task} --resume {self.path}"
        if self.spec.task == "recertify":
            again = "Delete it, and recertify again"
        return RunError(f"{self.path} is unfinished{detail}. {again}")

    # The claims.

    def write_claims(self, points: Sequence[CertifiedPoint]) -> None:
        document = {"schema": SCHEMA, "points": [_point_to_json(point) for point in points]}
        write_atomically(self.path / CLAIMS, (json.dumps(document, allow_nan=False) + "\n").encode(), overwrite=True)

    def points(self, *, with_tallies: bool = True) -> list[CertifiedPoint]:
        """The stored points; a RunError if the run is unfinished. Their tallies stay with the parts."""
        if not (self.path / CLAIMS).is_file():
            raise self._unfinished()
        document = _read(self.path / CLAIMS)
        grid, dtype = self.spec.noise.levels, self.spec.selector.precision
        try:
            if document["schema"] != SCHEMA:
                raise ValueError(f"format {document['schema']!r}; this version reads format {SCHEMA}")
            return [_point_from_json(one, grid=grid, dtype=dtype) for one in document["points"]]
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptRunError(f"{self.path / CLAIMS} is not valid: {error}") from error

    def points_of(self, indices: Sequence[int]) -> list[CertifiedPoint]:
        """The stored points of these inputs, in this order."""
        by_index = {point.index: point for point in self.points()}
        if unknown := [index for index in indices if index not in by_index]:
            raise RunError(f"{self.path} has no result for input {unknown[0]}")
        return [by_index[index] for index in indices]

    @property
    def manifest(self) -> RunManifest:
        """The facts of the parts as the manifest of one run, for tables and pages."""
        if not RunStore.exists(self.selector):
            raise self._unfinished()
        of_selector = read_manifest(self.selector)
        places = self.list_levels()
        of_level = read_manifest(next(iter(places.values()))) if places else of_selector
        return describe_selected(self.spec, of_selector, of_level)

    def kinds(self) -> set[TallyKind]:
        """None: what is proved by each kind of tally is said of the parts."""
        return set()

    def unanimous(self) -> dict[int, int]:
        """None: the radius of an input depends on several votes."""
        return {}

    def samples(self) -> dict[int, int]:
        """Samples by index, over all parts."""
        total: dict[int, int] = {}
        for part in (self.selector, *self.list_levels().values()):
            with RunStore.open(part) as store:
                for index, count in store.samples().items():
                    total[index] = total.get(index, 0) + count
        return total


def dump_selection(spec: SelectedSpec) -> bytes:
    """The content of `selection.json`."""
    return (json.dumps({"schema": SCHEMA, "spec": to_json(spec)}, indent=2, sort_keys=True) + "\n").encode()


def open_stored(path: Path) -> RunStore | SelectedRun:
    """Open a run of either kind for reading."""
    return SelectedRun.open(path) if is_selected(path) else RunStore.open(path)


def hold_stored(path: Path) -> HeldRun:
    """A run of either kind with all its tallies, as a run in memory."""
    if is_selected(path):
        run = SelectedRun.open(path)
        return HeldRun(run.points(), run.manifest, parts=run.read_parts())
    with RunStore.open(path) as store:
        return HeldRun(store.points(), store.manifest)


def save_selected(points: Sequence[CertifiedPoint], parts: SelectedParts, out: Path) -> None:
    """Store a selected run in a new directory. points: the combination of the parts."""
    check_can_create(out)
    with stage_run(out) as place:
        run = SelectedRun.create(place, parts.spec)
        parts.selector.save(run.selector)
        for number, part in parts.levels.items():
            part.save(run.level(number))
        run.write_claims(points)


def check_can_create(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunError(f"{path} exists and is not empty; existing results are never overwritten: choose another --out")


def _read(file: Path) -> dict[str, Any]:
    try:
        document = strict_loads(file.read_bytes())
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CorruptRunError(f"{file} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise CorruptRunError(f"{file} is damaged: an object was expected")
    return document


def _point_to_json(point: CertifiedPoint) -> dict[str, Any]:
    return {
        "index": point.index,
        "label": point.label,
        "sigma": None if point.sigma != point.sigma else point.sigma,
        "seconds": point.seconds,
        "verdicts": [_verdict_to_json(verdict) for verdict in (point.verdict, *point.further)],
    }


def _verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "certificate": verdict.certificate,
        "prediction": verdict.prediction,
        "radius": verdict.radius,
        "norm": verdict.norm.value,
        "outcome": verdict.outcome.value,
        "reason": None if verdict.reason is None else verdict.reason.to_json(),
        "bounds": None if verdict.bounds is None else verdict.bounds.to_json(),
    }


def _point_from_json(document: Mapping[str, Any], *, grid: int | None, dtype: str | None) -> CertifiedPoint:
    first, *further = [_verdict_from_json(one) for one in document["verdicts"]]
    sigma = document["sigma"]
    return CertifiedPoint(
        index=int(document["index"]),
        label=document["label"],
        verdict=first,
        sigma=float("nan") if sigma is None else float(sigma),
        tallies=(),
        seconds=float(document["seconds"]),
        further=tuple(further),
        grid=grid,
        dtype=dtype,
    )


def _verdict_from_json(document: Mapping[str, Any]) -> Verdict:
    reason, bounds = document["reason"], document["bounds"]
    return Verdict(
        certificate=str(document["certificate"]),
        prediction=document["prediction"],
        radius=float(document["radius"]),
        norm=Norm(document["norm"]),
        outcome=Outcome(document["outcome"]),
        reason=None if reason is None else Reason.from_json(reason),
        bounds=None if bounds is None else Bounds.from_json(bounds),
    )
