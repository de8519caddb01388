"""What the memory asks of a database: an append-only log of claims for each key, with one writer at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DamagedMemoryError
from smoothcert.records import FloatArray, IntArray, Settlement

Centre = NDArray[np.float32]

_CELLS_READ_AT_ONCE = 1 << 22
_ROWS_OF_ANY_LENGTH = 64
"""To read at a time where it is not known how long their centres are."""


def disagreements(prefix: str = "") -> str:
    """A query for the numbers of memories whose key, head and claims do not belong together.

    It is one statement, so that it sees one moment. The key is stored twice: if a table is lost, the other tells.
    """
    memories, heads, claims = f"{prefix}memories", f"{prefix}heads", f"{prefix}claims"
    keys = f"SELECT number, digest, key, identity FROM {memories}"
    copies = f"SELECT memory, digest, key, identity FROM {heads}"
    return (
        f"SELECT number FROM ({keys} EXCEPT {copies}) AS keys "
        f"UNION SELECT memory FROM ({copies} EXCEPT {keys}) AS copies "
        f"UNION SELECT memory FROM {claims} WHERE memory NOT IN (SELECT memory FROM {heads}) ORDER BY 1"
    )


def check_agreement(numbers: Sequence[int], *, location: str) -> None:
    """Refuse what `disagreements` has found."""
    if numbers:
        raise damaged(
            location,
            f"key, head and claims of its memory number {', '.join(map(str, numbers))} do not belong together, or one "
            "of them is missing",
        )


def rows_at_once(dimension: int) -> int:
    """How many claims to read at a time: some hundreds, fewer where centres are long."""
    return max(16, min(4096, _CELLS_READ_AT_ONCE // dimension))


class Row(NamedTuple):
    """A claim as the database has it: nothing in it has been checked.

    claimed_at: ISO 8601, UTC. entry: what `entry_after` gave. centre: little-endian float32; empty where it was not
    asked for.
    """

    position: int
    label: int
    radius: float
    asked_label: int
    asked_radius: float
    settlement: str
    claimed_at: str
    entry: str
    centre: bytes


def entry_after(previous: str, row: Row) -> str:
    """SHA-256, in hexadecimal, of a claim and of the entry before it; before the first is the memory's identity.

    So an entry stands for the whole log up to it: two logs with the same entry hold the same claims. row.entry itself
    is not part of it.
    """
    told = row._replace(entry=previous, centre=b"")
    hasher = hashlib.sha256(json.dumps(told[:-1]).encode())
    hasher.update(row.centre)
    return hasher.hexdigest()


class Head(NamedTuple):
    """The end of a log: how many claims there are, and the entry of the last; the memory's identity if there is none.

    Every database keeps it apart from the claims, and moves it in the same transaction as it appends one.
    """

    claims: int
    entry: str


def follows(head: Head, row: Row) -> bool:
    """Whether this is the claim that was appended to the log that ends so."""
    try:
        return row.position == head.claims + 1 and row.entry == entry_after(head.entry, row)
    except (TypeError, ValueError):
        return False  # a field of a type that no claim has


def advance(head: Head, rows: Iterable[Row], *, location: str) -> Head:
    """The head after these claims; that one does not follow from those before it is an error."""
    for row in rows:
        if row.position != head.claims + 1:
            raise damaged(location, f"claim {head.claims + 1} is missing; claim {row.position} is in its place")
        if not follows(head, row):
            raise damaged(
                location, f"claim {row.position} is not what was written, or does not follow the claim before it"
            )
        head = Head(row.position, row.entry)
    return head


def damaged(location: str, what: str) -> DamagedMemoryError:
    return DamagedMemoryError(f"the memory in {location} is damaged: {what}")


BEFORE_ALL = -(2**63)
"""Below every position a database can hold: reading from here finds also what stands where nothing may be."""


class StoredKey(NamedTuple):
    """A memory as the database has it.

    number: the database's own name for it. key: canonical JSON. identity: drawn at random when it was made.
    """

    number: int
    digest: str
    key: str
    identity: str


class ClaimLog(Protocol):
    """A database that holds the logs of many memories.

    Everything read is committed. `writing` excludes every other writer of that memory, in this process and elsewhere,
    from its beginning to its end, and what is read inside includes all that they committed. Leaving it commits what
    was appended, durably, before it returns; leaving it by an exception takes everything back. `disconnect` may be
    called between any two calls: the next one connects again.
    """

    @property
    def location(self) -> str:
        """Where it is, for a person to read: without any password."""

    def memories(self) -> list[StoredKey]: ...

    def restore(self, copies: Iterable[tuple[StoredKey, Iterable[Row]]]) -> None:
        """Make all these memories, with their claims, in one transaction. That it holds one already is an error."""

    def register(self, digest: str, key: str) -> StoredKey:
        """The memory with this key, which is made if it is not there."""

    def probe(self, digest: str) -> str | None:
        """What was kept of the answers of the model of this memory; None where nothing was."""

    def keep_probe(self, digest: str, probe: str) -> None:
        """Keep that, unless something is kept already."""

    def writing(self, memory: int) -> AbstractContextManager[None]: ...

    def head(self, memory: int) -> Head: ...

    def read(self, memory: int, *, after: int, at_most: int) -> list[Row]:
        """Claims with positions above `after`, in order."""

    def fetch(self, memory: int, positions: Sequence[int]) -> list[Row]:
        """The claims at these positions, in any order."""

    def entries(self, memory: int, positions: Sequence[int]) -> dict[int, str]:
        """The entries at those of these positions that there are; at 0 the identity of the memory."""

    def outline(self, memory: int) -> list[Row]:
        """All claims in order, without their centres."""

    def append(self, memory: int, row: Row) -> None:
        """Move the head to this claim, which must come next, and store it."""

    def disconnect(self) -> None: ...


class Reading(Protocol):
    """What can be read of one memory's log."""

    @property
    def identity(self) -> str: ...

    def head(self) -> Head: ...

    def read(self, *, after: int, at_most: int) -> list[Row]: ...

    def fetch(self, positions: Sequence[int]) -> list[Row]: ...


@dataclass(frozen=True, slots=True)
class LogReading:
    """One memory's log as it lies in a database, of which nothing was proved."""

    log: ClaimLog
    stored: StoredKey

    @property
    def identity(self) -> str:
        return self.stored.identity

    def head(self) -> Head:
        return self.log.head(self.stored.number)

    def read(self, *, after: int, at_most: int) -> list[Row]:
        return self.log.read(self.stored.number, after=after, at_most=at_most)

    def fetch(self, positions: Sequence[int]) -> list[Row]:
        return self.log.fetch(self.stored.number, positions)


def claim_after_the_end(reading: Reading, head: Head) -> int | None:
    """The position of a claim that stands beyond the head, or a second time at it; None if there is none.

    A claim that was appended since the head was read has moved it: then the head is farther by now.
    """
    rows = reading.read(after=head.claims - 1 if head.claims else BEFORE_ALL, at_most=2)
    beyond = rows[1:] if head.claims else rows
    if not beyond or head.claims < beyond[0].position <= reading.head().claims:
        return None
    return beyond[0].position


def end_of_chain(log: ClaimLog, stored: StoredKey) -> Head:
    """The head that the claims of a memory lead to; that one does not follow from those before it is an error."""
    end = Head(0, stored.identity)
    while rows := log.read(stored.number, after=end.claims or BEFORE_ALL, at_most=_ROWS_OF_ANY_LENGTH):
        end = advance(end, rows, location=log.location)
    return end


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """One entry of a memory's log: the ball of `radius` around `centre` answers `label`.

    centre: (d,) float32. asked_label, asked_radius: what was claimed. claimed_at: UTC. entry: see `entry_after`; empty
    before the claim is stored.
    """

    position: int
    centre: Centre
    label: int
    radius: float
    asked_label: int
    asked_radius: float
    settlement: Settlement
    claimed_at: datetime
    entry: str = ""


def bytes_of(centre: Centre) -> bytes:
    """As it is stored: little-endian."""
    return centre.astype("<f4", copy=False).tobytes()


def encode(claim: Claim, *, previous: str) -> Row:
    """The claim as it is stored after the entry `previous`."""
    row = Row(
        position=claim.position,
        label=claim.label,
        radius=claim.radius,
        asked_label=claim.asked_label,
        asked_radius=claim.asked_radius,
        settlement=claim.settlement.name,
        claimed_at=claim.claimed_at.astimezone(UTC).isoformat(),
        entry="",
        centre=bytes_of(claim.centre),
    )
    return row._replace(entry=entry_after(previous, row))


def decode(row: Row, *, dimension: int) -> Claim:
    """The claim in a row; one that cannot have been written by a memory is refused."""
    try:
        claim = Claim(
            position=row.position,
            centre=centre_of(row, dimension=dimension),
            label=row.label,
            radius=row.radius,
            asked_label=row.asked_label,
            asked_radius=row.asked_radius,
            settlement=Settlement[row.settlement],
            claimed_at=datetime.fromisoformat(row.claimed_at),
            entry=row.entry,
        )
        possible = 0 <= claim.radius < np.inf and 0 <= claim.asked_radius < np.inf and claim.label >= 0
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedMemoryError(f"claim {row.position} of the memory is damaged: {error!r}") from error
    if not possible:
        raise DamagedMemoryError(
            f"claim {row.position} of the memory is damaged: class {claim.label}, radius {claim.radius}, asked radius "
            f"{claim.asked_radius}"
        )
    return claim


def balls_of(rows: Sequence[Row], *, dimension: int) -> tuple[Centre, IntArray, FloatArray]:
    """Centres (n, d), labels (n,) and radii (n,) of many rows at once, checked as `decode` checks them."""
    try:
        centres = np.frombuffer(b"".join(row.centre for row in rows), dtype="<f4").reshape(len(rows), dimension)
        labels = np.array([row.label for row in rows], dtype=np.int64)
        radii = np.array([row.radius for row in rows], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        sound = False
    else:
        sound = bool(np.isfinite(centres).all() and (labels >= 0).all() and ((radii >= 0) & (radii < np.inf)).all())
    if not sound:
        for row in rows:
            decode(row, dimension=dimension)
        raise DamagedMemoryError(f"claims {rows[0].position} to {rows[-1].position} of the memory are damaged")
    return centres.astype(np.float32, copy=False), labels, radii


def centre_of(row: Row, *, dimension: int) -> Centre:
    """(d,) float32, finite."""
    if len(row.centre) != 4 * dimension:
        raise DamagedMemoryError(
            f"claim {row.position} of the memory is damaged: its centre has {len(row.centre)} bytes instead of "
            f"{4 * dimension}"
        )
    centre = np.frombuffer(row.centre, dtype="<f4").astype(np.float32, copy=False)
    if not np.isfinite(centre).all():
        raise DamagedMemoryError(f"claim {row.position} of the memory is damaged: its centre is not finite")
    return centre
