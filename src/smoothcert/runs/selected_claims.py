"""A selected run on disk: `selection.json`, the directories of its parts, and `claims.json`, what they give together.

`selection.json` is written once, before anything is sampled. `claims.json` is written when all parts are complete. It
is a function of the parts, so it can be deleted and made again; the independent checker compares the two.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from smoothcert.errors import CorruptRunError, InputError, RunError
from smoothcert.files import write_atomically
from smoothcert.records import Bounds, CertifiedPoint, Norm, Outcome, Reason, Verdict
from smoothcert.runs.selected_spec import SELECTOR, SelectedSpec, level_name
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.spec import RuleLevel, RunManifest, SigmaFacts, decode_part, to_json
from smoothcert.strict_json import strict_loads

SELECTION, CLAIMS = "selection.json", "claims.json"
SCHEMA = 1


def is_selected(path: Path) -> bool:
    """Whether this is the directory of a selected run."""
    return (path / SELECTION).is_file()


@dataclass(frozen=True, slots=True)
class SelectedRun:
    """The directory of a selected run, and what was requested of it."""

    path: Path
    spec: SelectedSpec

    @classmethod
    def open(cls, path: Path) -> SelectedRun:
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
    def create(cls, path: Path, spec: SelectedSpec) -> SelectedRun:
        """Begin a run in a new or empty directory."""
        check_can_create(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path} cannot be created: {error.strerror or error}") from error
        content = json.dumps({"schema": SCHEMA, "spec": to_json(spec)}, indent=2, sort_keys=True) + "\n"
        write_atomically(path / SELECTION, content.encode(), overwrite=False)
        return cls(path, spec)

    @property
    def selector(self) -> Path:
        return self.path / SELECTOR

    def level(self, number: int) -> Path:
        return self.path / level_name(self.spec.levels[number])

    def list_parts(self) -> list[Path]:
        """The directories of the parts that exist."""
        parts = [self.selector, *(self.level(number) for number in range(len(self.spec.levels)))]
        return [part for part in parts if RunStore.exists(part)]

    def read_part(self, part: Path) -> list[CertifiedPoint]:
        """The points of a part with their tallies; a RunError if it is unfinished."""
        with RunStore.open(part) as store:
            points = store.points()
            if len(points) < store.manifest.data.inputs:
                raise RunError(
                    f"{self.path} is unfinished: {part.name} has {len(points)} of {store.manifest.data.inputs} inputs. "
                    f"Resume it with: smoothcert {self.spec.task} --resume {self.path}"
                )
        return points

    def write_claims(self, points: Sequence[CertifiedPoint]) -> None:
        document = {"schema": SCHEMA, "points": [_point_to_json(point) for point in points]}
        write_atomically(self.path / CLAIMS, (json.dumps(document, allow_nan=False) + "\n").encode(), overwrite=True)

    def read_claims(self) -> list[CertifiedPoint]:
        """The stored points, without tallies; a RunError if the run is unfinished."""
        if not (self.path / CLAIMS).is_file():
            raise RunError(
                f"{self.path} is unfinished. Resume it with: smoothcert {self.spec.task} --resume {self.path}"
            )
        document = _read(self.path / CLAIMS)
        grid = self.spec.noise.levels
        try:
            return [_point_from_json(one, grid=grid) for one in document["points"]]
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptRunError(f"{self.path / CLAIMS} is not valid: {error}") from error

    def samples(self) -> dict[int, int]:
        """Samples by index, over all parts."""
        total: Counter[int] = Counter()
        for part in self.list_parts():
            with RunStore.open(part) as store:
                total.update(store.samples())
        return dict(total)

    def make_manifest(self) -> RunManifest:
        """The facts of the parts as the manifest of one run, for tables and figures."""
        part = next((self.level(n) for n in range(len(self.spec.levels)) if RunStore.exists(self.level(n))), None)
        of_level = read_manifest(self.selector if part is None else part)
        of_selector = read_manifest(self.selector)
        return describe_selected(self.spec, of_selector, of_level)


def describe_selected(spec: SelectedSpec, selector: RunManifest, level: RunManifest) -> RunManifest:
    """The facts of the parts as the manifest of one run. level: of any level that was sampled."""
    combined = msgspec.structs.replace(
        level.spec,
        data=spec.data,
        sigma=RuleLevel(place=spec.selector.place),
        alpha=spec.alpha,
        certificates=spec.certificates,
        seed=spec.seed,
    )
    rule = {"kind": "selected", "levels": list(spec.levels), "selector_sigma": spec.selector_sigma}
    return msgspec.structs.replace(
        level,
        spec=combined,
        seed=spec.seed,
        data=selector.data,
        sigma=SigmaFacts(rule=rule),
        digests=msgspec.structs.replace(level.digests, sigma=selector.digests.model),
        alpha_split={},
    )


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


def _point_from_json(document: Mapping[str, Any], *, grid: int | None) -> CertifiedPoint:
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
