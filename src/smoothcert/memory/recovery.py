"""Take what is provably intact out of a damaged memory, and write it to a new one.

Of every memory the longest beginning of its log is kept whose chain of entries is whole: the claims up to the first
that is lost or changed. Later claims are not kept, even where they can be read: they were settled against the lost one.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from smoothcert.errors import DamagedMemoryError, RegionMemoryError
from smoothcert.files import move_to_unused_name
from smoothcert.memory.log import BEFORE_ALL, Head, Row, StoredKey, follows
from smoothcert.memory.opening import is_server, key_of, lasting_name, open_existing, open_log
from smoothcert.memory.sqlite_log import APPLICATION, COLUMNS, plain_code

if TYPE_CHECKING:
    from smoothcert.memory.postgres_log import PostgresLog

_HEADER_BYTES = 100
_LEAST_ROW_BYTES = 64
_ROWS_AT_ONCE = 64
_UNREADABLE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "")
"""A damaged page, a table that is missing, a text that is none. Anything else is no damage."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of one memory.

    digest: of its key; empty where the key is lost, and with it everything. kept: claims 1 to kept are in the new
    memory. lost: how many are known to be lost. head_known: whether the number of claims that were made is known;
    otherwise more may be lost.
    """

    digest: str
    kept: int
    lost: int
    head_known: bool


def recover_memory(old: str | Path, new: str | Path) -> tuple[Recovered, ...]:
    """Write the longest provably intact beginning of every log in `old` to a new database, and say what is lost.

    old, new: paths of SQLite files, or postgresql:// addresses. `old` is not changed; nobody may use it meanwhile.
    `new` must not exist, or hold no memory; it is written whole or not at all. A memory of which nothing can be proved
    is left out; where that is so of all, it is an error.

    What was lost is no longer protected: a claim in the new memory may contradict it. Certificates that were handed out
    from lost claims, or from answers that were looked up in them, are void.
    """
    if not is_server(new) and Path(new).exists():
        raise RegionMemoryError(f"{new} exists; a memory is recovered to a new file, nothing is overwritten")
    with _workshop(new) as folder, _opened_remains(old, folder) as remains:
        found = _examine(remains, location=lasting_name(old))
        kept = [one.stored for one in found if one.stored is not None and one.report.kept]
        if not kept:
            raise RegionMemoryError(
                f"nothing of {lasting_name(old)} is provably intact. Restore a backup; without one, every certificate "
                "that was handed out from it is void, and a new memory must begin in another place"
            )
        _write(((stored, _intact(remains, stored)) for stored in kept), new, folder)
    return tuple(one.report for one in found)


@contextlib.contextmanager
def _workshop(new: str | Path) -> Iterator[Path]:
    """A directory on the disk of the new file, gone afterwards."""
    room = None if is_server(new) else Path(new).resolve().parent
    try:
        folder = Path(tempfile.mkdtemp(prefix=".recover.", dir=room))
    except OSError as error:
        raise RegionMemoryError(f"nothing can be written to {room}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Remains(Protocol):
    """What can be read of a damaged database. Nothing in it is believed."""

    def stored_keys(self) -> list[StoredKey]:
        """All that are found, also several for one number."""

    def heads(self) -> dict[int, Head]: ...

    def highest(self) -> dict[int, int]:
        """The highest position of each number of a memory that occurs among the claims."""

    def rows(self, number: int) -> Iterator[Row]:
        """The claims that can be read, by position; where there are several for one, all of them."""


@dataclass(frozen=True, slots=True)
class _Found:
    """stored: the key by which most can be proved; None where there is none."""

    stored: StoredKey | None
    report: Recovered


def _examine(remains: _Remains, *, location: str) -> list[_Found]:
    heads, highest = remains.heads(), remains.highest()
    keys: dict[int, list[StoredKey]] = {number: [] for number in sorted({*heads, *highest})}
    for stored in remains.stored_keys():
        with contextlib.suppress(RegionMemoryError):
            key_of(stored, location=location)
            keys.setdefault(stored.number, []).append(stored)
    found = []
    for number, candidates in keys.items():
        kept, best = 0, candidates[0] if candidates else None
        for stored in candidates:
            count = sum(1 for _ in _intact(remains, stored))
            if count > kept:
                kept, best = count, stored
        made = max(heads[number].claims if number in heads else 0, highest.get(number, 0), kept)
        digest = best.digest if best is not None else ""
        found.append(_Found(best, Recovered(digest, kept, made - kept, number in heads)))
    return found


def _intact(remains: _Remains, stored: StoredKey) -> Iterator[Row]:
    """The claims that follow from the identity of the memory, one from the other, without a gap."""
    end = Head(0, stored.identity)
    for row in remains.rows(stored.number):
        if row.position > end.claims + 1:
            return
        if follows(end, row):
            end = Head(row.position, row.entry)
            yield row


def _write(copies: Iterable[tuple[StoredKey, Iterable[Row]]], new: str | Path, folder: Path) -> None:
    """A file gets its name when all is in it and its chains were proved by opening it. A server has transactions."""
    place = new if is_server(new) else folder / "new.sqlite"
    log = open_log(place, create=True)
    try:
        log.restore(copies)
        digests = [stored.digest for stored in log.memories()]
    finally:
        log.disconnect()
    for digest in digests:
        open_existing(place, digest).close()
    if isinstance(place, Path):
        try:
            move_to_unused_name(place, Path(new))
        except FileExistsError as error:
            raise RegionMemoryError(
                f"{new} has been made by somebody else meanwhile; nothing is overwritten"
            ) from error
        except OSError as error:
            raise RegionMemoryError(f"{new} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def _opened_remains(old: str | Path, folder: Path) -> Iterator[_Remains]:
    if is_server(old):
        from smoothcert.memory.postgres_log import PostgresLog

        log = PostgresLog(str(old), create=False, check=False)
        try:
            yield _ServerRemains(log)
        finally:
            log.disconnect()
        return
    with contextlib.closing(_opened_copy(Path(old), folder)) as connection:
        yield _FileRemains(connection, size=Path(old).stat().st_size)


def _opened_copy(old: Path, folder: Path) -> sqlite3.Connection:
    """A connection to a copy, with its log. Where pages are missing at its end, they are zeros there: SQLite refuses
    every page of a file that is shorter than it should be.
    """
    if not old.is_file():
        raise RegionMemoryError(f"{old} does not exist; give the file of the damaged memory")
    copy = folder / "old.sqlite"
    try:
        shutil.copyfile(old, copy)
        log = old.with_name(old.name + "-wal")
        if log.is_file():
            shutil.copyfile(log, folder / "old.sqlite-wal")
        _fill_up(copy)
    except OSError as error:
        raise RegionMemoryError(f"{old} cannot be copied to {folder.parent}: {error.strerror or error}") from error
    connection = sqlite3.connect(copy, isolation_level=None)
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error as error:
        connection.close()
        raise RegionMemoryError(
            f"{old} cannot be read at all ({error}): nothing of it can be recovered. Restore a backup"
        ) from error
    if application != APPLICATION or "claims" not in names:
        connection.close()
        raise RegionMemoryError(
            f"{old} is no memory of promised regions, or nothing of it can be recovered: if it was one, restore a "
            "backup"
        )
    return connection


def _fill_up(file: Path) -> None:
    """Up to the number of pages that the header of a SQLite file states; its page size is at 16, that number at 28."""
    with file.open("r+b") as stream:
        header = stream.read(_HEADER_BYTES)
        if len(header) == _HEADER_BYTES and header.startswith(b"SQLite format 3\0"):
            size = int.from_bytes(header[16:18], "big")
            whole = int.from_bytes(header[28:32], "big") * (65536 if size == 1 else size)
            if stream.seek(0, 2) < whole:
                stream.truncate(whole)


class _FileRemains:
    """A SQLite file. The claims are found by their row numbers, which the damaged index has no part in."""

    def __init__(self, connection: sqlite3.Connection, *, size: int) -> None:
        self._connection = connection
        self._places: dict[int, dict[int, list[int]]] = {}
        for number in range(1, min(self._last_row(), size // _LEAST_ROW_BYTES) + 1):
            query = "SELECT memory, position FROM claims NOT INDEXED WHERE rowid = ?"
            for memory, position in self._readable(query, number):
                if isinstance(memory, int) and isinstance(position, int):
                    self._places.setdefault(memory, {}).setdefault(position, []).append(number)

    def stored_keys(self) -> list[StoredKey]:
        stored = self._readable("SELECT number, digest, key, identity FROM memories NOT INDEXED")
        copies = self._readable("SELECT memory, digest, key, identity FROM heads NOT INDEXED")
        return list(dict.fromkeys(StoredKey(*row) for row in stored + copies if _is_key(row)))

    def heads(self) -> dict[int, Head]:
        rows = self._readable("SELECT memory, claims, entry FROM heads NOT INDEXED")
        return {row[0]: Head(*row[1:]) for row in rows if isinstance(row[0], int) and isinstance(row[1], int)}

    def highest(self) -> dict[int, int]:
        return {memory: max(positions) for memory, positions in self._places.items()}

    def rows(self, number: int) -> Iterator[Row]:
        positions = self._places.get(number, {})
        for position in sorted(positions):
            for place in positions[position]:
                for row in self._readable(f"SELECT {COLUMNS} centre FROM claims NOT INDEXED WHERE rowid = ?", place):
                    yield Row(*row)

    def _last_row(self) -> int:
        """The last row number there can be: claims are appended, so there are as many as were made."""
        queries = ("SELECT max(rowid) FROM claims NOT INDEXED", "SELECT sum(claims) FROM heads")
        found = [row[0] for query in queries for row in self._readable(query)]
        return max((last for last in found if isinstance(last, int)), default=0)

    def _readable(self, query: str, *values: int) -> list[tuple[Any, ...]]:
        """The rows up to the first that cannot be read."""
        found: list[tuple[Any, ...]] = []
        try:
            found.extend(self._connection.execute(query, values))
        except sqlite3.Error as error:
            if plain_code(error) not in _UNREADABLE:
                raise RegionMemoryError(f"a copy of the damaged memory cannot be read: {error}") from error
        return found


class _ServerRemains:
    """Tables of a PostgreSQL database; some may be missing."""

    def __init__(self, log: PostgresLog) -> None:
        self._log = log
        self._tables = log.tables()

    def stored_keys(self) -> list[StoredKey]:
        stored = self._log.memories() if "smoothcert_memories" in self._tables else []
        return list(dict.fromkeys([*stored, *(copy for copy, _ in self._copies())]))

    def heads(self) -> dict[int, Head]:
        return {stored.number: head for stored, head in self._copies()}

    def highest(self) -> dict[int, int]:
        return self._log.highest() if "smoothcert_claims" in self._tables else {}

    def rows(self, number: int) -> Iterator[Row]:
        """Up to the first that the server finds damaged; that it cannot be reached is an error."""
        if "smoothcert_claims" not in self._tables:
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

    def _copies(self) -> list[tuple[StoredKey, Head]]:
        return self._log.heads() if "smoothcert_heads" in self._tables else []


def _is_key(row: tuple[Any, ...]) -> bool:
    return isinstance(row[0], int) and all(isinstance(value, str) for value in row[1:])
