"""Looking into a database of memories: listing, summaries, and export to files for other programs."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from smoothcert.errors import InputError, RegionMemoryError
from smoothcert.files import write_whole
from smoothcert.memory.claim_log import ClaimLog
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import Claim, Head, Row, StoredKey, centre_to_bytes, damage_error
from smoothcert.memory.opening import existing_log, parse_key
from smoothcert.memory.regions import RegionMemory
from smoothcert.records import Settlement

_EXPORT_SUFFIXES = (".csv", ".npz")


@dataclass(frozen=True, slots=True)
class Radii:
    smallest: float
    median: float
    largest: float


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """Figures about one memory.

    classes: claims per promised class. settlements: claims per settlement, only those that occur. radii, first_claimed,
    last_claimed: None for an empty memory.
    """

    key: MemoryKey
    digest: str
    claims: int
    classes: Mapping[int, int]
    settlements: Mapping[Settlement, int]
    radii: Radii | None
    first_claimed: datetime | None
    last_claimed: datetime | None


def list_digests(location: str | Path) -> tuple[str, ...]:
    """Return the digests of all memories of an existing database, oldest first. No claim is read."""
    with existing_log(location) as log:
        return tuple(stored.digest for stored in log.memories())


def count_claims(location: str | Path) -> dict[str, int]:
    """Return the number of claims of each memory of an existing database, by digest. No claim is read."""
    with existing_log(location) as log:
        return {stored.digest: log.head(stored.number).claims for stored in log.memories()}


def list_memories(location: str | Path) -> tuple[MemorySummary, ...]:
    """Summarise all memories of an existing database, oldest first."""
    with existing_log(location) as log:
        return tuple(
            _summarise(parse_key(stored, location=log.location), _read_outline(stored, log), log)
            for stored in log.memories()
        )


def _read_outline(stored: StoredKey, log: ClaimLog) -> list[Row]:
    """All claims up to the head, without their centres. Without centres the hash chain cannot be checked."""
    head = log.head(stored.number)
    rows = [row for row in log.outline(stored.number) if row.position <= head.claims]
    end = Head(len(rows), rows[-1].entry if rows else stored.identity)
    # Not a list of as many numbers as the head counts: a damaged head can count anything.
    if [row.position for row in rows] != list(range(1, len(rows) + 1)) or end != head:
        raise damage_error(log.location, f"{stored.digest[:12]} does not hold all of its {head.claims} claims")
    return rows


def _summarise(key: MemoryKey, rows: list[Row], log: ClaimLog) -> MemorySummary:
    radii = [row.radius for row in rows]
    try:
        settlements = Counter(Settlement[row.settlement] for row in rows)
        times = [datetime.fromisoformat(row.claimed_at) for row in (rows[0], rows[-1])] if rows else [None, None]
    except (KeyError, ValueError) as error:
        raise damage_error(log.location, f"a claim of {key.digest[:12]} cannot be read: {error!r}") from error
    if not all(0 <= row.radius < math.inf and row.label >= 0 for row in rows):
        raise damage_error(log.location, f"a claim of {key.digest[:12]} has an impossible class or radius")
    return MemorySummary(
        key=key,
        digest=key.digest,
        claims=len(rows),
        classes=dict(sorted(Counter(row.label for row in rows).items())),
        settlements={settlement: settlements[settlement] for settlement in Settlement if settlements[settlement]},
        radii=Radii(min(radii), statistics.median(radii), max(radii)) if radii else None,
        first_claimed=times[0],
        last_claimed=times[1],
    )


def export_claims(memory: RegionMemory, path: Path, *, overwrite: bool = False) -> int:
    """Write all claims to a file, ordered by position, and return how many there are.

    .csv: one line per claim, with the SHA-256 of the centre's bytes (float32, little-endian) in place of the centre.
    .npz: the same columns as arrays, with `centre` (n, d) float32, and `key`, the memory's key as JSON.
    """
    if path.suffix not in _EXPORT_SUFFIXES:
        raise InputError(f"--output {path} must end in {' or '.join(_EXPORT_SUFFIXES)}")
    claims = list(memory.claims())
    content = _to_csv(claims) if path.suffix == ".csv" else _to_npz(claims, memory.key)
    try:
        write_whole(path, content, overwrite=overwrite)
    except FileExistsError as error:
        raise InputError(f"{path} exists; give another --output, or --force to replace it") from error
    except OSError as error:
        raise RegionMemoryError(f"{path} cannot be written: {error.strerror or error}") from error
    return len(claims)


def _to_csv(claims: list[Claim]) -> bytes:
    columns = _to_columns(claims)
    columns["centre_sha256"] = [hashlib.sha256(centre_to_bytes(claim.centre)).hexdigest() for claim in claims]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def _to_npz(claims: list[Claim], key: MemoryKey) -> bytes:
    centres = np.array([claim.centre for claim in claims], dtype=np.float32).reshape(len(claims), key.dimension)
    columns = {name: np.array(values) for name, values in _to_columns(claims).items()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, key=np.array(key.to_text()), centre=centres, **columns)
    return buffer.getvalue()


def _to_columns(claims: list[Claim]) -> dict[str, list[int] | list[float] | list[str]]:
    return {
        "position": [claim.position for claim in claims],
        "label": [claim.label for claim in claims],
        "radius": [claim.radius for claim in claims],
        "asked_label": [claim.asked_label for claim in claims],
        "asked_radius": [claim.asked_radius for claim in claims],
        "settlement": [claim.settlement.name.lower() for claim in claims],
        "claimed_at": [claim.claimed_at.isoformat() for claim in claims],
        "entry": [claim.entry for claim in claims],
    }
