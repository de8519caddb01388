"""The log of a memory: its claims, how they are stored as rows, and the hash chain that links them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DamagedMemoryError
from smoothcert.records import FloatArray, IntArray, Settlement

Centre = NDArray[np.float32]

BEFORE_ALL = -(2**63)
"""Below every position a database can hold. Reading from here also finds rows at invalid positions."""
_CELLS_PER_BATCH = 1 << 22


class StoredKey(NamedTuple):
    """The key of a memory as stored in the database.

    number: identifies the memory inside the database. key: canonical JSON. identity: drawn at random when the memory
    was created.
    """

    number: int
    digest: str
    key: str
    identity: str


class Row(NamedTuple):
    """A claim as stored in the database, not checked.

    claimed_at: ISO 8601, UTC. entry: the value of `compute_entry`. centre: little-endian float32; empty if it was not
    requested.
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


class Head(NamedTuple):
    """The end of a log: the number of claims and the entry of the last one (the memory's identity if there is none).

    The database stores it apart from the claims and updates it in the transaction that appends a claim.
    """

    claims: int
    entry: str


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """One claim in a memory's log: every point of the ball of `radius` around `centre` gets `label`.

    centre: (d,) float32. asked_label, asked_radius: what was requested. claimed_at: UTC. entry: see `compute_entry`;
    empty before the claim is stored.
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


def damage_error(location: str, what: str) -> DamagedMemoryError:
    return DamagedMemoryError(f"the memory in {location} is damaged: {what}")


def compute_entry(previous: str, row: Row) -> str:
    """SHA-256 (hexadecimal) of a claim and of the previous entry. Before the first claim that is the memory's identity.

    An entry therefore determines the whole log up to it: two logs with the same entry hold the same claims. The field
    row.entry is ignored.
    """
    fields = row._replace(entry=previous)[:-1]
    hasher = hashlib.sha256(json.dumps(fields).encode())
    hasher.update(row.centre)
    return hasher.hexdigest()


def follows(head: Head, row: Row) -> bool:
    """Whether `row` is the claim that was appended to the log that ends at `head`."""
    try:
        return row.position == head.claims + 1 and row.entry == compute_entry(head.entry, row)
    except (TypeError, ValueError):
        return False  # a field has a type that no claim has


def advance(head: Head, rows: Iterable[Row], *, location: str) -> Head:
    """Return the head after these claims. Raise DamagedMemoryError if a claim does not follow from the previous one."""
    for row in rows:
        if row.position != head.claims + 1:
            raise damage_error(location, f"claim {head.claims + 1} is missing; claim {row.position} is in its place")
        if not follows(head, row):
            raise damage_error(
                location, f"claim {row.position} is not what was written, or does not follow the claim before it"
            )
        head = Head(row.position, row.entry)
    return head


def choose_batch_rows(dimension: int) -> int:
    """How many claims to read at a time, so that their centres fit into memory."""
    return max(16, min(4096, _CELLS_PER_BATCH // dimension))


def centre_to_bytes(centre: Centre) -> bytes:
    """The stored form of a centre: little-endian float32."""
    return centre.astype("<f4", copy=False).tobytes()


def encode(claim: Claim, *, previous: str) -> Row:
    """Return the row that stores this claim after the entry `previous`."""
    row = Row(
        position=claim.position,
        label=claim.label,
        radius=claim.radius,
        asked_label=claim.asked_label,
        asked_radius=claim.asked_radius,
        settlement=claim.settlement.name,
        claimed_at=claim.claimed_at.astimezone(UTC).isoformat(),
        entry="",
        centre=centre_to_bytes(claim.centre),
    )
    return row._replace(entry=compute_entry(previous, row))


def decode(row: Row, *, dimension: int) -> Claim:
    """Return the claim in a row. Raise DamagedMemoryError if no memory can have written it."""
    try:
        claim = Claim(
            position=row.position,
            centre=decode_centre(row, dimension=dimension),
            label=row.label,
            radius=row.radius,
            asked_label=row.asked_label,
            asked_radius=row.asked_radius,
            settlement=Settlement[row.settlement],
            claimed_at=datetime.fromisoformat(row.claimed_at),
            entry=row.entry,
        )
        is_valid = 0 <= claim.radius < np.inf and 0 <= claim.asked_radius < np.inf and claim.label >= 0
    except (KeyError, TypeError, ValueError) as error:
        raise _row_error(row, repr(error)) from error
    if not is_valid:
        raise _row_error(row, f"class {claim.label}, radius {claim.radius}, asked radius {claim.asked_radius}")
    return claim


def decode_centre(row: Row, *, dimension: int) -> Centre:
    """Return the centre, (d,) float32, finite. Raise DamagedMemoryError if it is invalid."""
    if len(row.centre) != 4 * dimension:
        raise _row_error(row, f"its centre has {len(row.centre)} bytes instead of {4 * dimension}")
    centre = np.frombuffer(row.centre, dtype="<f4").astype(np.float32, copy=False)
    if not np.isfinite(centre).all():
        raise _row_error(row, "its centre is not finite")
    return centre


def decode_balls(rows: Sequence[Row], *, dimension: int) -> tuple[Centre, IntArray, FloatArray]:
    """Return centres (n, d), labels (n,) and radii (n,) of many rows at once, with the checks of `decode`."""
    try:
        centres = np.frombuffer(b"".join(row.centre for row in rows), dtype="<f4").reshape(len(rows), dimension)
        labels = np.array([row.label for row in rows], dtype=np.int64)
        radii = np.array([row.radius for row in rows], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        is_valid = False
    else:
        is_valid = bool(np.isfinite(centres).all() and (labels >= 0).all() and ((radii >= 0) & (radii < np.inf)).all())
    if not is_valid:
        for row in rows:
            decode(row, dimension=dimension)
        raise DamagedMemoryError(f"claims {rows[0].position} to {rows[-1].position} of the memory are damaged")
    return centres.astype(np.float32, copy=False), labels, radii


def _row_error(row: Row, what: str) -> DamagedMemoryError:
    return DamagedMemoryError(f"claim {row.position} of the memory is damaged: {what}")
