"""What attacks found, in a file that is only ever added to: one line of JSON for the settings, then one for each input.

The lines of a group of inputs are written together. A process that dies leaves at most one unfinished line, which is
dropped when the same attack goes on. Every line carries a seal, the SHA-256 of the seal before it and of its content:
an edited line is refused. A seal is no signature; `smoothcert verify` compares a record with its run.
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

from smoothcert.errors import CorruptRunError, ManifestMismatchError
from smoothcert.files import alone_with
from smoothcert.runs.seals import canonical_json
from smoothcert.spec import list_differing_values
from smoothcert.strict_json import strict_loads

_FORMAT = "smoothcert attack 3"
_BEGINNING = b'{"format": "smoothcert attack'


class Fate(enum.StrEnum):
    """What fresh samples say of the answer at the point an attack ended at."""

    UNCHANGED = "unchanged"
    """The votes settle on the answer of the run."""
    ABSTAINED = "abstained"
    """They settle on nothing: no change is proved."""
    CHANGED = "changed"
    """They settle on another answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshVerdict:
    """What fresh samples say at one point, at the last look.

    prediction: the answer of the run, which the attack tried to change. samples: how many were drawn; 0 where a memory
    answered. sigma, counts, invalid: of their votes; None where a memory answered. answer: what they settle on; None
    for an abstention, or where samples without a valid answer are in the lead. leads: whether the answer of the run is
    in the lead, settled or not. p_value: of the lead; None where there is none to be had.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult(FreshVerdict):
    """One input, attacked within one radius, and the check by fresh samples.

    radius: as it was asked for. certified_radius: of the run; 0 where nothing was certified. distance: of the point
    found, measured in float64 and rounded up. moved: whether the attack ever saw a gradient; where it did not, nothing
    is known of how strong the model is. point: the float32 values of the point in base64, where it contradicts a
    certificate, or leaves one unsettled.
    """

    radius: str
    index: int
    label: int | None
    certified_radius: float
    distance: float
    moved: bool
    point: str | None = None

    @property
    def is_inside(self) -> bool:
        """Whether the certificate speaks of the point found."""
        return self.distance < self.certified_radius

    @property
    def breaks_certificate(self) -> bool:
        """Whether the answer changed closer than the certified radius: what must not happen."""
        return self.fate is Fate.CHANGED and self.is_inside

    @property
    def unsettled(self) -> bool:
        """Whether the certificate speaks of the point, and fresh samples neither confirm nor contradict it."""
        return self.fate is Fate.ABSTAINED and self.is_inside

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        counts = document["counts"]
        fields = {**document, "fate": Fate(document["fate"]), "counts": None if counts is None else tuple(counts)}
        return cls(**fields)


class AttackRecord:
    """The open file of one attack. Made by `open_record`."""

    def __init__(self, path: Path, file: IO[bytes], found: list[AttackResult], *, seal: str) -> None:
        self.path = path
        self.found = found
        self._file = file
        self._seal = seal

    def add(self, results: Sequence[AttackResult]) -> None:
        """Write the results of a group; they are on the disk when this returns."""
        seal, lines = self._seal, []
        for result in results:
            line, seal = _sealed_line(seal, result.to_json())
            lines.append(line)
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._seal = seal
        self.found += results


def recorded_seed(path: Path) -> int | None:
    """The seed of the attack in that file; None where there is no file yet."""
    if not _has_begun(path):
        return None
    seed = _read(path).header["settings"].get("seed")
    return seed if type(seed) is int else None


@contextmanager
def open_record(path: Path, header: Mapping[str, Any]) -> Iterator[AttackRecord]:
    """Begin a file, or go on with one that has the same header; otherwise the difference is shown.

    header: "run" and "settings", both objects of plain JSON.
    """
    with alone_with(path):
        stored = _compared(path, header) if _has_begun(path) else None
        with path.open("r+b" if path.exists() else "xb") as file:
            file.truncate(0 if stored is None else stored.length)
            file.seek(0 if stored is None else stored.length)
            if stored is None:
                line, seal = _sealed_line("", {"format": _FORMAT, **header})
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
                yield AttackRecord(path, file, [], seal=seal)
            else:
                yield AttackRecord(path, file, stored.results, seal=stored.seal)


def _has_begun(path: Path) -> bool:
    """Whether a first line was finished; a process that was killed while it wrote that one leaves a part of it."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        first = file.readline()
    torn = not first.endswith(b"\n") and first[: len(_BEGINNING)] == _BEGINNING[: len(first)]
    return not torn


def _sealed_line(previous: str, document: Mapping[str, Any]) -> tuple[bytes, str]:
    """A line of the file, and its seal."""
    seal = _next_seal(previous, document)
    return (json.dumps({**document, "seal": seal}, allow_nan=False) + "\n").encode(), seal


def _next_seal(previous: str, document: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{previous}\n".encode() + canonical_json(document)).hexdigest()


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a file holds. length: bytes that whole lines take. seal: of the last of them."""

    header: dict[str, Any]
    results: list[AttackResult]
    length: int
    seal: str


def _compared(path: Path, header: Mapping[str, Any]) -> _Stored:
    stored = _read(path)
    kept = {name: value for name, value in stored.header.items() if name != "format"}
    differing = list_differing_values(kept, strict_loads(json.dumps(header)), holder="file")
    if differing:
        raise ManifestMismatchError(
            f"{path} holds another attack; give another --out, or the same settings to go on:\n  "
            + "\n  ".join(differing)
        )
    return stored


def _read(path: Path) -> _Stored:
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
                raise ValueError("a line was changed after it was written")
        header, results = documents[0], documents[1:]
        if header["format"] != _FORMAT or not isinstance(header["settings"], dict):
            raise ValueError("not the format of an attack")
        return _Stored(header, [AttackResult.from_json(result) for result in results], length, seal)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise CorruptRunError(
            f"{path} is not a record of an attack by this version, or it is damaged ({error}): give another --out, or "
            "move it away"
        ) from error
