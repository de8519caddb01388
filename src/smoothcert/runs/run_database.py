"""The directory of a run as files: the tables of `results.sqlite`, the lock of its writer, and how it comes to be."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from smoothcert.errors import CorruptRunError, RunBusyError, RunError, SmoothcertError
from smoothcert.files import write_whole_directory
from smoothcert.runs.archive_files import ARCHIVE, open_archive
from smoothcert.runs.results_schema import TABLES
from smoothcert.sqlite_errors import explain_disk_error

MANIFEST = "manifest.json"
RESULTS = "results.sqlite"
LOCK = "writer.lock"

_LOCK_TIMEOUT_SECONDS = 30.0


def check_can_create_run(path: Path) -> None:
    """Raise a RunError if the directory holds anything but leftovers of an interrupted `RunStore.create`.

    Results are only added after the manifest is written, so leftovers without a manifest contain none.
    """
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; --out must be a directory that is new or empty")
    if path.is_dir() and not all(_is_leftover(file) for file in path.iterdir()):
        raise RunError(f"{path} exists and is not empty; existing results are never overwritten: choose another --out")


@contextlib.contextmanager
def stage_run(path: Path) -> Iterator[Path]:
    """A temporary directory for a run, which gets the name `path` when the block ends: the run is whole or absent."""
    check_can_create_run(path)
    try:
        with contextlib.ExitStack() as held, write_whole_directory(path) as place:
            yield place
            if path.is_dir() and any(path.iterdir()):
                held.callback(acquire_lock(path).release)  # held until the new directory is in its place
                _remove_leftovers(path)
    except FileExistsError as error:
        raise RunError(f"{path} was created by another program in the meantime; choose another --out") from error
    except OSError as error:
        raise RunError(f"{error.filename or path} cannot be written: {error.strerror or error}") from error


def _remove_leftovers(path: Path) -> None:
    """Empty a directory whose lock is held."""
    check_can_create_run(path)
    for file in path.iterdir():
        file.unlink()


def _is_leftover(file: Path) -> bool:
    """Whether an interrupted `create` can leave this file."""
    if file.name == RESULTS:
        return _holds_no_point(file)
    return file.name in (LOCK, f"{RESULTS}-journal") or file.match(f".{MANIFEST}.*.part")


def _holds_no_point(file: Path) -> bool:
    """Whether this is a results file without results."""
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=_LOCK_TIMEOUT_SECONDS)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables <= TABLES:
                return "points" not in tables or not connection.execute("SELECT 1 FROM points LIMIT 1").fetchone()
    except sqlite3.Error:
        pass
    return False


def acquire_lock(path: Path) -> FileLock:
    lock = FileLock(path / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise RunBusyError(f"another process is writing to {path}: wait for it or stop it, then try again") from error
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
    return lock


def is_archive(path: Path) -> bool:
    return not (path / RESULTS).exists() and (path / ARCHIVE).is_file()


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    file = path / RESULTS
    if not create and is_archive(path):
        return open_archive(path / ARCHIVE, manifest=path / MANIFEST)
    if not create and not file.is_file():
        raise CorruptRunError(f"{path} is damaged: it has a manifest but no {RESULTS}")
    with translate_errors(path):
        return sqlite3.connect(file, timeout=_LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)


def check_tables(connection: sqlite3.Connection) -> None:
    """Refuse views and virtual tables with the names of our tables: reading them could take forever."""
    objects = connection.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
    for name, kind, sql in objects:
        if name in TABLES and (kind != "table" or "virtual" in str(sql).lower()):
            raise ValueError(f"{name} is a {kind} and not one of our tables")


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of invalid rows into a RunError or CorruptRunError about the run."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.OperationalError as error:
        if "no such table" in str(error) or "no such column" in str(error):
            raise CorruptRunError(f"{path / RESULTS} is damaged: {error}") from error
        problem = explain_disk_error(error)
        then = ". Finished inputs are kept: then resume the run or repeat the command" if problem else ""
        raise RunError(f"{path / RESULTS} cannot be used: {problem or error}{then}") from error
    except sqlite3.DatabaseError as error:
        raise CorruptRunError(f"{path / RESULTS} is damaged: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, SmoothcertError) and not isinstance(error, ValueError):
            raise
        raise CorruptRunError(f"{path / RESULTS} has an invalid row: {error}") from error
