"""A run on disk: `manifest.json`, written once, and `results.sqlite` with the points, verdicts and tallies of inputs.
An archive has the rows of the latter in a compressed file instead, and is read like the run it was made from.

A shard of results is one SQLite transaction, so a killed process loses at most the current shard. Rows are only added,
never changed, and each input is sealed together with those before it (`seals`). One writer at a time holds the file
lock; the operating system releases it when the process ends.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock

from smoothcert.errors import CorruptRunError, ManifestMismatchError, RunError
from smoothcert.files import Content, remove_dead_parts, write_atomically
from smoothcert.records import AnyTally, CertifiedPoint, CheckCounts, Promise, Stage, TallyKind, Verdict
from smoothcert.runs.archive_files import dump_rows
from smoothcert.runs.manifest import dump_manifest, parse_manifest
from smoothcert.runs.results_schema import SCHEMA
from smoothcert.runs.run_database import (
    LOCK,
    MANIFEST,
    acquire_lock,
    check_can_create_run,
    check_tables,
    connect,
    is_archive,
    stage_run,
    translate_errors,
)
from smoothcert.runs.run_files import HAS_PARTS, is_selected
from smoothcert.runs.scales import scale_of_run
from smoothcert.runs.seals import begin_seals, seal_inputs
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
from smoothcert.spec import RunManifest
from smoothcert.spec_differences import list_differences

_MOST_MANIFEST_BYTES = 2**24
_BATCH = 1000
"""Inputs that are held at once where not all are."""

Span = tuple[int, int]
"""The first and the last index of some inputs."""


class RunStore:
    """One run directory. Use `create`, `resume` or `open` as a context manager."""

    def __init__(
        self, path: Path, manifest: RunManifest, connection: sqlite3.Connection, lock: FileLock | None
    ) -> None:
        self.path = path
        self.manifest = manifest
        self._scale = scale_of_run(manifest)
        self._connection = connection
        self._lock = lock
        self._tables_checked = False

    @classmethod
    def create(cls, path: Path, manifest: RunManifest, *, files: Mapping[str, Content] | None = None) -> Self:
        """Create a run in a new or empty directory. files: what else it keeps, by name."""
        check_can_create_run(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path} cannot be created: {error.strerror or error}") from error
        lock = acquire_lock(path)
        try:
            check_can_create_run(path)
            for leftover in path.iterdir():
                if leftover.name != LOCK:
                    leftover.unlink()
            with translate_errors(path), contextlib.closing(connect(path, create=True)) as connection:
                # The results file is created first, so a directory with a manifest is always a complete run.
                connection.executescript("BEGIN;" + SCHEMA + "COMMIT;")
                begin_seals(connection, manifest.to_json())
            write_atomically(path / MANIFEST, dump_manifest(manifest), overwrite=False)
            _write_files(path, files or {})
            return cls(path, manifest, connect(path), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    @contextlib.contextmanager
    def create_whole(cls, path: Path, manifest: RunManifest) -> Iterator[Self]:
        """Create a run that is at `path` only when the block has ended. If it raises, nothing is left."""
        with stage_run(path) as place, cls.create(place, manifest) as store:
            yield store

    @classmethod
    def resume(cls, path: Path, wanted: RunManifest, *, files: Mapping[str, Content] | None = None) -> Self:
        """Resume an existing run with the same spec. Otherwise a ManifestMismatchError lists the differences."""
        stored = read_manifest(path)
        if is_archive(path):
            raise RunError(f"{path} is an archive, to which nothing can be added: resume the run it was made from")
        differing = list_differences(stored, wanted)
        if differing:
            raise ManifestMismatchError(
                f"{path} was made with other settings; choose another --out, or use the same settings to resume it:\n  "
                + "\n  ".join(differing)
            )
        lock = acquire_lock(path)
        try:
            remove_dead_parts(path)
            _write_files(path, files or {})
            run = cls(path, stored, connect(path), lock)
            with run._reading():
                pass  # refuses a run that failed a check of its model
            return run
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a run for reading, also while another process writes it."""
        return cls(path, read_manifest(path), connect(path), None)

    @classmethod
    def exists(cls, path: Path) -> bool:
        return (path / MANIFEST).is_file()

    def add(self, points: Sequence[CertifiedPoint], *, checks: CheckCounts | None = None) -> None:
        """Store a shard in one transaction. Raises a RunError if one of the inputs is already stored.

        checks: counts of noisy copies drawn and checked since the previous shard, stored with the last input.
        """
        if self._lock is None:
            raise RunError(f"{self.path} was opened for reading")
        try:
            with translate_errors(self.path), self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(
                    "INSERT INTO points VALUES (?,?,?,?)",
                    # A point that a memory answered has no sigma: SQLite stores nan as NULL.
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
        """Store that a check of the model failed. The results of this run are refused from now on."""
        with translate_errors(self.path), self._connection:
            self._connection.execute("INSERT INTO failures (reason) VALUES (?)", (reason,))

    def _check_not_failed(self) -> None:
        failure = self._connection.execute("SELECT reason FROM failures ORDER BY position LIMIT 1").fetchone()
        if failure is not None:
            reason = str(failure[0])[:2000]
            raise RunError(f"{self.path} failed a check of its model, and its results must not be used: {reason}")

    def check_counts(self) -> CheckCounts:
        """Numbers of noisy copies that were drawn for the stored results, and of those that were checked again."""
        with self._reading():
            row = self._connection.execute("SELECT SUM(drawn), SUM(asked), SUM(ties) FROM model_checks").fetchone()
            return CheckCounts(*(int(count or 0) for count in row))

    def dump_rows(self, manifest: RunManifest) -> bytes:
        """The rows as an archive with this manifest has them, before they are compressed."""
        with self._reading(), self._snapshot():
            return dump_rows(self._connection, manifest.to_json())

    def indices(self) -> set[int]:
        """The inputs that have a result."""
        with self._reading():
            return {row[0] for row in self._connection.execute("SELECT idx FROM points")}

    def kinds(self) -> set[TallyKind]:
        """The kinds of tallies of the estimation stage."""
        with self._reading():
            rows = self._connection.execute(
                "SELECT DISTINCT kind FROM tallies WHERE stage = ?", (Stage.ESTIMATION.name,)
            )
            return {TallyKind(row[0]) for row in rows}

    def samples(self) -> dict[int, int]:
        """Samples by index, over all stages."""
        with self._reading():
            rows = self._connection.execute(
                "SELECT idx, SUM((stop - start) * CASE kind WHEN ? THEN 2 ELSE 1 END) FROM tallies GROUP BY idx",
                (TallyKind.PAIRS.value,),
            )
            return {index: int(count) for index, count in rows}

    def unanimous(self) -> dict[int, int]:
        """By index, the class that got all votes of the estimation stage. Other inputs are omitted."""
        classes: dict[int, set[int]] = {}
        with self._reading():
            rows = self._connection.execute("SELECT idx, counts FROM tallies WHERE stage = ?", (Stage.ESTIMATION.name,))
            for index, counts in rows:
                found = classes.setdefault(index, set())
                if len(found) < 2:  # two classes are enough to know
                    found.update(classes_voted_for(counts))
        return {index: min(each) for index, each in classes.items() if len(each) == 1 and min(each) >= 0}

    def points(self, *, with_tallies: bool = True) -> list[CertifiedPoint]:
        """All results, ordered by index. Without tallies this is faster, and enough for tables."""
        with self._reading():
            return self._read_points(None, with_tallies=with_tallies)

    def batches(self) -> Iterator[list[CertifiedPoint]]:
        """The results with their tallies, ordered by index, so few at a time that memory stays flat.

        Each batch is read in a transaction of its own, so that a process that writes to the run does not wait long:
        rows never change, and those of an input are committed together.
        """
        indices = sorted(self.indices())
        for start in range(0, len(indices), _BATCH):
            chosen = indices[start : start + _BATCH]
            with self._reading():
                batch = self._read_points((chosen[0], chosen[-1]))
            yield batch

    def points_of(self, indices: Sequence[int]) -> list[CertifiedPoint]:
        """The results of these inputs, in this order, with tallies. The time does not depend on the size of the run."""
        found = []
        for index in indices:
            with self._reading():
                point = self._read_points((index, index))
            if not point:
                raise RunError(f"{self.path} has no result for input {index}")
            found += point
        return found

    def furthest_draw(self) -> int:
        """The number of draws of the input that was sampled most, in any stage."""
        with self._reading():
            return int(self._connection.execute("SELECT COALESCE(MAX(stop), 0) FROM tallies").fetchone()[0])

    def _read_points(self, span: Span | None, *, with_tallies: bool = True) -> list[CertifiedPoint]:
        with self._snapshot():
            rows = self._rows_of("points", span, order="idx").fetchall()
            verdicts = self._read_verdicts(span)
            promises = self._read_promises(span)
            tallies = self._read_tallies(span) if with_tallies else {}
        return [self._make_point(row, verdicts[row[0]], tallies.get(row[0], []), promises.get(row[0])) for row in rows]

    def _make_point(
        self, row: Sequence[object], verdicts: Sequence[Verdict], tallies: Sequence[AnyTally], promise: Promise | None
    ) -> CertifiedPoint:
        grid, dtype = self.manifest.grid, self.manifest.spec.model.precision
        return point_from_row(row, verdicts, tallies, promise, grid=grid, scale=self._scale, dtype=dtype)

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """One transaction, so that a shard committed meanwhile is seen in all tables or in none."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:  # an error of the disk has ended it
                self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with translate_errors(self.path):
            if not self._tables_checked:
                check_tables(self._connection)
                self._check_not_failed()
                self._tables_checked = True
            yield

    def _read_verdicts(self, span: Span | None) -> dict[int, list[Verdict]]:
        verdicts: dict[int, list[Verdict]] = {}
        for row in self._rows_of("verdicts", span, order="idx, place"):
            index, _, *columns = check_row(row, VERDICT_COLUMNS)
            verdicts.setdefault(index, []).append(verdict_from_row(columns))
        return verdicts

    def _rows_of(self, table: str, span: Span | None, *, order: str) -> sqlite3.Cursor:
        """The rows of a table, for all inputs or for those of a span."""
        if span is None:
            return self._connection.execute(f"SELECT * FROM {table} ORDER BY {order}")
        return self._connection.execute(f"SELECT * FROM {table} WHERE idx BETWEEN ? AND ? ORDER BY {order}", span)

    def _read_promises(self, span: Span | None) -> dict[int, Promise]:
        rows = self._rows_of("promises", span, order="idx")
        return {row[0]: promise_from_row(check_row(row, PROMISE_COLUMNS)) for row in rows}

    def _read_tallies(self, span: Span | None) -> dict[int, list[AnyTally]]:
        tallies: dict[int, list[AnyTally]] = {}
        for row in self._rows_of("tallies", span, order="idx, stage DESC, start"):
            tally = tally_from_row(check_row(row, TALLY_COLUMNS), seed=self.manifest.seed)
            tallies.setdefault(row[0], []).append(tally)
        return tallies

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


def _write_files(path: Path, files: Mapping[str, Content]) -> None:
    """Write files into the directory of a run, unless they exist there. The caller holds its lock."""
    for name, content in files.items():
        for leftover in path.glob(f".{name}.*.part"):  # of a process that was killed while it wrote
            leftover.unlink(missing_ok=True)
        if not (path / name).exists():
            write_atomically(path / name, content, overwrite=False)


def read_manifest(path: Path) -> RunManifest:
    """Read the manifest of a run directory."""
    file = path / MANIFEST
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_MANIFEST_BYTES + 1)
    except FileNotFoundError as error:
        if is_selected(path):
            raise RunError(f"{path} {HAS_PARTS}, such as {path / 'selector'}") from error
        raise RunError(f"{path} is not a run: it has no {MANIFEST}") from error
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_MANIFEST_BYTES:
        raise CorruptRunError(f"{file} is not a manifest: it has more than {_MOST_MANIFEST_BYTES:,} bytes")
    return parse_manifest(content, path=file)
