"""What the memory asks of a database: an append-only log of claims for each key, with one writer at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import RegionMemoryError
from smoothcert.records import FloatArray, IntArray, Settlement

Centre = NDArray[np.float32]

_CELLS_READ_AT_ONCE = 1 << 22


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

    def register(self, digest: str, key: str) -> StoredKey:
        """The memory with this key, which is made if it is not there."""

    def writing(self, memory: int) -> AbstractContextManager[None]: ...

    def count(self, memory: int) -> int:
        """The last position, 0 for an empty log."""

    def read(self, memory: int, *, after: int, at_most: int) -> list[Row]:
        """Claims with positions above `after`, in order."""

    def fetch(self, memory: int, positions: Sequence[int]) -> list[Row]:
        """The claims at these positions, in any order."""

    def entries(self, memory: int, positions: Sequence[int]) -> dict[int, str]:
        """The entries at those of these positions that there are; at 0 the identity of the memory."""

    def outline(self, memory: int) -> list[Row]:
        """All claims in order, without their centres."""

    def append(self, memory: int, row: Row) -> None: ...

    def disconnect(self) -> None: ...


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
        raise RegionMemoryError(f"claim {row.position} of the memory is damaged: {error!r}") from error
    if not possible:
        raise RegionMemoryError(
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
        raise RegionMemoryError(f"claims {rows[0].position} to {rows[-1].position} of the memory are damaged")
    return centres.astype(np.float32, copy=False), labels, radii


def centre_of(row: Row, *, dimension: int) -> Centre:
    """(d,) float32, finite."""
    if len(row.centre) != 4 * dimension:
        raise RegionMemoryError(
            f"claim {row.position} of the memory is damaged: its centre has {len(row.centre)} bytes instead of "
            f"{4 * dimension}"
        )
    centre = np.frombuffer(row.centre, dtype="<f4").astype(np.float32, copy=False)
    if not np.isfinite(centre).all():
        raise RegionMemoryError(f"claim {row.position} of the memory is damaged: its centre is not finite")
    return centre
