"""Write the provably intact part of a damaged memory to a new one.

Of each log, the longest beginning with an intact hash chain is kept: the claims before the first one that is lost or
changed. Later claims are dropped even if they can be read, because they were settled against the lost one.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.errors import DamagedMemoryError, RegionMemoryError
from smoothcert.files import move_to_unused_name
from smoothcert.memory.claim_log import COLUMNS
from smoothcert.memory.log import BEFORE_ALL, Head, Row, StoredKey, follows
from smoothcert.memory.opening import is_server, open_existing, open_log, parse_key, resolve_location
from smoothcert.memory.sqlite_log import APPLICATION
from smoothcert.sqlite_errors import explain_disk_error, primary_code

if TYPE_CHECKING:
    from smoothcert.memory.postgres_log import PostgresLog

_HEADER_BYTES = 100
_LEAST_ROW_BYTES = 64
_ROWS_AT_ONCE = 64
_UNREADABLE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "")
"""Error codes for a damaged page, a missing table and invalid text. Other errors are not caused by damage."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result for one memory.

    digest: of its key; empty if the key is lost, and with it all claims. kept: claims 1 to kept are in the new memory.
    lost: how many claims are known to be lost. head_known: whether the number of claims that were made is known; if
    not, more may be lost.
    """

    digest: str
    kept: int
    lost: int
    head_known: bool


def recover_memory(old: str | Path, new: str | Path) -> tuple[Recovered, ...]:
    """Write the longest provably intact beginning of every log in `old` to a new database. Return what was lost.

    old, new: paths of SQLite files, or postgresql:// addresses. `old` is not changed and must not be in use. `new` must
    not exist, or hold no memory; it is written completely or not at all. A memory without any provable claim is left
    out; if that is true of all memories, it is an error.

    Lost promises are no longer protected: a claim in the new memory may contradict them. Certificates that were issued
    from lost claims, or from answers that were looked up in them, are void.
    """
    if not is_server(new) and Path(new).exists():
        raise RegionMemoryError(f"{new} exists; a memory is recovered to a new file, nothing is overwritten")
    with _make_folder(new) as folder, _open_remains(old, folder) as remains:
        found = _examine(remains, location=resolve_location(old))
        kept = [stored for stored, report in found if stored is not None and report.kept]
        if not kept:
            raise RegionMemoryError(
                f"nothing of {resolve_location(old)} is provably intact. Restore a backup. Without one, all "
                "certificates issued from it are void, and a new memory must be started in another place"
            )
        _write(((stored, _read_intact(remains, stored)) for stored in kept), new, folder)
    return tuple(report for _, report in found)


@contextlib.contextmanager
def _make_folder(new: str | Path) -> Iterator[Path]:
    """A temporary directory on the disk of the new file."""
    parent = None if is_server(new) else Path(new).resolve().parent
    try:
        folder = Path(tempfile.mkdtemp(prefix=".recover.", dir=parent))
    except OSError as error:
        raise RegionMemoryError(f"nothing can be written to {parent}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _examine(remains: _FileRemains | _ServerRemains, *, location: str) -> list[tuple[StoredKey | None, Recovered]]:
    """For each memory number, the key that proves the most claims (None if there is no valid key), and the result."""
    heads, highest = remains.heads(), remains.highest_positions()
    keys: dict[int, list[StoredKey]] = {number: [] for number in sorted({*heads, *highest})}
    for stored in remains.stored_keys():
        with contextlib.suppress(RegionMemoryError):
            parse_key(stored, location=location)
            keys.setdefault(stored.number, []).append(stored)
    found: list[tuple[StoredKey | None, Recovered]] = []
    for number, candidates in keys.items():
        kept, best = 0, candidates[0] if candidates else None
        for stored in candidates:
            count = sum(1 for _ in _read_intact(remains, stored))
            if count > kept:
                kept, best = count, stored
        made = max(heads[number].claims if number in heads else 0, highest.get(number, 0), kept)
        digest = "" if best is None else best.digest
        found.append((best, Recovered(digest, kept, made - kept, number in heads)))
    return found


def _read_intact(remains: _FileRemains | _ServerRemains, stored: StoredKey) -> Iterator[Row]:
    """The claims that form an intact hash chain from the identity of the memory."""
    end = Head(0, stored.identity)
    for row in remains.rows(stored.number):
        if row.position > end.claims + 1:
            return
        if follows(end, row):
            end = Head(row.position, row.entry)
            yield row


def _write(copies: Iterable[tuple[StoredKey, Iterable[Row]]], new: str | Path, folder: Path) -> None:
    """Write the new database and check its logs by opening it. A file gets its name at the very end."""
    place = new if is_server(new) else folder / "new.sqlite"
    try:
        _fill(place, copies)
    except RegionMemoryError as error:
        # The message names the temporary file, which is removed.
        raise RegionMemoryError(f"nothing was recovered to {resolve_location(new)}: {error}") from error
    if isinstance(place, Path):
        try:
            move_to_unused_name(place, Path(new))
        except FileExistsError as error:
            raise RegionMemoryError(f"another process has created {new}; nothing is overwritten") from error
        except OSError as error:
            raise RegionMemoryError(f"{new} cannot be written: {error.strerror or error}") from error


def _fill(place: str | Path, copies: Iterable[tuple[StoredKey, Iterable[Row]]]) -> None:
    log = open_log(place, create=True)
    try:
        log.restore(copies)
        digests = [stored.digest for stored in log.memories()]
    finally:
        log.disconnect()
    for digest in digests:
        open_existing(place, digest).close()


@contextlib.contextmanager
def _open_remains(old: str | Path, folder: Path) -> Iterator[_FileRemains | _ServerRemains]:
    if is_server(old):
        from smoothcert.memory.postgres_log import PostgresLog

        log = PostgresLog(str(old), create=False, check=False)
        try:
            yield _ServerRemains(log)
        finally:
            log.disconnect()
        return
    with contextlib.closing(_open_copy(Path(old), folder)) as connection:
        yield _FileRemains(connection, size=Path(old).stat().st_size)


def _open_copy(old: Path, folder: Path) -> sqlite3.Connection:
    """Connect to a copy of the file and its log.

    Pages missing at the end are filled with zeros: SQLite reads no page of a file that is shorter than its header says.
    """
    if not old.is_file():
        raise RegionMemoryError(f"{old} does not exist; give the file of the damaged memory")
    copy = folder / "old.sqlite"
    try:
        shutil.copyfile(old, copy)
        log = old.with_name(old.name + "-wal")
        if log.is_file():
            shutil.copyfile(log, folder / "old.sqlite-wal")
        _append_missing_pages(copy)
    except OSError as error:
        raise RegionMemoryError(f"{old} cannot be copied to {folder.parent}: {error.strerror or error}") from error
    try:
        connection = sqlite3.connect(copy, isolation_level=None)
    except sqlite3.Error as error:
        raise _unreadable_error(old, error) from error
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error as error:
        connection.close()
        raise _unreadable_error(old, error) from error
    if application != APPLICATION or "claims" not in names:
        connection.close()
        raise RegionMemoryError(
            f"{old} is no memory of promised regions, or nothing of it can be recovered. If it was a memory, restore a "
            "backup"
        )
    return connection


def _unreadable_error(old: Path, error: sqlite3.Error) -> RegionMemoryError:
    if problem := explain_disk_error(error):
        return RegionMemoryError(f"a copy of {old} in the directory of the new memory cannot be used: {problem}")
    return RegionMemoryError(f"{old} cannot be read at all ({error}): nothing of it can be recovered. Restore a backup")


def _append_missing_pages(file: Path) -> None:
    """Extend the file to the number of pages in its SQLite header (page size at byte 16, number of pages at 28)."""
    with file.open("r+b") as stream:
        header = stream.read(_HEADER_BYTES)
        if len(header) == _HEADER_BYTES and header.startswith(b"SQLite format 3\0"):
            page = int.from_bytes(header[16:18], "big")
            expected = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
            if stream.seek(0, 2) < expected:
                stream.truncate(expected)


class _FileRemains:
    """The readable parts of a damaged SQLite file, not checked.

    Claims are found by row number, without the index, which may be damaged.
    """

    def __init__(self, connection: sqlite3.Connection, *, size: int) -> None:
        self._connection = connection
        self._places: dict[int, dict[int, list[int]]] = {}
        for number in range(1, min(self._find_last_row(), size // _LEAST_ROW_BYTES) + 1):
            query = "SELECT memory, position FROM claims NOT INDEXED WHERE rowid = ?"
            for memory, position in self._query(query, number):
                if isinstance(memory, int) and isinstance(position, int):
                    self._places.setdefault(memory, {}).setdefault(position, []).append(number)

    def stored_keys(self) -> list[StoredKey]:
        """All keys found. Several may have the same number."""
        stored = self._query("SELECT number, digest, key, identity FROM memories NOT INDEXED")
        copies = self._query("SELECT memory, digest, key, identity FROM heads NOT INDEXED")
        return list(dict.fromkeys(StoredKey(*row) for row in stored + copies if _is_key(row)))

    def heads(self) -> dict[int, Head]:
        rows = self._query("SELECT memory, claims, entry FROM heads NOT INDEXED")
        return {row[0]: Head(*row[1:]) for row in rows if isinstance(row[0], int) and isinstance(row[1], int)}

    def highest_positions(self) -> dict[int, int]:
        """The highest position among the claims of each memory number."""
        return {memory: max(positions) for memory, positions in self._places.items()}

    def rows(self, number: int) -> Iterator[Row]:
        """The readable claims, ordered by position. A position may occur several times."""
        query = f"SELECT {COLUMNS}, centre FROM claims NOT INDEXED WHERE rowid = ?"
        for _, places in sorted(self._places.get(number, {}).items()):
            for place in places:
                yield from (Row(*row) for row in self._query(query, place))

    def _find_last_row(self) -> int:
        """The highest possible row number: claims are only appended, so it is the number of claims that were made."""
        queries = ("SELECT max(rowid) FROM claims NOT INDEXED", "SELECT sum(claims) FROM heads")
        found = [row[0] for query in queries for row in self._query(query)]
        return max((last for last in found if isinstance(last, int)), default=0)

    def _query(self, query: str, *values: int) -> list[tuple[Any, ...]]:
        """The rows before the first one that cannot be read."""
        found: list[tuple[Any, ...]] = []
        try:
            found.extend(self._connection.execute(query, values))
        except sqlite3.Error as error:
            if primary_code(error) not in _UNREADABLE:
                raise RegionMemoryError(f"a copy of the damaged memory cannot be read: {error}") from error
        return found


class _ServerRemains:
    """The readable parts of a damaged PostgreSQL database, not checked. Tables may be missing."""

    def __init__(self, log: PostgresLog) -> None:
        self._log = log
        tables = log.tables()
        self._has_claims = "smoothcert_claims" in tables
        self._stored = log.memories() if "smoothcert_memories" in tables else []
        self._copies = log.heads() if "smoothcert_heads" in tables else []

    def stored_keys(self) -> list[StoredKey]:
        return list(dict.fromkeys([*self._stored, *(copy for copy, _ in self._copies)]))

    def heads(self) -> dict[int, Head]:
        return {stored.number: head for stored, head in self._copies}

    def highest_positions(self) -> dict[int, int]:
        return self._log.highest_positions() if self._has_claims else {}

    def rows(self, number: int) -> Iterator[Row]:
        """Ends before the first claim that the server reports as damaged. A lost connection is an error."""
        if not self._has_claims:
            return
        after, at_most = BEFORE_ALL, _ROWS_AT_ONCE
        while True:
            try:
                rows = self._log.read(number, after=after, at_most=at_most)
            except DamagedMemoryError:
                if at_most == 1:
                    return
                at_most = 1
                continue
            if not rows:
                return
            yield from rows
            after = rows[-1].position


def _is_key(row: tuple[Any, ...]) -> bool:
    return isinstance(row[0], int) and all(isinstance(value, str) for value in row[1:])
