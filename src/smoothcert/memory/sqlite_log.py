"""The log of claims in a SQLite file, for every process of one machine.

The file is in WAL mode with synchronous=FULL: a commit returns when the claim is on the disk. Writers exclude each
other by BEGIN IMMEDIATE. `application_id` and `user_version` in the file's header say what it is.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from smoothcert.errors import RegionMemoryError
from smoothcert.memory.log import Row, StoredKey

SCHEMA_VERSION = 1

_APPLICATION = 0x536D4365
"""'SmCe'."""
_SECONDS_TO_WAIT = 300.0
_POSITIONS_AT_ONCE = 500
_PAGE_BYTES = 16384
"""One page holds a CIFAR image; smaller pages would hang the rest of it onto a chain."""
_SCHEMA = """
CREATE TABLE memories (
    number INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    identity TEXT NOT NULL
) STRICT;
CREATE TABLE claims (
    memory INTEGER NOT NULL REFERENCES memories (number),
    position INTEGER NOT NULL,
    label INTEGER NOT NULL,
    radius REAL NOT NULL,
    asked_label INTEGER NOT NULL,
    asked_radius REAL NOT NULL,
    settlement TEXT NOT NULL,
    claimed_at TEXT NOT NULL,
    entry TEXT NOT NULL,
    centre BLOB NOT NULL,
    UNIQUE (memory, position)
) STRICT;
"""
_COLUMNS = "position, label, radius, asked_label, asked_radius, settlement, claimed_at, entry, "


class SqliteLog:
    """One SQLite file. Not for several threads at once; what uses it holds a lock."""

    def __init__(self, path: Path, *, create: bool) -> None:
        """create: make the file if it is not there. Otherwise its absence is an error."""
        # From the root: the process may go elsewhere and connect again from there.
        self._path = path.resolve()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._writing = False
        self._check_place(create=create)
        with self._explained():
            self._connection = self._connect()
            try:
                self._prepare(self._connection, create=create)
            except BaseException:
                self.disconnect()
                raise

    @property
    def location(self) -> str:
        return str(self._path)

    def memories(self) -> list[StoredKey]:
        with self._explained():
            rows = self._open().execute("SELECT number, digest, key, identity FROM memories ORDER BY number")
            return [StoredKey(*row) for row in rows]

    def register(self, digest: str, key: str) -> StoredKey:
        with self._explained():
            known = self._stored(digest)
            if known is None:
                self._open().execute(
                    "INSERT OR IGNORE INTO memories (digest, key, identity) VALUES (?, ?, ?)",
                    (digest, key, uuid.uuid4().hex),
                )
                known = self._stored(digest)
            assert known is not None
            return known

    def _stored(self, digest: str) -> StoredKey | None:
        query = "SELECT number, digest, key, identity FROM memories WHERE digest = ?"
        row = self._open().execute(query, (digest,)).fetchone()
        return None if row is None else StoredKey(*row)

    @contextlib.contextmanager
    def writing(self, memory: int) -> Iterator[None]:
        """All writers of the file are excluded, whichever memory they write to."""
        with self._explained():
            connection = self._open()
        try:
            # Inside: an interrupt that comes while we wait for the lock is delivered when we have it.
            with self._explained():
                connection.execute("BEGIN IMMEDIATE")
            self._writing = True
            yield
            with self._explained():
                connection.execute("COMMIT")
        except BaseException:
            # A commit that failed, for want of space say, may leave the transaction open.
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise
        finally:
            self._writing = False

    def count(self, memory: int) -> int:
        with self._explained():
            row = self._open().execute("SELECT max(position) FROM claims WHERE memory = ?", (memory,)).fetchone()
            return int(row[0] or 0)

    def read(self, memory: int, *, after: int, at_most: int) -> list[Row]:
        query = f"SELECT {_COLUMNS} centre FROM claims WHERE memory = ? AND position > ? ORDER BY position LIMIT ?"
        return self._rows(query, (memory, after, at_most))

    def fetch(self, memory: int, positions: Sequence[int]) -> list[Row]:
        found: list[Row] = []
        for part, places in _parts(positions):
            query = f"SELECT {_COLUMNS} centre FROM claims WHERE memory = ? AND position IN ({places})"
            found += self._rows(query, (memory, *part))
        return found

    def entries(self, memory: int, positions: Sequence[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        with self._explained():
            if 0 in positions:
                identity = self._open().execute("SELECT identity FROM memories WHERE number = ?", (memory,)).fetchone()
                found |= {} if identity is None else {0: identity[0]}
            for part, places in _parts(positions):
                query = f"SELECT position, entry FROM claims WHERE memory = ? AND position IN ({places})"
                found |= dict(self._open().execute(query, (memory, *part)))
        return found

    def outline(self, memory: int) -> list[Row]:
        return self._rows(f"SELECT {_COLUMNS} x'' FROM claims WHERE memory = ? ORDER BY position", (memory,))

    def _rows(self, query: str, parameters: Sequence[Any]) -> list[Row]:
        with self._explained():
            return [Row(*row) for row in self._open().execute(query, parameters)]

    def append(self, memory: int, row: Row) -> None:
        with self._explained():
            self._open().execute(
                f"INSERT INTO claims (memory, {_COLUMNS} centre) VALUES (?,?,?,?,?,?,?,?,?,?)", (memory, *row)
            )

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._writing:
                raise RegionMemoryError(f"the connection to {self._path} was lost in the middle of a claim")
            self._check_place(create=False)
            self._connection = self._connect()
        elif self._file != _file_at(self._path):
            raise RegionMemoryError(
                f"{self._path} was deleted or replaced while it was in use. What was promised since can be kept by "
                "nobody: put the file back, or begin again with a new memory"
            )
        return self._connection

    def _check_place(self, *, create: bool) -> None:
        if self._path.is_dir():
            raise RegionMemoryError(f"{self._path} is a directory; a memory is a single file, such as memory.sqlite")
        if not create and not self._path.is_file():
            raise RegionMemoryError(f"{self._path} does not exist; give the file of a memory that was made before")
        if not self._path.parent.is_dir():
            raise RegionMemoryError(f"{self._path} cannot be made: the directory {self._path.parent} does not exist")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False
        )
        try:
            # The result waits for the disk, also where SQLite was built with another default.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA schema_version").fetchone()  # touches the file, which is made now if it is new
        except BaseException:
            connection.close()
            raise
        self._file = _file_at(self._path)
        return connection

    def _prepare(self, connection: sqlite3.Connection, *, create: bool) -> None:
        """Make the tables in an empty file, if that is wanted; refuse a file that is something else."""
        if not self._is_ours(connection):
            if not create:
                raise RegionMemoryError(f"{self._path} is empty: it holds no memory of promised regions")
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                # Another process may have been faster.
                if not self._is_ours(connection):
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        _use_wal(connection)

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether this is a memory; False if it is an empty file, an error if it is anything else."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application == _APPLICATION:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA_VERSION:
                raise RegionMemoryError(
                    f"{self._path} is a memory of version {version}; this smoothcert reads version {SCHEMA_VERSION}: "
                    "use the smoothcert it was made with, or another file"
                )
            return True
        if application != 0 or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise RegionMemoryError(
                f"{self._path} is a SQLite database of something else, not a memory of promised regions; choose "
                "another file"
            )
        return False

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Whatever SQLite raises, as a sentence about the memory."""
        try:
            yield
        except sqlite3.Error as error:
            raise RegionMemoryError(self._sentence(error)) from error

    def _sentence(self, error: sqlite3.Error) -> str:
        # Extended codes, such as SQLITE_READONLY_DIRECTORY, begin with the name of the plain one.
        code = "_".join((getattr(error, "sqlite_errorname", None) or "").split("_")[:2])
        match code:
            case "SQLITE_NOTADB":
                return f"{self._path} is not a memory of promised regions: it is not a SQLite database"
            case "SQLITE_BUSY" | "SQLITE_LOCKED":
                return (
                    f"{self._path} has been locked by another process for {_SECONDS_TO_WAIT:.0f} seconds; wait for it "
                    "or stop it, then try again. Nothing was claimed"
                )
            case "SQLITE_READONLY" | "SQLITE_CANTOPEN" | "SQLITE_PERM":
                return (
                    f"{self._path} cannot be written ({error}); a memory and its directory must be writable, also for "
                    "reading it"
                )
            case "SQLITE_FULL" | "SQLITE_IOERR":
                return f"{self._path} cannot be written ({error}); make room on the disk. Nothing was claimed"
            case "SQLITE_CORRUPT":
                return f"{self._path} is damaged: {error}"
            case _:
                return f"{self._path} cannot be used: {error}"


def _parts(positions: Sequence[int]) -> Iterator[tuple[Sequence[int], str]]:
    """As many positions as a statement takes, with their placeholders."""
    for start in range(0, len(positions), _POSITIONS_AT_ONCE):
        part = positions[start : start + _POSITIONS_AT_ONCE]
        yield part, ",".join("?" * len(part))


def _file_at(path: Path) -> tuple[int, int] | None:
    """What tells this file from another that comes to have its name."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. Unlike other statements this one does not wait for locks, so it is repeated."""
    deadline = time.monotonic() + _SECONDS_TO_WAIT
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise RegionMemoryError(
                    f"this place does not let SQLite keep a write-ahead log (its journal mode is {mode!r}): put the "
                    "memory on a local disk"
                )
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
