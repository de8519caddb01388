"""Reading certificates and run directories. The rows of a run are turned into the documents that `export` writes.

Nothing here trusts what it reads: files must be regular and of limited length, and a database is opened for reading
only. Content that cannot be read raises an MalformedError; a file that cannot be read raises a PlaceError.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import sqlite3
import stat
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from smoothcert_verify.archive_reading import read_archive
from smoothcert_verify.document_checks import FORMAT, PROMISE, VERSION
from smoothcert_verify.findings import Finding, MalformedError, PlaceError, note, refuse
from smoothcert_verify.json_values import Document, canonical_digest, parse_json
from smoothcert_verify.run_facts import RunFacts

MANIFEST, RESULTS, ARCHIVE = "manifest.json", "results.sqlite", "results.json.gz"
INDEX = "certificates.index"
"""Beside certificates: how many there are, and their digests."""

_MOST_BYTES = 1 << 29
"""The longest file that is read into memory."""
_SECONDS_TO_WAIT = 30.0
_UNAVAILABLE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR")
_COLUMNS = {
    "points": ("idx", "label", "sigma", "seconds"),
    "verdicts": ("idx", "place", "certificate", "prediction", "radius", "norm", "outcome", "reason", "bounds"),
    "tallies": ("idx", "stage", "start", "stop", "sigma", "kind", "num_classes", "counts", "sums"),
    "promises": ("idx", *PROMISE.fields),
    "model_checks": ("idx", "drawn", "asked", "ties"),
    "failures": ("position", "reason"),
    "seals": ("position", "idx", "seal"),
}
_ORDER = {"points": "idx", "verdicts": "place", "tallies": "stage, start", "promises": "idx", "model_checks": "idx"}
"""The tables with rows of an input, and the order in which these rows are sealed."""
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_OUTCOMES = {name.upper(): name for name in ("certified", "predicted", "abstained", "failed")}


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of limited length."""
    try:
        with path.open("rb") as stream:
            if not stat.S_ISREG(path.stat().st_mode):
                raise PlaceError(f"{path} is not a regular file; expected a certificate or a run directory")
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise PlaceError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise PlaceError(f"{path} is longer than {_MOST_BYTES >> 20} MB, which is too long for a certificate")
    return content


def is_run(path: Path) -> bool:
    """Whether this directory is meant to be a run: it contains one of its files."""
    return path.is_dir() and any((path / name).exists() for name in (MANIFEST, RESULTS, ARCHIVE))


def list_certificate_files(path: Path) -> list[Path]:
    """The file itself, or the .json files of a directory, in the order of their names."""
    if not path.exists():
        raise PlaceError(
            f"{path} does not exist; expected a run directory, a certificate, or a directory of certificates"
        )
    if not path.is_dir():
        if not path.is_file():
            raise PlaceError(f"{path} is not a regular file; expected a certificate or a run directory")
        return [path]
    try:
        found = sorted(file for file in path.iterdir() if file.suffix == ".json" and file.is_file())
    except OSError as error:
        raise PlaceError(f"{path} cannot be read: {error.strerror or error}") from error
    if not found and not (path / INDEX).exists():
        raise PlaceError(f"{path} contains neither a run ({MANIFEST}) nor certificates (*.json)")
    return found


@dataclass(frozen=True, slots=True)
class StoredInput:
    """The rows of one input, by table, as the database has them."""

    index: Any
    rows: Mapping[str, list[tuple[Any, ...]]]

    def next_seal(self, previous: str) -> str:
        """The seal of this input if it was stored after the one with the seal `previous`. Bytes count by digest."""
        content = [
            [
                [f"sha256:{hashlib.sha256(v).hexdigest()}" if isinstance(v, bytes) else v for v in row]
                for row in self.rows[table]
            ]
            for table in _ORDER
        ]
        text = _ENCODER.encode(content)
        return hashlib.sha256(f"{previous}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()

    def to_document(self, run: RunFacts) -> Document:
        """The certificate document of these rows, without digests."""
        points, promises = self.rows["points"], self.rows["promises"]
        if len(points) != 1:
            raise refuse("rows-of-input", table="points", rows=len(points))
        index, label, sigma, _ = points[0]
        tallies = sorted(self.rows["tallies"], key=lambda row: (row[1] != "SELECTION", str(row[1]), row[2]))
        names = _COLUMNS["promises"][1:]
        return {
            "format": FORMAT,
            "version": VERSION,
            "input": {"index": index, "label": label},
            "smoothing": {**run.smoothing, "sigma": sigma},
            "verdicts": [_make_verdict(row) for row in self.rows["verdicts"]],
            "tallies": [_make_tally(row) for row in tallies],
            "promise": dict(zip(names, promises[0][1:], strict=True)) if promises else None,
            "run": run.manifest,
        }


def _make_verdict(row: tuple[Any, ...]) -> Document:
    verdict = dict(zip(_COLUMNS["verdicts"][2:], row[2:], strict=True))
    reason, bounds = verdict["reason"], verdict["bounds"]
    verdict["outcome"] = _OUTCOMES.get(verdict["outcome"], repr(verdict["outcome"]))
    verdict["reason"] = None if reason == "" else _parse_column("reason", reason)
    verdict["bounds"] = None if bounds is None else _parse_column("bounds", bounds)
    return verdict


def _make_tally(row: tuple[Any, ...]) -> Document:
    tally = dict(zip(_COLUMNS["tallies"][1:], row[1:], strict=True))
    tally["counts"] = _parse_column("counts", tally["counts"])
    if isinstance(tally["sums"], bytes):
        tally["sums"] = base64.b64encode(tally["sums"]).decode()
    return tally


def _parse_column(name: str, text: Any) -> Any:
    if not isinstance(text, str):
        raise refuse("invalid-value", field=name, value=text, expected="a text")
    try:
        return parse_json(text)
    except MalformedError as error:
        raise MalformedError(error.finding.at(name)) from error


class RunReader:
    """A run directory, read with SQLite and JSON alone. A context manager; `open_results` must be called first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path / RESULTS
        self._connection: sqlite3.Connection | None = None
        self._plain_indices: bool | None = None

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def read_manifest(self) -> Any:
        file = self.path / MANIFEST
        if not file.is_file():
            raise refuse("missing-file", name=MANIFEST)
        return parse_json(read_bytes(file))

    def open_results(self) -> None:
        """Open the database in one transaction, and check that it has the tables and columns of a run."""
        if not self._file.exists() and (self.path / ARCHIVE).is_file():
            self._open_archive(self.path / ARCHIVE)
            return
        if not self._file.is_file():
            raise refuse("missing-file", name=RESULTS)
        with _translate_errors(self._file):
            self._connection = connect_read_only(self._file)
            self._connection.execute("BEGIN")
        tables = {name for (name,) in self._select("SELECT name FROM sqlite_master WHERE type = 'table'")}
        missing = [name for name in _COLUMNS if name not in tables]
        if missing:
            raise refuse("missing-tables", tables=", ".join(missing))
        for table, columns in _COLUMNS.items():
            if tuple(row[1] for row in self._select(f"PRAGMA table_info({table})")) != columns:
                raise refuse("other-columns", table=table)

    def _open_archive(self, file: Path) -> None:
        """Take the rows of an archive into a database in memory, with the seals that follow from them.

        Only the last seal is in the file: whatever was changed breaks that one.
        """
        archive = read_archive(file, _COLUMNS)
        self._connection = archive.connection
        seals: list[tuple[Any, ...]] = [(0, None, canonical_digest(self.read_manifest()))]
        for position, index in enumerate(archive.order, start=1):
            seals.append((position, index, self.read_input(index).next_seal(seals[-1][2])))
        seals[-1] = (*seals[-1][:2], archive.seal)
        with _translate_errors(file):
            self._connection.executemany("INSERT INTO seals VALUES (?, ?, ?)", seals)

    def indices(self) -> list[Any]:
        """Of all inputs, in order."""
        return [row[0] for row in self._select("SELECT idx FROM points ORDER BY idx")]

    def stray_rows(self) -> Iterator[Finding]:
        """Rows that belong to no input."""
        for table in sorted(_ORDER.keys() - {"points"}):
            query = f"SELECT DISTINCT idx FROM {table} WHERE idx NOT IN (SELECT idx FROM points) ORDER BY idx LIMIT 10"
            yield from (note("stray-rows", table=table, index=row[0]) for row in self._select(query))

    def seals(self) -> list[tuple[Any, ...]]:
        """(position, index, seal), by position."""
        return self._select("SELECT * FROM seals ORDER BY position")

    def model_checks(self) -> list[tuple[Any, ...]]:
        """(drawn, asked, ties) for every shard."""
        return self._select("SELECT drawn, asked, ties FROM model_checks ORDER BY idx")

    def failures(self) -> Iterator[Finding]:
        """The reasons for which the run was stopped, and its results must not be used."""
        for (reason,) in self._select("SELECT reason FROM failures ORDER BY position"):
            yield note("stopped-run", reason=str(reason))

    def count_samples(self) -> int:
        """How often the model was asked for what is stored."""
        counted = "sum((stop - start) * CASE kind WHEN 'pairs' THEN 2 ELSE 1 END)"
        ((samples,),) = self._select(f"SELECT {counted} FROM tallies")
        return samples if type(samples) is int else 0

    def read_input(self, index: Any) -> StoredInput:
        """All rows of one input."""
        queries = {table: f"SELECT * FROM {table} WHERE idx = ? ORDER BY {order}" for table, order in _ORDER.items()}
        return StoredInput(index, {table: self._select(query, (index,)) for table, query in queries.items()})

    def stream_inputs(self, indices: Sequence[Any]) -> Generator[StoredInput, None, None]:
        """All rows of these inputs, in this order, in one pass over every table.

        It ends at once where that could miss rows of `read_input`: the indices must ascend, and all tables must hold
        nothing but whole numbers as indices, which compare alike wherever they are stored.
        """
        if not indices or not self._has_plain_indices() or not _ascend(indices):
            return
        rows = {table: _Rows(self._iterate(table, indices[0], indices[-1])) for table in _ORDER}
        try:
            for index in indices:
                yield StoredInput(index, {table: each.take(index) for table, each in rows.items()})
        finally:
            for each in rows.values():
                each.close()

    def _has_plain_indices(self) -> bool:
        if self._plain_indices is None:
            queries = (f"SELECT 1 FROM {table} WHERE typeof(idx) != 'integer' LIMIT 1" for table in _ORDER)
            self._plain_indices = not any(self._select(query) for query in queries)
        return self._plain_indices

    def _iterate(self, table: str, first: int, last: int) -> Generator[tuple[Any, ...], None, None]:
        assert self._connection is not None
        order = "idx" if _ORDER[table] == "idx" else f"idx, {_ORDER[table]}"
        with _translate_errors(self._file):
            query = f"SELECT * FROM {table} WHERE idx BETWEEN ? AND ? ORDER BY {order}"
            yield from self._connection.execute(query, (first, last))

    def _select(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        with _translate_errors(self._file):
            return self._connection.execute(query, parameters).fetchall()


class _Rows:
    """The rows of a table in the order of their indices, taken input by input."""

    def __init__(self, rows: Generator[tuple[Any, ...], None, None]) -> None:
        self.close = rows.close
        self._rows = rows
        self._next = next(rows, None)

    def take(self, index: int) -> list[tuple[Any, ...]]:
        """The rows of this input. Those of smaller indices, which belong to no input, are passed over."""
        found = []
        while self._next is not None and self._next[0] <= index:
            if self._next[0] == index:
                found.append(self._next)
            self._next = next(self._rows, None)
        return found


def _ascend(indices: Sequence[Any]) -> bool:
    return all(type(index) is int for index in indices) and all(a < b for a, b in itertools.pairwise(indices))


def connect_read_only(file: Path) -> sqlite3.Connection:
    """A connection that changes nothing; functions and views of a foreign schema are not trusted."""
    address = f"file:{quote(str(file.resolve()))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=_SECONDS_TO_WAIT, isolation_level=None)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _translate_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        if (getattr(error, "sqlite_errorname", "") or "").startswith(_UNAVAILABLE):
            raise PlaceError(
                f"{file} cannot be read ({error}); if a process was killed while it wrote there, resume the run first"
            ) from error
        raise refuse("damaged-file", name=file.name, error=str(error)) from error
