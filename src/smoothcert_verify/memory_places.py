"""A memory of promised regions in an SQLite file or a PostgreSQL database, opened for reading only."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from smoothcert_verify.findings import MemoryPlaceError, MissingPackageError
from smoothcert_verify.run_reading import connect_read_only

_APPLICATION = 0x536D4365
_VERSION = 2
_POSTGRES = ("postgresql://", "postgres://")
_ROWS_AT_ONCE = 256
_COLUMNS = "position, label, radius, asked_label, asked_radius, settlement, claimed_at, entry, centre"


class StoredMemory(NamedTuple):
    """A memory as its database has it, unchecked. head: what it keeps apart from its claims."""

    number: Any
    digest: Any
    key: Any
    identity: Any
    head: StoredHead


class StoredHead(NamedTuple):
    """The end of the log; None everywhere if it is missing."""

    digest: Any
    key: Any
    identity: Any
    claims: Any
    entry: Any


class StoredClaim(NamedTuple):
    """A claim as its database has it, unchecked."""

    position: Any
    label: Any
    radius: Any
    asked_label: Any
    asked_radius: Any
    settlement: Any
    claimed_at: Any
    entry: Any
    centre: Any


class MemoryPlace(Protocol):
    """A database that holds memories."""

    def memories(self) -> list[StoredMemory]: ...

    def claims(self, number: Any) -> Iterator[StoredClaim]:
        """All claims of one memory, by position."""


@contextlib.contextmanager
def open_place(place: str) -> Iterator[MemoryPlace]:
    """The database at a path or a postgresql:// address, read in one transaction."""
    if place.lower().startswith(_POSTGRES):
        with _postgres(place) as found:
            yield found
        return
    if "://" in place or "password=" in place:
        # Not repeated here: it may hold a password.
        raise MemoryPlaceError(
            "this is not the place of a memory: expected the path of a file or a postgresql:// address"
        )
    with _sqlite(Path(place)) as found:
        yield found


def _select_memories(prefix: str = "") -> str:
    """The query for all memories, each with its head."""
    columns = [f"m.{name}" for name in ("number", "digest", "key", "identity")]
    columns += [f"h.{name}" for name in StoredHead._fields]
    join = f"{prefix}memories AS m LEFT JOIN {prefix}heads AS h ON h.memory = m.number"
    return f"SELECT {', '.join(columns)} FROM {join} ORDER BY m.number"


def _make_memory(row: Sequence[Any]) -> StoredMemory:
    return StoredMemory(row[0], row[1], row[2], row[3], StoredHead(*row[4:]))


class _SqlitePlace:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def memories(self) -> list[StoredMemory]:
        return [_make_memory(row) for row in self._connection.execute(_select_memories())]

    def claims(self, number: Any) -> Iterator[StoredClaim]:
        query = f"SELECT {_COLUMNS} FROM claims WHERE memory = ? ORDER BY position"
        return (StoredClaim(*row) for row in self._connection.execute(query, (number,)))


@contextlib.contextmanager
def _sqlite(file: Path) -> Iterator[MemoryPlace]:
    if not file.is_file():
        raise MemoryPlaceError(f"{file} does not exist; give the file of the memory that the run claimed from")
    try:
        connection = _connect(file)
    except sqlite3.Error as error:
        raise MemoryPlaceError(f"{file} cannot be read as a memory: {error}") from error
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION:
            raise MemoryPlaceError(f"{file} is a database of something else, not a memory of promised regions")
        if version != _VERSION:
            raise MemoryPlaceError(f"{file} is a memory of format {version}; only format {_VERSION} can be verified")
        yield _SqlitePlace(connection)
    except (sqlite3.Error, UnicodeError) as error:
        raise MemoryPlaceError(f"{file} is damaged, or no memory of promised regions: {error}") from error
    finally:
        connection.close()


def _connect(file: Path) -> sqlite3.Connection:
    """A connection inside a transaction.

    To read a database in WAL mode, SQLite writes files beside it. Where that is not permitted and there is no log to
    replay, the file is opened as immutable.
    """
    try:
        connection = connect_read_only(file)
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
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def memories(self) -> list[StoredMemory]:
        return [_make_memory(row) for row in self._connection.execute(_select_memories("smoothcert_")).fetchall()]

    def claims(self, number: Any) -> Iterator[StoredClaim]:
        query = f"SELECT {_COLUMNS} FROM smoothcert_claims WHERE memory = %s ORDER BY position"
        with self._connection.cursor(name="claims", binary=True) as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(query, (number,))
            for row in cursor:
                yield StoredClaim._make((*row[:-1], bytes(row[-1])))


@contextlib.contextmanager
def _postgres(address: str) -> Iterator[MemoryPlace]:
    try:
        import psycopg
    except ImportError as error:
        raise MissingPackageError("psycopg", "postgres", "a memory in PostgreSQL") from error
    from smoothcert_verify import postgres_connection

    try:
        with contextlib.closing(postgres_connection.connect(address)) as connection:
            version = connection.execute("SELECT version FROM smoothcert_memory_version").fetchone()
            if version is None or version[0] != _VERSION:
                raise MemoryPlaceError(
                    f"the server has no memory of format {_VERSION}, the only one that can be verified"
                )
            yield _PostgresPlace(connection)
    except postgres_connection.SilentServerError as error:
        raise MemoryPlaceError(
            f"{postgres_connection.name_place(address)} cannot be read as a memory: {error}. Check the server and the "
            "network; options=-c%20statement_timeout%3D5min in the address allows longer answers"
        ) from None
    except psycopg.Error as error:
        # The message of the driver may quote the address, and the address may hold a password.
        code = f" ({error.sqlstate})" if error.sqlstate else ""
        raise MemoryPlaceError(
            f"{postgres_connection.name_place(address)} cannot be read as a memory: {type(error).__name__}{code}"
        ) from None
