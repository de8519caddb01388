"""Where a memory of promised regions lies: an SQLite file or a PostgreSQL database, opened for reading alone."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from smoothcert.errors import MissingExtraError, RegionMemoryError
from smoothcert_verify.reading import read_only

_APPLICATION = 0x536D4365
_WITHOUT_HEADS, _VERSION = 1, 2
"""Version 1 kept no head apart from the claims; a memory of that version is verified as far as its claims tell."""
_POSTGRES = ("postgresql://", "postgres://")
_SECONDS_TO_CONNECT = 10
_ROWS_AT_ONCE = 256
_COLUMNS = "position, label, radius, asked_label, asked_radius, settlement, claimed_at, entry, centre"


class StoredMemory(NamedTuple):
    """A memory as its database has it: nothing in it has been checked."""

    number: Any
    digest: Any
    key: Any
    identity: Any
    head: StoredHead | None = None


class StoredHead(NamedTuple):
    """What a memory keeps apart from its claims; None everywhere where that is missing."""

    digest: Any
    key: Any
    identity: Any
    claims: Any
    entry: Any


class StoredClaim(NamedTuple):
    """A claim as its database has it: nothing in it has been checked."""

    position: Any
    label: Any
    radius: Any
    asked_label: Any
    asked_radius: Any
    settlement: Any
    claimed_at: Any
    entry: Any
    centre: Any


class Place(Protocol):
    """A database that holds memories."""

    def memories(self) -> list[StoredMemory]: ...

    def claims(self, number: Any) -> Iterator[StoredClaim]:
        """All claims of one memory, by position."""


@contextlib.contextmanager
def opened_place(place: str) -> Iterator[Place]:
    """The database at a path or a postgresql:// address; all that is read is of one moment."""
    if place.lower().startswith(_POSTGRES):
        with _postgres(place) as found:
            yield found
        return
    if "://" in place or "password=" in place:
        # Not repeated here: it may hold a password.
        raise RegionMemoryError("this is no place of a memory: give the path of a file, or a postgresql:// address")
    with _sqlite(Path(place)) as found:
        yield found


def _memories_query(version: int, prefix: str = "") -> str:
    """All memories; each with its head, whatever is in it, where this version has heads."""
    names = ("number", "digest", "key", "identity")
    if version == _WITHOUT_HEADS:
        return f"SELECT {', '.join(names)} FROM {prefix}memories ORDER BY number"
    columns = [f"m.{name}" for name in names] + [f"h.{name}" for name in StoredHead._fields]
    join = f"{prefix}memories AS m LEFT JOIN {prefix}heads AS h ON h.memory = m.number"
    return f"SELECT {', '.join(columns)} FROM {join} ORDER BY m.number"


def _stored(row: Sequence[Any]) -> StoredMemory:
    number, digest, key, identity, *kept = row
    return StoredMemory(number, digest, key, identity, StoredHead(*kept) if kept else None)


class _SqlitePlace:
    def __init__(self, connection: sqlite3.Connection, version: int) -> None:
        self._connection, self._version = connection, version

    def memories(self) -> list[StoredMemory]:
        return [_stored(row) for row in self._connection.execute(_memories_query(self._version))]

    def claims(self, number: Any) -> Iterator[StoredClaim]:
        query = f"SELECT {_COLUMNS} FROM claims WHERE memory = ? ORDER BY position"
        return (StoredClaim(*row) for row in self._connection.execute(query, (number,)))


@contextlib.contextmanager
def _sqlite(file: Path) -> Iterator[Place]:
    if not file.is_file():
        raise RegionMemoryError(f"{file} does not exist; give the file of the memory that the run claimed from")
    try:
        connection = _connected(file)
    except sqlite3.Error as error:
        raise RegionMemoryError(f"{file} cannot be read as a memory: {error}") from error
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION:
            raise RegionMemoryError(f"{file} is a database of something else, not a memory of promised regions")
        if version not in (_WITHOUT_HEADS, _VERSION):
            raise RegionMemoryError(f"{file} is a memory of version {version}; this smoothcert verifies {_VERSION}")
        yield _SqlitePlace(connection, version)
    except (sqlite3.Error, UnicodeError) as error:
        raise RegionMemoryError(f"{file} is damaged, or no memory of promised regions: {error}") from error
    finally:
        connection.close()


def _connected(file: Path) -> sqlite3.Connection:
    """A connection inside a transaction. A file with a write-ahead log wants to write beside itself even to be read;
    where it may not, and there is no such log, it is read as it lies there.
    """
    try:
        connection = read_only(file)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        log = file.with_name(file.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        connection = sqlite3.connect(f"file:{quote(str(file.resolve()))}?mode=ro&immutable=1", uri=True)
        connection.execute("BEGIN")
    return connection


class _PostgresPlace:
    def __init__(self, connection: Any, version: int) -> None:
        self._connection, self._version = connection, version

    def memories(self) -> list[StoredMemory]:
        query = _memories_query(self._version, "smoothcert_")
        return [_stored(row) for row in self._connection.execute(query).fetchall()]

    def claims(self, number: Any) -> Iterator[StoredClaim]:
        query = f"SELECT {_COLUMNS} FROM smoothcert_claims WHERE memory = %s ORDER BY position"
        with self._connection.cursor(name="claims", binary=True) as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(query, (number,))
            for row in cursor:
                yield StoredClaim._make((*row[:-1], bytes(row[-1])))


@contextlib.contextmanager
def _postgres(address: str) -> Iterator[Place]:
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError("psycopg", "postgres", "a memory in PostgreSQL") from error
    try:
        with psycopg.connect(address, connect_timeout=_SECONDS_TO_CONNECT, prepare_threshold=None) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            version = connection.execute("SELECT version FROM smoothcert_memory_version").fetchone()
            if version is None or version[0] not in (_WITHOUT_HEADS, _VERSION):
                raise RegionMemoryError(f"the server holds a memory of another version than {_VERSION}")
            yield _PostgresPlace(connection, version[0])
    except psycopg.Error as error:
        # The message of the driver may quote the address, and the address may hold a password.
        code = f" ({error.sqlstate})" if error.sqlstate else ""
        raise RegionMemoryError(
            f"the memory on the PostgreSQL server cannot be read: {type(error).__name__}{code}"
        ) from None
