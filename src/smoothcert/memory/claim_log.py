"""The database of a memory: an append-only log of claims for each key, with one writer at a time.

`ClaimLog` holds the SQL that SQLite and PostgreSQL share. The subclasses connect, lock, create and check the tables.
"""

from __future__ import annotations

import contextlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from smoothcert.errors import RegionMemoryError
from smoothcert.memory.log import BEFORE_ALL, Head, Row, StoredKey, damage_error

SCHEMA_VERSION = 2
"""Of the tables in both kinds of database."""
COLUMNS = "position, label, radius, asked_label, asked_radius, settlement, claimed_at, entry"
_KEY_COLUMNS = "digest, key, identity"
TABLES = """
CREATE TABLE {prefix}memories (
    number {number} PRIMARY KEY,
    digest {text} NOT NULL UNIQUE,
    key {text} NOT NULL,
    identity {text} NOT NULL
){options};
CREATE TABLE {prefix}claims (
    memory {integer} NOT NULL REFERENCES {prefix}memories (number),
    position {integer} NOT NULL,
    label {integer} NOT NULL,
    radius {real} NOT NULL,
    asked_label {integer} NOT NULL,
    asked_radius {real} NOT NULL,
    settlement {text} NOT NULL,
    claimed_at {text} NOT NULL,
    entry {text} NOT NULL,
    centre {blob} NOT NULL,
    {unique} (memory, position)
){options};
CREATE TABLE {prefix}heads (
    memory {integer} PRIMARY KEY,
    digest {text} NOT NULL UNIQUE,
    key {text} NOT NULL,
    identity {text} NOT NULL,
    claims {integer} NOT NULL,
    entry {text} NOT NULL
){options};
"""
"""The schema, in the dialect that the placeholders give."""


class ClaimLog(ABC):
    """A database that holds the logs of many memories.

    Reads return committed data only. `writing` starts a transaction that excludes all other writers, in this process
    and elsewhere; reads inside it see everything they committed. Leaving it normally commits durably before it returns;
    leaving it by an exception rolls back. `disconnect` may be called between any two calls; the next one reconnects.
    Not thread-safe: the caller holds a lock.

    Tables: `memories` (one row per key), `claims`, `heads` (one row per memory: a second copy of its key, and the head
    of its log), `probes` (created when needed: answers of a memory's model to fixed inputs; no claim depends on it).
    """

    location: str
    """Where the database is, for messages. Contains no password."""

    _PREFIX: ClassVar[str]
    """Of the names of the tables."""
    _MARK: ClassVar[str]
    """Placeholder for one parameter."""
    _POSITIONS_PER_QUERY: ClassVar[int]
    _CREATE_PROBES: ClassVar[str]

    def __init__(self, location: str) -> None:
        self.location = location
        self._connection: Any = None
        self._is_writing = False

    @abstractmethod
    def _open(self) -> Any:
        """Return the open connection. Reconnect if needed, but never inside a transaction."""

    @abstractmethod
    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run one statement and return its DB-API cursor."""

    @abstractmethod
    def _begin(self, memory: int | None) -> None:
        """Begin a transaction and lock this memory against other writers; None: all memories."""

    @abstractmethod
    def _translate_errors(self) -> AbstractContextManager[None]:
        """Turn exceptions of the driver into RegionMemoryError."""

    @abstractmethod
    def tables(self) -> set[str]:
        """Names of the tables that exist."""

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    @contextlib.contextmanager
    def writing(self, memory: int | None = None) -> Iterator[None]:
        """A transaction that excludes all other writers of this memory; None: of all memories."""
        with self._translate_errors():
            self._open()
        try:
            # Inside the try: an interrupt during the wait for the lock is delivered after the lock was taken.
            with self._translate_errors():
                self._begin(memory)
            self._is_writing = True
            yield
            with self._translate_errors():
                self._execute("COMMIT")
        except BaseException:
            # It is unknown whether a failed commit took effect. The next read of the log tells.
            self._roll_back()
            raise
        finally:
            self._is_writing = False

    def _roll_back(self) -> None:
        try:
            if self._connection is not None:
                self._connection.execute("ROLLBACK")
        except Exception:
            self.disconnect()

    def _query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._translate_errors():
            rows: list[tuple[Any, ...]] = self._execute(statement, values).fetchall()
            return rows

    def _change(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement that writes and return how many rows it changed."""
        with self._translate_errors():
            return int(self._execute(statement, values).rowcount)

    def _insert(self, table: str, columns: str, values: Sequence[Any], *, ending: str = "") -> None:
        marks = ",".join([self._MARK] * len(values))
        self._change(f"INSERT INTO {self._PREFIX}{table} ({columns}) VALUES ({marks}) {ending}", values)

    def memories(self) -> list[StoredKey]:
        query = f"SELECT number, {_KEY_COLUMNS} FROM {self._PREFIX}memories ORDER BY number"
        return [StoredKey(*row) for row in self._query(query)]

    def register(self, digest: str, key: str) -> StoredKey:
        """Return the memory with this key. It is created if it does not exist."""
        known = self._find(digest)
        if known is not None:
            return known
        with self.writing():
            # Another process may have created it in the meantime.
            return self._find(digest) or self._create(digest, key, uuid.uuid4().hex)

    def restore(self, copies: Iterable[tuple[StoredKey, Iterable[Row]]]) -> None:
        """Create all these memories with their claims in one transaction. The database must not hold any memory."""
        with self.writing():
            if self.memories():
                raise RegionMemoryError(f"{self.location} holds a memory already; give another place")
            for stored, rows in copies:
                number = self._create(stored.digest, stored.key, stored.identity).number
                for row in rows:
                    self.append(number, row)

    def _find(self, digest: str) -> StoredKey | None:
        query = f"SELECT number, {_KEY_COLUMNS} FROM {self._PREFIX}memories WHERE digest = {self._MARK}"
        rows = self._query(query, (digest,))
        return StoredKey(*rows[0]) if rows else None

    def _create(self, digest: str, key: str, identity: str) -> StoredKey:
        self._insert("memories", _KEY_COLUMNS, (digest, key, identity))
        stored = self._find(digest)
        assert stored is not None
        self._insert("heads", f"memory, {_KEY_COLUMNS}, claims, entry", (*stored, *Head(0, identity)))
        return stored

    def probe(self, digest: str) -> str | None:
        """The stored answers of the model of this memory; None if there are none."""
        if f"{self._PREFIX}probes" not in self.tables():
            return None
        rows = self._query(f"SELECT probe FROM {self._PREFIX}probes WHERE digest = {self._MARK}", (digest,))
        return str(rows[0][0]) if rows else None

    def keep_probe(self, digest: str, probe: str) -> None:
        """Store these answers, unless there are some already."""
        with self.writing():
            self._change(self._CREATE_PROBES)
            self._insert("probes", "digest, probe", (digest, probe), ending="ON CONFLICT DO NOTHING")

    def head(self, memory: int) -> Head:
        query = f"SELECT claims, entry FROM {self._PREFIX}heads WHERE memory = {self._MARK}"
        rows = self._query(query, (memory,))
        if not rows:
            raise damage_error(self.location, "the head of its log is missing")
        head = Head(*rows[0])
        if head.claims < 0:
            raise damage_error(self.location, f"the head of its log counts {head.claims} claims")
        return head

    def read(self, memory: int, *, after: int, at_most: int) -> list[Row]:
        """Return the claims with positions above `after`, in order."""
        mark = self._MARK
        query = (
            f"SELECT {COLUMNS}, centre FROM {self._PREFIX}claims WHERE memory = {mark} AND position > {mark} "
            f"ORDER BY position LIMIT {mark}"
        )
        return [Row(*row) for row in self._query(query, (memory, after, at_most))]

    def fetch(self, memory: int, positions: Sequence[int]) -> list[Row]:
        """Return the claims at these positions, in any order."""
        return [Row(*row) for row in self._select(f"{COLUMNS}, centre", memory, positions)]

    def entries(self, memory: int, positions: Sequence[int]) -> dict[int, str]:
        """Return the entries at these positions, as far as they exist; at position 0 the identity of the memory."""
        found = dict(self._select("position, entry", memory, [position for position in positions if position != 0]))
        if 0 in positions:
            query = f"SELECT 0, identity FROM {self._PREFIX}memories WHERE number = {self._MARK}"
            found |= dict(self._query(query, (memory,)))
        return found

    def _select(self, columns: str, memory: int, positions: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(positions), self._POSITIONS_PER_QUERY):
            part = positions[start : start + self._POSITIONS_PER_QUERY]
            marks = ",".join([self._MARK] * len(part))
            query = f"SELECT {columns} FROM {self._PREFIX}claims WHERE memory = {self._MARK} AND position IN ({marks})"
            yield from self._query(query, (memory, *part))

    def outline(self, memory: int) -> list[Row]:
        """Return all claims in order, without their centres."""
        query = f"SELECT {COLUMNS} FROM {self._PREFIX}claims WHERE memory = {self._MARK} ORDER BY position"
        return [Row(*(*row, b"")) for row in self._query(query, (memory,))]

    def append(self, memory: int, row: Row) -> None:
        """Move the head to this claim, which must come next, and store it."""
        mark = self._MARK
        moved = self._change(
            f"UPDATE {self._PREFIX}heads SET claims = {mark}, entry = {mark} WHERE memory = {mark} AND claims = {mark}",
            (row.position, row.entry, memory, row.position - 1),
        )
        if moved != 1:
            raise damage_error(self.location, f"claim {row.position} does not come next")
        self._insert("claims", f"memory, {COLUMNS}, centre", (memory, *row))

    def _check_lost_connection(self) -> None:
        if self._is_writing:
            raise RegionMemoryError(f"the connection to {self.location} was lost during a claim; nothing was claimed")

    def _check_version(self, version: int) -> None:
        if version != SCHEMA_VERSION:
            raise RegionMemoryError(
                f"{self.location} is a memory of version {version}; this smoothcert reads version {SCHEMA_VERSION}. "
                "Use the smoothcert it was made with, or another place; `smoothcert memory recover OLD NEW` writes the "
                "intact claims of an earlier version to a new memory"
            )

    def _check_agreement(self) -> None:
        """Refuse a database whose keys, heads and claims do not belong together.

        One statement, so that it sees one state of the database. The key is stored in two tables: if one table is
        lost, the other one shows it.
        """
        keys = f"SELECT number, {_KEY_COLUMNS} FROM {self._PREFIX}memories"
        copies = f"SELECT memory, {_KEY_COLUMNS} FROM {self._PREFIX}heads"
        rows = self._query(
            f"SELECT number FROM ({keys} EXCEPT {copies}) AS keys "
            f"UNION SELECT memory FROM ({copies} EXCEPT {keys}) AS copies "
            f"UNION SELECT memory FROM {self._PREFIX}claims "
            f"WHERE memory NOT IN (SELECT memory FROM {self._PREFIX}heads) ORDER BY 1"
        )
        if rows:
            numbers = ", ".join(str(row[0]) for row in rows)
            raise damage_error(
                self.location,
                f"key, head and claims of memory number {numbers} do not match, or one of them is missing",
            )


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads the log of one memory in a database. guard: a context entered around each request, such as a lock."""

    log: ClaimLog
    stored: StoredKey
    guard: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext

    @property
    def identity(self) -> str:
        return self.stored.identity

    def head(self) -> Head:
        with self.guard():
            return self.log.head(self.stored.number)

    def read(self, *, after: int, at_most: int) -> list[Row]:
        with self.guard():
            return self.log.read(self.stored.number, after=after, at_most=at_most)

    def fetch(self, positions: Sequence[int]) -> list[Row]:
        with self.guard():
            return self.log.fetch(self.stored.number, positions)

    def find_stray_claim(self, head: Head) -> int | None:
        """Return the position of a claim beyond this head, or of a second claim at it; None if there is none.

        A claim that was appended after `head` was read is not a stray: the stored head has moved with it.
        """
        rows = self.read(after=head.claims - 1 if head.claims else BEFORE_ALL, at_most=2)
        beyond = rows[1:] if head.claims else rows
        if not beyond or head.claims < beyond[0].position <= self.head().claims:
            return None
        return beyond[0].position
