"""A run on disk: `manifest.json`, written once, and `results.sqlite` with a row per input, its verdicts and tallies.

A shard of results is one SQLite transaction, so a process that dies loses at most the shard in flight. Rows are only
ever added, and each input is sealed with those before it (`seals`). One writer at a time holds the file lock; the
operating system drops the lock with the process, however it ends.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from smoothcert.errors import CorruptRunError, ManifestMismatchError, RunBusyError, RunError, SmoothcertError
from smoothcert.records import AnyTally, CertifiedPoint, CheckCounts, Promise, Stage, TallyKind, Verdict
from smoothcert.runs.files import write_atomically
from smoothcert.runs.manifest import dump_manifest, parse_manifest
from smoothcert.runs.seals import SEALS_TABLE, begin_seals, seal_inputs
from smoothcert.runs.stored_points import (
    PROMISE_COLUMNS,
    TALLY_COLUMNS,
    VERDICT_COLUMNS,
    check_row,
    point_from_row,
    promise_from_row,
    promise_row,
    verdict_from_row,
    verdict_rows,
)
from smoothcert.runs.stored_tallies import classes_voted_for, tally_from_row, tally_row
from smoothcert.spec import RunManifest, list_differences

MANIFEST = "manifest.json"
RESULTS = "results.sqlite"
LOCK = "writer.lock"

_SECONDS_TO_WAIT = 30.0
_MOST_MANIFEST = 2**24
_SCHEMA = (
    """
CREATE TABLE points (
    idx INTEGER PRIMARY KEY,
    label INTEGER,
    sigma REAL,
    seconds REAL NOT NULL
) STRICT;
CREATE TABLE verdicts (
    idx INTEGER NOT NULL REFERENCES points (idx),
    place INTEGER NOT NULL,
    certificate TEXT NOT NULL,
    prediction INTEGER,
    radius REAL NOT NULL,
    norm TEXT NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    bounds TEXT,
    PRIMARY KEY (idx, place)
) STRICT;
CREATE TABLE tallies (
    idx INTEGER NOT NULL REFERENCES points (idx),
    stage TEXT NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    sigma REAL NOT NULL,
    kind TEXT NOT NULL,
    num_classes INTEGER NOT NULL,
    counts TEXT NOT NULL,
    sums BLOB,
    PRIMARY KEY (idx, stage, start)
) STRICT;
CREATE TABLE promises (
    idx INTEGER PRIMARY KEY REFERENCES points (idx),
    label INTEGER NOT NULL,
    radius REAL NOT NULL,
    position INTEGER NOT NULL,
    settlement TEXT NOT NULL,
    asked_label INTEGER,
    asked_radius REAL NOT NULL,
    memory TEXT NOT NULL,
    entry TEXT NOT NULL
) STRICT;
CREATE TABLE model_checks (
    idx INTEGER PRIMARY KEY REFERENCES points (idx),
    drawn INTEGER NOT NULL,
    asked INTEGER NOT NULL,
    ties INTEGER NOT NULL
) STRICT;
CREATE TABLE failures (
    position INTEGER PRIMARY KEY,
    reason TEXT NOT NULL
) STRICT;
"""
    + SEALS_TABLE
)
_TABLES = {"points", "verdicts", "tallies", "promises", "model_checks", "failures", "seals"}


class RunStore:
    """One run directory. Make it with `create`, `resume` or `open`; use it as a context manager."""

    def __init__(
        self, path: Path, manifest: RunManifest, connection: sqlite3.Connection, lock: FileLock | None
    ) -> None:
        self.path = path
        self.manifest = manifest
        self._connection = connection
        self._lock = lock
        self._tables_checked = False

    @classmethod
    def create(cls, path: Path, manifest: RunManifest, *, files: Mapping[str, Path] | None = None) -> Self:
        """A new run; refused if the directory already holds one, or anything else. files: copied into it, by name."""
        cls.check_can_create(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path} cannot be made: {error.strerror or error}") from error
        lock = _acquire(path)
        try:
            cls.check_can_create(path)
            for leftover in path.iterdir():
                if leftover.name != LOCK:
                    leftover.unlink()
            with _explain(path), contextlib.closing(_connect(path, create=True)) as connection:
                # The results file comes first: a directory with a manifest is always a complete run.
                connection.executescript("BEGIN;" + _SCHEMA + "COMMIT;")
                begin_seals(connection, manifest.to_json())
            write_atomically(path / MANIFEST, dump_manifest(manifest), overwrite=False)
            _attach(path, files)
            return cls(path, manifest, _connect(path), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def check_can_create(cls, path: Path) -> None:
        """Refuse a place that holds anything but what an attempt to create a run, cut short, leaves behind.

        Results are only added once the manifest is there, so without one nothing can be lost.
        """
        if path.exists() and not path.is_dir():
            raise RunError(f"{path} is a file; --out must be a directory that is new or empty")
        if path.is_dir() and not all(_is_leftover(file) for file in path.iterdir()):
            raise RunError(
                f"{path} exists and is not empty; an existing result is never overwritten: choose another --out"
            )

    @classmethod
    def resume(cls, path: Path, wanted: RunManifest, *, files: Mapping[str, Path] | None = None) -> Self:
        """Resume an existing run if it was made with the same spec; otherwise the error lists the differences."""
        stored = read_manifest(path)
        differing = list_differences(stored, wanted)
        if differing:
            raise ManifestMismatchError(
                f"{path} was made with other settings; give another --out, or the same settings to resume it:\n  "
                + "\n  ".join(differing)
            )
        lock = _acquire(path)
        try:
            _attach(path, files)
            run = cls(path, stored, _connect(path), lock)
            with run._reading():
                pass  # one that a check of its model has stopped is refused here
            return run
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read a run, also while another process writes it. One that a check of its model has stopped gives nothing."""
        return cls(path, read_manifest(path), _connect(path), None)

    @classmethod
    def exists(cls, path: Path) -> bool:
        return (path / MANIFEST).is_file()

    def add(self, points: Sequence[CertifiedPoint], *, checks: CheckCounts | None = None) -> None:
        """Store a shard, all of it or nothing. An input that is already there is an error: nothing is overwritten.

        checks: how many noisy copies were drawn and asked again since the shard before, kept with the last input.
        """
        if self._lock is None:
            raise RunError(f"{self.path} was opened for reading")
        try:
            with _explain(self.path), self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(
                    "INSERT INTO points VALUES (?,?,?,?)",
                    # A point that a memory answered has no sigma: nan is stored as no value.
                    [(point.index, point.label, point.sigma, point.seconds) for point in points],
                )
                self._connection.executemany(
                    "INSERT INTO verdicts VALUES (?,?,?,?,?,?,?,?,?)",
                    [row for point in points for row in verdict_rows(point)],
                )
                self._connection.executemany(
                    "INSERT INTO tallies VALUES (?,?,?,?,?,?,?,?,?)",
                    [tally_row(tally) for point in points for tally in point.tallies],
                )
                promises = [promise_row(point.index, point.promise) for point in points if point.promise is not None]
                self._connection.executemany("INSERT INTO promises VALUES (?,?,?,?,?,?,?,?,?)", promises)
                if checks is not None and points:
                    self._connection.execute(
                        "INSERT INTO model_checks VALUES (?,?,?,?)",
                        (points[-1].index, checks.drawn, checks.asked, checks.ties),
                    )
                seal_inputs(self._connection, [point.index for point in points])
        except sqlite3.IntegrityError as error:
            raise RunError(
                f"{self.path} already holds a result for one of these inputs; nothing was changed"
            ) from error

    def add_failure(self, reason: str) -> None:
        """Store that the model was found not to be what was sampled: nothing in this run is to be relied on."""
        with _explain(self.path), self._connection:
            self._connection.execute("INSERT INTO failures (reason) VALUES (?)", (reason,))

    def _check_not_failed(self) -> None:
        found = self._connection.execute("SELECT reason FROM failures ORDER BY position LIMIT 1").fetchone()
        if found is not None:
            reason = str(found[0])[:2000]
            raise RunError(
                f"{self.path} was stopped by a check of its model, and its results must not be used: {reason}"
            )

    def check_counts(self) -> CheckCounts:
        """How many noisy copies were drawn for what is stored, and how many of them the model was asked about again."""
        with self._reading():
            row = self._connection.execute("SELECT SUM(drawn), SUM(asked), SUM(ties) FROM model_checks").fetchone()
            return CheckCounts(*(int(count or 0) for count in row))

    def indices(self) -> set[int]:
        """The inputs that have a result."""
        with self._reading():
            return {row[0] for row in self._connection.execute("SELECT idx FROM points")}

    def kinds(self) -> set[TallyKind]:
        """What was sampled to prove something."""
        with self._reading():
            rows = self._connection.execute(
                "SELECT DISTINCT kind FROM tallies WHERE stage = ?", (Stage.ESTIMATION.name,)
            )
            return {TallyKind(row[0]) for row in rows}

    def samples(self) -> dict[int, int]:
        """How many times the model was asked about each input, for whatever stage."""
        with self._reading():
            rows = self._connection.execute(
                "SELECT idx, SUM((stop - start) * CASE kind WHEN ? THEN 2 ELSE 1 END) FROM tallies GROUP BY idx",
                (TallyKind.PAIRS.value,),
            )
            return {index: int(count) for index, count in rows}

    def unanimous(self) -> dict[int, int]:
        """By index the class that won every single vote drawn to prove something; other inputs are left out."""
        found: dict[int, set[int]] = {}
        with self._reading():
            rows = self._connection.execute("SELECT idx, counts FROM tallies WHERE stage = ?", (Stage.ESTIMATION.name,))
            for index, counts in rows:
                found.setdefault(index, set()).update(classes_voted_for(counts))
        return {index: min(classes) for index, classes in found.items() if len(classes) == 1 and min(classes) >= 0}

    def points(self, *, with_tallies: bool = True) -> list[CertifiedPoint]:
        """All results, by index. Without tallies it is quicker, and enough for tables."""
        with self._reading():
            # One transaction, so that a shard committed in between is seen in both tables or in neither.
            self._connection.execute("BEGIN")
            try:
                rows = self._connection.execute("SELECT * FROM points ORDER BY idx").fetchall()
                verdicts = self._verdicts()
                promises = self._promises()
                tallies = self._tallies() if with_tallies else {}
            finally:
                self._connection.execute("ROLLBACK")
            return [
                point_from_row(
                    row, verdicts[row[0]], tallies.get(row[0], []), promises.get(row[0]), grid=self.manifest.grid
                )
                for row in rows
            ]

    def points_of(self, indices: Sequence[int]) -> list[CertifiedPoint]:
        """These results with their tallies, in the order asked for; quick, however many others there are."""
        with self._reading():
            self._connection.execute("BEGIN")
            try:
                promises = self._promises()
                return [self._point(index, promises.get(index)) for index in indices]
            finally:
                self._connection.execute("ROLLBACK")

    def _point(self, index: int, promise: Promise | None) -> CertifiedPoint:
        row = self._connection.execute("SELECT * FROM points WHERE idx = ?", (index,)).fetchone()
        if row is None:
            raise RunError(f"{self.path} holds no result for input {index}")
        verdicts, tallies = self._verdicts(index)[index], self._tallies(index).get(index, [])
        return point_from_row(row, verdicts, tallies, promise, grid=self.manifest.grid)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with _explain(self.path):
            if not self._tables_checked:
                _check_tables(self._connection)
                self._check_not_failed()
                self._tables_checked = True
            yield

    def _verdicts(self, only: int | None = None) -> dict[int, list[Verdict]]:
        found: dict[int, list[Verdict]] = {}
        for row in self._rows_of("verdicts", only, order="idx, place"):
            index, _, *columns = check_row(row, VERDICT_COLUMNS)
            found.setdefault(index, []).append(verdict_from_row(columns))
        return found

    def _rows_of(self, table: str, only: int | None, *, order: str) -> sqlite3.Cursor:
        """The rows of a table, of all inputs or of one."""
        if only is None:
            return self._connection.execute(f"SELECT * FROM {table} ORDER BY {order}")
        return self._connection.execute(f"SELECT * FROM {table} WHERE idx = ? ORDER BY {order}", (only,))

    def _promises(self) -> dict[int, Promise]:
        rows = self._connection.execute("SELECT * FROM promises")
        return {row[0]: promise_from_row(check_row(row, PROMISE_COLUMNS)) for row in rows}

    def _tallies(self, only: int | None = None) -> dict[int, list[AnyTally]]:
        found: dict[int, list[AnyTally]] = {}
        for row in self._rows_of("tallies", only, order="idx, stage DESC, start"):
            found.setdefault(row[0], []).append(tally_from_row(check_row(row, TALLY_COLUMNS), seed=self.manifest.seed))
        return found

    def close(self) -> None:
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _attach(path: Path, files: Mapping[str, Path] | None) -> None:
    """Copy files into the directory of a run, those that are not there yet."""
    for name, source in (files or {}).items():
        if not (path / name).exists():
            try:
                content = source.read_bytes()
            except OSError as error:
                raise RunError(f"{source} cannot be read: {error.strerror or error}") from error
            write_atomically(path / name, content, overwrite=False)


def _is_leftover(file: Path) -> bool:
    """Whether this file can lie in a directory in which a run was about to be created."""
    if file.name == RESULTS:
        return _holds_no_point(file)
    return file.name in (LOCK, f"{RESULTS}-journal") or file.match(f".{MANIFEST}.*.part")


def _holds_no_point(file: Path) -> bool:
    """Whether this is a results file in which nothing has been stored yet."""
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=_SECONDS_TO_WAIT)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables <= _TABLES:
                return "points" not in tables or not connection.execute("SELECT 1 FROM points LIMIT 1").fetchone()
    except sqlite3.Error:
        pass
    return False


def read_manifest(path: Path) -> RunManifest:
    """The manifest of a run directory."""
    file = path / MANIFEST
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_MANIFEST + 1)
    except FileNotFoundError as error:
        raise RunError(f"{path} is not a run: it has no {MANIFEST}") from error
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_MANIFEST:
        raise CorruptRunError(f"{file} is not a manifest of a run: it has more than {_MOST_MANIFEST:,} bytes")
    return parse_manifest(content, path=file)


def _acquire(path: Path) -> FileLock:
    lock = FileLock(path / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise RunBusyError(f"another process is working on {path}; wait for it or stop it, then try again") from error
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
    return lock


def _connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    file = path / RESULTS
    if not create and not file.is_file():
        raise CorruptRunError(f"{path} is damaged: it has a manifest but no {RESULTS}")
    with _explain(path):
        return sqlite3.connect(file, timeout=_SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False)


def _check_tables(connection: sqlite3.Connection) -> None:
    """A view under the name of one of our tables could be a computation without end."""
    things = connection.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
    for name, kind, sql in things:
        if name in _TABLES and (kind != "table" or "virtual" in str(sql).lower()):
            raise ValueError(f"{name} is a {kind} of another kind than ours")


@contextlib.contextmanager
def _explain(path: Path) -> Iterator[None]:
    """Whatever SQLite or a malformed row raises, as a sentence about the run."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.OperationalError as error:
        if "no such table" in str(error) or "no such column" in str(error):
            raise CorruptRunError(f"{path / RESULTS} is damaged: {error}") from error
        raise RunError(f"{path / RESULTS} cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        raise CorruptRunError(f"{path / RESULTS} is damaged: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, SmoothcertError) and not isinstance(error, ValueError):
            raise
        raise CorruptRunError(f"{path / RESULTS} holds a row that makes no sense: {error}") from error
