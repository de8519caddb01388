"""The record of an attack: an append-only file of JSON lines, first the settings, then one line per input and radius.

The lines of a group of inputs are written together. A killed process leaves at most one unfinished line, which is
dropped when the attack is resumed. Each line has a seal, the SHA-256 of the previous seal and of its content, so an
edited line is refused. A seal is not a signature; `smoothcert verify` compares a record with its run.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from smoothcert.errors import CorruptRunError, ManifestMismatchError
from smoothcert.files import hold_lock
from smoothcert.runs.seals import canonical_json
from smoothcert.spec_differences import list_differing_values
from smoothcert.strict_json import strict_loads

_FORMAT = "smoothcert attack 3"
_BEGINNING = b'{"format": "smoothcert attack'


class Fate(enum.StrEnum):
    """What fresh samples prove about the answer at the point that an attack found."""

    UNCHANGED = "unchanged"
    """It is the answer of the run."""
    ABSTAINED = "abstained"
    """Nothing is proved."""
    CHANGED = "changed"
    """It is another answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageVotes:
    """The fresh votes of the selector, or of one level, at one point. part: the name of its run."""

    part: str
    sigma: float
    counts: tuple[int, ...]
    invalid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshVerdict:
    """The result of the last check by fresh samples at one point.

    prediction: the answer of the run, which the attack tried to change. answer: the proved answer; None for an
    abstention, or if invalid samples have the most votes. leads: whether `prediction` has the most votes, proved or
    not. samples: number drawn, 0 if a memory answered. sigma, counts, invalid: of the votes; sigma and counts are None
    if a memory answered. p_value: of the lead; None if there is no test. stages: of a selected sigma, the votes of the
    selector and of all levels that may be selected; sigma, counts, invalid and p_value are then those of the leading
    level.
    """

    prediction: int
    fate: Fate
    answer: int | None
    leads: bool
    samples: int
    sigma: float | None
    counts: tuple[int, ...] | None
    invalid: int
    p_value: float | None
    stages: tuple[StageVotes, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult(FreshVerdict):
    """One input attacked within one radius, and the check by fresh samples.

    radius: as given. certified_radius: of the run; 0 if nothing was certified. distance: of the point found, in
    float64 and rounded up. moved: whether the attack ever saw a gradient; if not, the result says nothing about the
    model. point: the float32 values of the point in base64, if it breaks a certificate or leaves it unsettled. closed:
    the certificate holds at its radius too, and distances are whole steps of a grid, rounded down like radii; stored
    only where it is true.
    """

    radius: str
    index: int
    label: int | None
    certified_radius: float
    distance: float
    moved: bool
    point: str | None = None
    closed: bool = False

    @property
    def is_inside(self) -> bool:
        """Whether the certificate covers the point found."""
        return self.distance < self.certified_radius or (self.closed and self.distance == self.certified_radius)

    @property
    def breaks_certificate(self) -> bool:
        """Whether the answer provably changed within the certified radius."""
        return self.fate is Fate.CHANGED and self.is_inside

    @property
    def is_unsettled(self) -> bool:
        """Whether the certificate covers the point, and fresh samples neither confirm nor contradict it."""
        return self.fate is Fate.ABSTAINED and self.is_inside

    def to_json(self) -> dict[str, Any]:
        document = dataclasses.asdict(self)
        if self.stages is None:
            del document["stages"]
        if not self.closed:
            del document["closed"]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """A result from a file; a ValueError that names the field if it is not one."""
        if unknown := document.keys() - {field.name for field in dataclasses.fields(cls)}:
            raise ValueError(f"a result has the unknown field {min(unknown)!r}")
        return msgspec.convert(document, cls)


class AttackRecord:
    """The open file of one attack. Use `open_record` to get one."""

    def __init__(self, path: Path, file: IO[bytes], results: list[AttackResult], *, seal: str) -> None:
        self.path = path
        self.results = results
        self._file = file
        self._seal = seal

    def add(self, results: Sequence[AttackResult]) -> None:
        """Append the results of a group, and wait until they are on the disk."""
        seal, lines = self._seal, []
        for result in results:
            line, seal = _seal_line(seal, result.to_json())
            lines.append(line)
        _write_to_disk(self._file, b"".join(lines))
        self._seal = seal
        self.results += results


def read_recorded_seed(path: Path) -> int | None:
    """The seed of the attack in that file; None if there is no file yet."""
    if not _has_begun(path):
        return None
    seed = _read(path).header["settings"].get("seed")
    return seed if type(seed) is int else None


@contextmanager
def open_record(path: Path, header: Mapping[str, Any]) -> Iterator[AttackRecord]:
    """Begin a record, or resume one with the same header. Otherwise a ManifestMismatchError lists the differences.

    header: "run" and "settings", both plain JSON objects.
    """
    with hold_lock(path):
        stored = _read_matching(path, header) if _has_begun(path) else None
        with path.open("r+b" if path.exists() else "xb") as file:
            file.truncate(0 if stored is None else stored.length)
            file.seek(0 if stored is None else stored.length)
            if stored is None:
                line, seal = _seal_line("", {"format": _FORMAT, **header})
                _write_to_disk(file, line)
                yield AttackRecord(path, file, [], seal=seal)
            else:
                yield AttackRecord(path, file, stored.results, seal=stored.seal)


def _write_to_disk(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _has_begun(path: Path) -> bool:
    """Whether the first line is complete. A process killed while writing it leaves a part of it."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        first = file.readline()
    torn = not first.endswith(b"\n") and first[: len(_BEGINNING)] == _BEGINNING[: len(first)]
    return not torn


def _seal_line(previous: str, document: Mapping[str, Any]) -> tuple[bytes, str]:
    """A line of the file and its seal."""
    seal = _next_seal(previous, document)
    return (json.dumps({**document, "seal": seal}, allow_nan=False) + "\n").encode(), seal


def _next_seal(previous: str, document: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{previous}\n".encode() + canonical_json(document)).hexdigest()


@dataclass(frozen=True, slots=True)
class _StoredRecord:
    """The content of a file. length: of its complete lines, in bytes. seal: of the last of them."""

    header: dict[str, Any]
    results: list[AttackResult]
    length: int
    seal: str


def _read_matching(path: Path, header: Mapping[str, Any]) -> _StoredRecord:
    stored = _read(path)
    kept = {name: value for name, value in stored.header.items() if name != "format"}
    differing = list_differing_values(kept, strict_loads(json.dumps(header)), holder="file")
    if differing:
        raise ManifestMismatchError(
            f"{path} is the record of another attack; choose another --out, or use the same settings to resume it:\n  "
            + "\n  ".join(differing)
        )
    return stored


def _read(path: Path) -> _StoredRecord:
    content = path.read_bytes()
    length = content.rfind(b"\n") + 1
    lines = content[:length].splitlines()
    try:
        documents = [strict_loads(line) for line in lines]
        seal = ""
        for document in documents:
            claimed = document.pop("seal", None)
            seal = _next_seal(seal, document)
            if claimed != seal:
                raise ValueError("a line does not match its seal")
        header, results = documents[0], documents[1:]
        if header["format"] != _FORMAT or not isinstance(header["settings"], dict):
            raise ValueError(f"expected the format {_FORMAT!r}")
        return _StoredRecord(header, [AttackResult.from_json(result) for result in results], length, seal)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise CorruptRunError(
            f"{path} is not a record of an attack in the format of this version, or it is damaged ({error}): choose "
            "another --out, or move the file"
        ) from error
