"""What a database holds: its memories, and figures about each."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import ClaimLog, Head, Row, StoredKey, damaged
from smoothcert.memory.opening import existing_log, key_of
from smoothcert.records import Settlement


@dataclass(frozen=True, slots=True)
class Radii:
    smallest: float
    median: float
    largest: float


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """Figures about one memory.

    classes: claims by the class promised. settlements: claims by how they were settled, those that occur. radii,
    first_claimed, last_claimed: None in an empty memory.
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
    """The digests of all memories of an existing database, in the order in which they were made; no claim is read."""
    log = existing_log(location)
    try:
        return tuple(stored.digest for stored in log.memories())
    finally:
        log.disconnect()


def list_memories(location: str | Path) -> tuple[MemorySummary, ...]:
    """All memories of an existing database, in the order in which they were made."""
    log = existing_log(location)
    try:
        return tuple(
            _summary(key_of(stored, location=log.location), _complete_outline(stored, log), log)
            for stored in log.memories()
        )
    finally:
        log.disconnect()


def count_claims(location: str | Path) -> dict[str, int]:
    """How many claims were made in each memory of an existing database, by its digest; no claim is read."""
    log = existing_log(location)
    try:
        return {stored.digest: log.head(stored.number).claims for stored in log.memories()}
    finally:
        log.disconnect()


def _complete_outline(stored: StoredKey, log: ClaimLog) -> list[Row]:
    """All claims up to the head, without their centres, and so without a proof of what they say."""
    head = log.head(stored.number)
    rows = [row for row in log.outline(stored.number) if row.position <= head.claims]
    end = Head(len(rows), rows[-1].entry if rows else stored.identity)
    if [row.position for row in rows] != list(range(1, head.claims + 1)) or end != head:
        raise damaged(
            log.location, f"{stored.digest[:12]} does not hold all of the {head.claims} claims that were made"
        )
    return rows


def _summary(key: MemoryKey, rows: list[Row], log: ClaimLog) -> MemorySummary:
    radii = [row.radius for row in rows]
    try:
        settlements = Counter(Settlement[row.settlement] for row in rows)
        times = [datetime.fromisoformat(row.claimed_at) for row in (rows[0], rows[-1])] if rows else [None, None]
    except (KeyError, ValueError) as error:
        raise damaged(log.location, f"a claim of {key.digest[:12]} cannot be read: {error!r}") from error
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
