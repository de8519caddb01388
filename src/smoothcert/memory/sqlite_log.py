"""The log of claims in a SQLite file, for every process of one machine.

The file is in WAL mode with synchronous=FULL: a commit returns when the claim is on the disk. Writers exclude each
other by BEGIN IMMEDIATE. `application_id` and `user_version` in the file's header say what it is.

Version 1 had no heads. Such a file is taken over when it is opened, if its chains of entries are whole. A new file gets
its name when it is complete: a file that is empty, or an empty database, is never one of ours that is only beginning.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from smoothcert.errors import RegionMemoryError
from smoothcert.files import write_whole
from smoothcert.memory.log import Head, Row, StoredKey, check_agreement, damaged, disagreements, end_of_chain

SCHEMA_VERSION = 2

APPLICATION = 0x536D4365
"""'SmCe'."""
_SECONDS_TO_WAIT = 300.0
_POSITIONS_AT_ONCE = 500
_PAGE_BYTES = 16384
"""One page holds a CIFAR image; smaller pages would hang the rest of it onto a chain."""
_MEMORIES = """
CREATE TABLE memories (
    number INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    identity TEXT NOT NULL
) STRICT
"""
_CLAIMS = """
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
) STRICT
"""
_HEADS = """
CREATE TABLE heads (
    memory INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    identity TEXT NOT NULL,
    claims INTEGER NOT NULL,
    entry TEXT NOT NULL
) STRICT
"""
"""One row a memory: a second copy of its key, and the head of its log."""
_PROBES = """
CREATE TABLE probes (
    digest TEXT PRIMARY KEY,
    probe TEXT NOT NULL
) STRICT
"""
"""By the digest of a memory, how its model answers fixed inputs. No claim rests on it."""
_GUARD = """
CREATE TRIGGER claim_follows_head BEFORE INSERT ON claims
WHEN NOT EXISTS (SELECT 1 FROM heads WHERE memory = NEW.memory AND claims = NEW.position AND entry = NEW.entry)
BEGIN SELECT RAISE(ABORT, 'the head was not moved: an earlier version of smoothcert is writing; stop it'); END
"""
"""A process of version 1 that has had the file open since before it was taken over knows nothing of heads."""
_PARTS = {1: {"memories", "claims"}, 2: {"memories", "claims", "heads", "claim_follows_head"}}
"""The tables and triggers of each version."""
_LOGS_BESIDE = ("-wal", "-journal")
COLUMNS = "position, label, radius, asked_label, asked_radius, settlement, claimed_at, entry, "


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
        if not self._path.exists():
            self._make()
        with self._explained():
            self._connection = self._connect()
            try:
                self._prepare(self._connection)
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
        if known is not None:
            return known
        with self._transaction():
            # Another process may have been faster.
            return self._stored(digest) or self._add(digest, key, uuid.uuid4().hex)

    def restore(self, copies: Iterable[tuple[StoredKey, Iterable[Row]]]) -> None:
        with self._transaction():
            if self.memories():
                raise RegionMemoryError(f"{self._path} holds a memory already; give another file")
            for stored, rows in copies:
                made = self._add(stored.digest, stored.key, stored.identity)
                for row in rows:
                    self.append(made.number, row)

    def _add(self, digest: str, key: str, identity: str) -> StoredKey:
        self._open().execute("INSERT INTO memories (digest, key, identity) VALUES (?, ?, ?)", (digest, key, identity))
        stored = self._stored(digest)
        assert stored is not None
        self._add_head(stored, Head(0, identity))
        return stored

    def _add_head(self, stored: StoredKey, head: Head) -> None:
        self._open().execute(
            "INSERT INTO heads (memory, digest, key, identity, claims, entry) VALUES (?,?,?,?,?,?)", (*stored, *head)
        )

    def _stored(self, digest: str) -> StoredKey | None:
        query = "SELECT number, digest, key, identity FROM memories WHERE digest = ?"
        row = self._open().execute(query, (digest,)).fetchone()
        return None if row is None else StoredKey(*row)

    def probe(self, digest: str) -> str | None:
        with self._explained():
            if not self._has_probes():
                return None
            row = self._open().execute("SELECT probe FROM probes WHERE digest = ?", (digest,)).fetchone()
            return None if row is None else str(row[0])

    def keep_probe(self, digest: str, probe: str) -> None:
        with self._transaction():
            if not self._has_probes():
                self._open().execute(_PROBES)
            self._open().execute("INSERT OR IGNORE INTO probes VALUES (?, ?)", (digest, probe))

    def _has_probes(self) -> bool:
        """Files of earlier versions have none; the table is made when the first one is kept."""
        found = self._open().execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'probes'")
        return found.fetchone() is not None

    def writing(self, memory: int) -> contextlib.AbstractContextManager[None]:
        """All writers of the file are excluded, whichever memory they write to."""
        return self._transaction()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._explained():
            connection = self._open()
        try:
            # Inside: an interrupt that comes while we wait for the lock is delivered when we have it.
            with self._explained():
                connection.execute("BEGIN IMMEDIATE")
            self._writing = True
            with self._explained():
                yield
                connection.execute("COMMIT")
        except BaseException:
            # A commit that failed, for want of space say, may leave the transaction open.
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise
        finally:
            self._writing = False

    def head(self, memory: int) -> Head:
        with self._explained():
            row = self._open().execute("SELECT claims, entry FROM heads WHERE memory = ?", (memory,)).fetchone()
        if row is None:
            raise damaged(self.location, "the head of its log is missing")
        return Head(*row)

    def read(self, memory: int, *, after: int, at_most: int) -> list[Row]:
        query = f"SELECT {COLUMNS} centre FROM claims WHERE memory = ? AND position > ? ORDER BY position LIMIT ?"
        return self._rows(query, (memory, after, at_most))

    def fetch(self, memory: int, positions: Sequence[int]) -> list[Row]:
        found: list[Row] = []
        for part, places in _parts(positions):
            query = f"SELECT {COLUMNS} centre FROM claims WHERE memory = ? AND position IN ({places})"
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
        return self._rows(f"SELECT {COLUMNS} x'' FROM claims WHERE memory = ? ORDER BY position", (memory,))

    def _rows(self, query: str, parameters: Sequence[Any]) -> list[Row]:
        with self._explained():
            return [Row(*row) for row in self._open().execute(query, parameters)]

    def append(self, memory: int, row: Row) -> None:
        with self._explained():
            moved = self._open().execute(
                "UPDATE heads SET claims = ?, entry = ? WHERE memory = ? AND claims = ?",
                (row.position, row.entry, memory, row.position - 1),
            )
            if moved.rowcount != 1:
                raise damaged(self.location, f"claim {row.position} does not come next")
            self._open().execute(
                f"INSERT INTO claims (memory, {COLUMNS} centre) VALUES (?,?,?,?,?,?,?,?,?,?)", (memory, *row)
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
        if self._path.exists() and self._path.stat().st_size == 0:
            raise RegionMemoryError(
                f"{self._path} is empty, which a memory never is: it was cut off, or something else made this file. "
                "Restore a backup, if regions were ever promised in it; if none were, delete it, and a new memory can "
                "begin there"
            )
        self._check_nothing_is_left()

    def _check_nothing_is_left(self) -> None:
        """A log of SQLite without its file is what remains of a memory; SQLite would play it into a new file."""
        for log in (self._path.with_name(self._path.name + ending) for ending in _LOGS_BESIDE):
            # Looked at in this order: a file that another process has just made is there before its log.
            if log.is_file() and log.stat().st_size and not self._path.exists():
                raise RegionMemoryError(
                    f"{self._path} does not exist, but its log {log.name} is there: a memory was lost. Restore a "
                    f"backup and delete {log.name}; delete it also to begin a new memory, if no region that was "
                    "promised matters any more"
                )

    def _make(self) -> None:
        """Make a file without memories, which gets its name when it is complete."""
        try:
            write_whole(self._path, _empty_database(), overwrite=False)
        except FileExistsError:
            pass  # another process was faster, with the same content
        except OSError as error:
            raise RegionMemoryError(f"{self._path} cannot be written: {error.strerror or error}") from error

    def _connect(self) -> sqlite3.Connection:
        # An address, because only that can say that no file is to be made.
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode=rw",
            uri=True,
            timeout=_SECONDS_TO_WAIT,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # The result waits for the disk, also where SQLite was built with another default.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA schema_version").fetchone()  # touches the file
        except BaseException:
            connection.close()
            raise
        self._file = _file_at(self._path)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is something else, or not whole; bring an earlier version up to date."""
        version = self._version(connection)
        self._check_pages(connection)
        self._check_parts(connection, version)
        if version == 1:
            self._take_over(connection)
        self._check_agreement(connection)
        _use_wal(connection)

    def _version(self, connection: sqlite3.Connection) -> int:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise RegionMemoryError(
                f"{self._path} is a SQLite database of something else, not a memory of promised regions; choose "
                "another file"
            )
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in _PARTS:
            raise RegionMemoryError(
                f"{self._path} is a memory of version {version}; this smoothcert reads versions up to "
                f"{SCHEMA_VERSION}: use the smoothcert it was made with, or another file"
            )
        return version

    def _check_pages(self, connection: sqlite3.Connection) -> None:
        """What SQLite can say of the file: no page is lost, and every claim is in the index that finds it.

        `quick_check` would not compare the index with the table, and is hardly faster where most of a page is a centre.
        """
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        log = self._path.with_name(self._path.name + "-wal")
        # The last page may be cut where it is unused, which SQLite does not mind. While the log is written back to the
        # file its size may be anything; it is looked at again once the log is known to be empty.
        if self._path.stat().st_size % page and not (log.is_file() and log.stat().st_size):
            size = self._path.stat().st_size
            if size % page:
                raise damaged(self.location, f"it has {size} bytes, which is no whole number of pages of {page}")
        told = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        if told != ["ok"]:
            first = " ".join(told[0].split()) if told else "nothing was said"
            raise damaged(self.location, f"SQLite's integrity check finds {len(told)} faults, the first: {first}")

    def _check_parts(self, connection: sqlite3.Connection, version: int) -> None:
        lacking = _PARTS[version] - {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if lacking:
            raise damaged(self.location, f"it lacks {', '.join(sorted(lacking))}")

    def _check_agreement(self, connection: sqlite3.Connection) -> None:
        check_agreement([row[0] for row in connection.execute(disagreements())], location=self.location)

    def _take_over(self, connection: sqlite3.Connection) -> None:
        """From version 1: give every memory the head that its claims have, if their chain is whole."""
        with self._transaction():
            # Another process may have been faster.
            if self._version(connection) != 1:
                return
            connection.execute(_HEADS)
            for stored in self.memories():
                self._add_head(stored, end_of_chain(self, stored))
            connection.execute(_GUARD)
            self._check_agreement(connection)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Whatever SQLite raises, as a sentence about the memory."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explanation(error) from error

    def _explanation(self, error: sqlite3.Error) -> RegionMemoryError:
        match plain_code(error):
            case "SQLITE_NOTADB":
                return RegionMemoryError(
                    f"{self._path} is not a memory of promised regions: it is not a SQLite database. If it was one, "
                    "restore a backup; `smoothcert memory recover` can read nothing of it"
                )
            case "SQLITE_BUSY" | "SQLITE_LOCKED":
                return RegionMemoryError(
                    f"{self._path} has been locked by another process for {_SECONDS_TO_WAIT:.0f} seconds; wait for it "
                    "or stop it, then try again. Nothing was claimed"
                )
            case "SQLITE_READONLY" | "SQLITE_CANTOPEN" | "SQLITE_PERM":
                return RegionMemoryError(
                    f"{self._path} cannot be written ({error}); a memory and its directory must be writable, also for "
                    "reading it"
                )
            case "SQLITE_FULL" | "SQLITE_IOERR":
                return RegionMemoryError(
                    f"{self._path} cannot be written ({error}); make room on the disk. Nothing was claimed"
                )
            case "SQLITE_CORRUPT":
                return damaged(self.location, str(error))
            case "" if str(error).startswith("Could not decode"):
                return damaged(self.location, "it holds a text that is none")
            case _:
                return RegionMemoryError(f"{self._path} cannot be used: {error}")


def plain_code(error: sqlite3.Error) -> str:
    """The name of SQLite's code; extended ones, such as SQLITE_READONLY_DIRECTORY, begin with that of the plain one.
    Empty where Python found something itself."""
    return "_".join((getattr(error, "sqlite_errorname", None) or "").split("_")[:2])


def _empty_database() -> bytes:
    """A file of the present version that holds no memory."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        for statement in (_MEMORIES, _CLAIMS, _HEADS, _GUARD):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return connection.serialize()


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
