"""The log of claims in a SQLite file, shared by all processes of one machine.

The file is in WAL mode with synchronous=FULL: a commit returns when the claim is on the disk. Writers exclude each
other by BEGIN IMMEDIATE. `application_id` and `user_version` in the file header identify the format.

A new file gets its name when it is complete. An empty file or an empty database is therefore never a memory that
another process is just creating.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from smoothcert.errors import RegionMemoryError
from smoothcert.files import write_whole
from smoothcert.memory.claim_log import SCHEMA_VERSION, TABLES, ClaimLog
from smoothcert.memory.log import damage_error
from smoothcert.sqlite_errors import explain_disk_error, is_locked, primary_code

APPLICATION = 0x536D4365
"""'SmCe'."""
_SECONDS_TO_WAIT = 300.0
_PAGE_BYTES = 16384
"""One page holds a CIFAR image. With smaller pages most of it would be on a chain of overflow pages."""
_SCHEMA = TABLES.format(
    prefix="",
    number="INTEGER",
    integer="INTEGER",
    real="REAL",
    text="TEXT",
    blob="BLOB",
    unique="UNIQUE",
    options=" STRICT",
)
_TRIGGER = """
CREATE TRIGGER claim_follows_head BEFORE INSERT ON claims
WHEN NOT EXISTS (SELECT 1 FROM heads WHERE memory = NEW.memory AND claims = NEW.position AND entry = NEW.entry)
BEGIN SELECT RAISE(ABORT, 'the head was not moved: an earlier version of smoothcert is writing; stop it'); END;
"""
"""Refuses a writer that knows nothing of heads, as in version 1."""
_REQUIRED = {"memories", "claims", "heads", "claim_follows_head"}
_LOG_SUFFIXES = ("-wal", "-journal")


def check_folder(path: Path) -> None:
    """RegionMemoryError if no memory can be at this path: it is a folder, or its folder does not exist."""
    try:
        is_directory, has_parent = path.is_dir(), path.parent.is_dir()
    except OSError as error:  # a name that is too long, or a directory that may not be entered
        raise RegionMemoryError(f"{path} cannot be used as a memory: {error.strerror or error}") from error
    if is_directory:
        raise RegionMemoryError(f"{path} is a directory; a memory is a single file, such as memory.sqlite")
    if not has_parent:
        raise RegionMemoryError(f"{path} cannot be created: the directory {path.parent} does not exist")


class SqliteLog(ClaimLog):
    """One SQLite file."""

    _PREFIX = ""
    _MARK = "?"
    _POSITIONS_PER_QUERY = 500
    _CREATE_PROBES = "CREATE TABLE IF NOT EXISTS probes (digest TEXT PRIMARY KEY, probe TEXT NOT NULL) STRICT"

    def __init__(self, path: Path, *, create: bool) -> None:
        """create: create the file if it does not exist. Otherwise a missing file is an error."""
        # Absolute: the process may change its directory and reconnect.
        self._path = path.resolve()
        super().__init__(str(self._path))
        self._file: tuple[int, int] | None = None
        with self._translate_errors():
            self._check_place(create=create)
            if not self._path.exists():
                self._create_file()
            self._connection = self._connect()
            try:
                self._check_database()
                self._use_wal()
            except BaseException:
                self.disconnect()
                raise

    def tables(self) -> set[str]:
        """Names of the tables and triggers that exist."""
        return {name for (name,) in self._query("SELECT name FROM sqlite_master")}

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._open().execute(statement, values)

    def _begin(self, memory: int | None) -> None:
        """Locks the whole file, whichever memory is written."""
        self._execute("BEGIN IMMEDIATE")

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._check_lost_connection()
            self._check_place(create=False)
            self._connection = self._connect()
        elif self._file != _identify_file(self._path):
            raise RegionMemoryError(
                f"{self._path} was deleted or replaced while it was in use. Regions promised since then are lost: "
                "restore the file, or start a new memory"
            )
        connection: sqlite3.Connection = self._connection
        return connection

    def _check_place(self, *, create: bool) -> None:
        if not create and not (self._path.is_file() or self._path.is_dir()):
            raise RegionMemoryError(f"{self._path} does not exist; give the file of an existing memory")
        check_folder(self._path)
        if self._path.exists() and self._path.stat().st_size == 0:
            raise RegionMemoryError(
                f"{self._path} is empty, which a memory never is: it was truncated, or another program created it. "
                "Restore a backup if regions were ever promised in it. Otherwise delete it to start a new memory there"
            )
        # A log of SQLite without its file is the rest of a lost memory. SQLite would play it into a new file.
        for log in (self._path.with_name(self._path.name + suffix) for suffix in _LOG_SUFFIXES):
            # In this order: a file that another process has just created exists before its log.
            if _size_of(log) and not self._path.exists():
                raise RegionMemoryError(
                    f"{self._path} does not exist, but its log {log.name} does: a memory was lost. Restore a backup "
                    f"and delete {log.name}. To start a new memory instead, delete {log.name}; all regions promised "
                    "before are then lost"
                )

    def _create_file(self) -> None:
        try:
            write_whole(self._path, _build_empty_database(), overwrite=False)
        except FileExistsError:
            pass  # another process was faster and wrote the same content
        except OSError as error:
            raise RegionMemoryError(f"{self._path} cannot be written: {error.strerror or error}") from error

    def _connect(self) -> sqlite3.Connection:
        # A URI, because only a URI can forbid SQLite to create the file.
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode=rw",
            uri=True,
            timeout=_SECONDS_TO_WAIT,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # Set explicitly, because SQLite may have been built with another default.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA schema_version").fetchone()  # reads the file
        except BaseException:
            connection.close()
            raise
        self._file = _identify_file(self._path)
        return connection

    def _check_database(self) -> None:
        """Refuse a file that is something else, of another version, or damaged."""
        if self._query("PRAGMA application_id")[0][0] != APPLICATION:
            raise RegionMemoryError(
                f"{self._path} is a SQLite database of something else, not a memory of promised regions; choose "
                "another file"
            )
        self._check_version(self._query("PRAGMA user_version")[0][0])
        self._check_pages()
        missing = _REQUIRED - self.tables()
        if missing:
            raise damage_error(self.location, f"it lacks {', '.join(sorted(missing))}")
        self._check_agreement()

    def _check_pages(self) -> None:
        """Check that no page is lost and that the index contains every claim.

        `quick_check` would not compare the index with the table. It is hardly faster, since centres fill most pages.
        """
        page = self._query("PRAGMA page_size")[0][0]
        log = self._path.with_name(self._path.name + "-wal")
        # SQLite accepts a last page that was cut where it is unused. While the log is written back to the file, the
        # file can have any size, so the size is read again once the log is known to be empty.
        if _size_of(self._path) % page and not _size_of(log):
            size = _size_of(self._path)
            if size % page:
                raise damage_error(self.location, f"its size of {size} bytes is not a multiple of its page size {page}")
        faults = [str(row[0]) for row in self._query("PRAGMA integrity_check")]
        if faults != ["ok"]:
            first = " ".join(faults[0].split()) if faults else "no details given"
            raise damage_error(
                self.location, f"SQLite's integrity check found {len(faults)} faults, the first: {first}"
            )

    def _use_wal(self) -> None:
        """Switch the file to WAL mode. Unlike other statements this one does not wait for locks, so it is repeated."""
        deadline = time.monotonic() + _SECONDS_TO_WAIT
        while True:
            try:
                (mode,) = self._execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if not is_locked(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise RegionMemoryError(
                f"SQLite cannot keep a write-ahead log beside {self._path} (its journal mode is {mode!r}): put the "
                "memory on a local disk"
            )

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._describe(error) from error
        except OSError as error:
            raise RegionMemoryError(f"{self._path} cannot be used: {error.strerror or error}") from error

    def _describe(self, error: sqlite3.Error) -> RegionMemoryError:
        if is_locked(error):
            return RegionMemoryError(
                f"{self._path} has been locked by another process for {_SECONDS_TO_WAIT:.0f} seconds. Nothing was "
                "claimed; wait for that process or stop it, then try again"
            )
        if problem := explain_disk_error(error):
            # A commit that fails may have reached the disk.
            note = (
                ". The claim being made may be stored or not: make it again, which is safe" if self._is_writing else ""
            )
            return RegionMemoryError(
                f"{self._path} cannot be written, as a memory must be even for reading: {problem}{note}"
            )
        match primary_code(error):
            case "SQLITE_NOTADB":
                return RegionMemoryError(
                    f"{self._path} is not a memory of promised regions: it is not a SQLite database. If it was one, "
                    "restore a backup; `smoothcert memory recover` cannot read it"
                )
            case "SQLITE_CORRUPT":
                return damage_error(self.location, str(error))
            case "" if str(error).startswith("Could not decode"):
                return damage_error(self.location, "it holds text that is not valid UTF-8")
            case _:
                return RegionMemoryError(f"{self._path} cannot be used: {error}")


def _build_empty_database() -> bytes:
    """The content of a file of the current version without memories."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.executescript(_SCHEMA + _TRIGGER)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return connection.serialize()


def _size_of(path: Path) -> int:
    """In bytes; 0 if there is no file, as when another process has just removed the log of SQLite."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _identify_file(path: Path) -> tuple[int, int] | None:
    """Device and inode, which distinguish a file from a later one with the same name; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
