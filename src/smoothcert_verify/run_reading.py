"""Reading what is to be verified: certificate documents, and run directories turned into the same documents.

Nothing here trusts what it reads. JSON has no NaN, no name twice, and an end; files are regular and not endless; a
database is opened for reading only. What cannot be read is a MalformedError with a sentence about the content, which a
caller reports as a discrepancy.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from smoothcert.errors import RunError

FORMAT, VERSION = "smoothcert certificate", 2
MANIFEST, RESULTS = "manifest.json", "results.sqlite"

_MOST_BYTES = 1 << 29
"""No certificate or manifest is so long; it would be read into memory whole."""
_SECONDS_TO_WAIT = 30.0
_OUTCOMES = {"CERTIFIED", "PREDICTED", "ABSTAINED", "FAILED"}
_COLUMNS = {
    "points": ("idx", "label", "sigma", "seconds"),
    "verdicts": ("idx", "place", "certificate", "prediction", "radius", "norm", "outcome", "reason", "bounds"),
    "tallies": ("idx", "stage", "start", "stop", "sigma", "kind", "num_classes", "counts", "sums"),
    "promises": (
        "idx",
        "label",
        "radius",
        "position",
        "settlement",
        "asked_label",
        "asked_radius",
        "memory",
        "entry",
    ),
    "model_checks": ("idx", "drawn", "asked", "ties"),
    "failures": ("position", "reason"),
    "seals": ("position", "idx", "seal"),
}
_REQUIRED_TABLES = ("points", "verdicts", "tallies")
_ORDER = {"points": "idx", "verdicts": "place", "tallies": "stage, start", "promises": "idx", "model_checks": "idx"}
"""In which order the rows of an input are sealed. Runs of earlier versions have no model_checks."""

_FIELDS = {
    "input": {"index", "label"},
    "smoothing": {"noise", "sigma", "dimension", "num_classes", "grid", "envelope", "remembered"},
    "verdicts": {"certificate", "prediction", "radius", "norm", "outcome", "reason", "bounds"},
    "tallies": {"stage", "kind", "start", "stop", "sigma", "num_classes", "counts", "sums"},
    "promise": set(_COLUMNS["promises"][1:]),
}
_OTHER_FIELDS = {"format", "version", "statement", "run", "run_digest", "digest"}

Document = dict[str, Any]


class MalformedError(ValueError):
    """Content that cannot be what it claims to be; the message is a sentence for the auditor."""


def canonical_digest(document: Any) -> str:
    """SHA-256 of sorted JSON without spaces, in hexadecimal; MalformedError where the document is no JSON."""
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedError(f"it has no canonical form: {error}") from error


def parse_json(content: bytes | str) -> Any:
    """The value in strict JSON: no NaN, no infinity, also not as 1e999, and no name twice in an object."""
    try:
        value = json.loads(content, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_distinct)
    except MalformedError:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"it is not JSON: {str(error)[:200]}") from error
    return value


def _no_constant(name: str) -> NoReturn:
    raise MalformedError(f"it is not JSON: {name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise MalformedError(f"it holds the number {text[:40]}, which is too large to be meant")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedError("an object in it has the same name twice")
    return found


def read_bytes(path: Path) -> bytes:
    """The content of a regular file; what is too large, or no file, is a RunError."""
    try:
        with path.open("rb") as stream:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise RunError(f"{path} is not a regular file; expected a certificate, or a run directory")
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise RunError(f"{path} is longer than {_MOST_BYTES >> 20} MB, which no certificate is")
    return content


def is_run(path: Path) -> bool:
    """Whether this directory is meant to be a run: it holds one of its files."""
    return path.is_dir() and any((path / name).exists() for name in (MANIFEST, RESULTS))


def certificate_files(path: Path) -> list[Path]:
    """The file itself, or the .json files of a directory, in the order of their names."""
    if not path.exists():
        raise RunError(
            f"{path} does not exist; expected a run directory, a certificate, or a directory of certificates"
        )
    if not path.is_dir():
        if not path.is_file():
            raise RunError(f"{path} is not a regular file; expected a certificate, or a run directory")
        return [path]
    try:
        found = sorted(file for file in path.iterdir() if file.suffix == ".json" and file.is_file())
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    if not found:
        raise RunError(f"{path} holds neither a run ({MANIFEST}) nor certificates (*.json)")
    return found


def read_certificate(path: Path) -> Document:
    """The document in a file; MalformedError where it is no certificate."""
    document = parse_json(read_bytes(path))
    if not isinstance(document, dict):
        raise MalformedError("it is not a JSON object")
    if document.get("format") != FORMAT:
        raise MalformedError(f"it does not say that its format is {FORMAT!r}")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise MalformedError(
            f"its version is {str(version)[:40]}; this smoothcert verifies version {VERSION}: export the run again"
        )
    return document


def check_fields(document: Mapping[str, Any]) -> list[str]:
    """Fields that no certificate has, and that nobody would check."""
    problems = []
    parts: list[tuple[str, set[str], Any]] = [("it", _FIELDS.keys() | _OTHER_FIELDS, document)]
    for name, fields in _FIELDS.items():
        value = document.get(name)
        parts += [(name, fields, part) for part in (value if isinstance(value, list) else [value])]
    for name, fields, part in parts:
        unknown = sorted(set(part) - fields) if isinstance(part, dict) else []
        if unknown:
            problems.append(f"{name} has the field {unknown[0][:40]!r}, which no certificate has")
    return problems


def check_digests(document: Mapping[str, Any]) -> list[str]:
    """What is wrong with the two digests a certificate carries."""
    problems = []
    rest = {key: value for key, value in document.items() if key != "digest"}
    for name, content in (("run_digest", document.get("run")), ("digest", rest)):
        try:
            expected = canonical_digest(content)
        except MalformedError as error:
            problems.append(f"{name}: {error}")
            continue
        if document.get(name) != expected:
            subject = "its run" if name == "run_digest" else "its content"
            problems.append(f"{name} is not the digest of {subject}: something was changed after it was written")
    return problems


@dataclass(frozen=True, slots=True)
class StoredInput:
    """The rows of one input. rows: by table, as the database has them; sealed: what the seal of the input covers."""

    index: Any
    rows: Mapping[str, list[tuple[Any, ...]]]

    def sealed(self) -> list[Any]:
        return [[_told(row) for row in self.rows[table]] for table in _ORDER if table in self.rows]


def _told(row: Sequence[Any]) -> list[Any]:
    return [f"sha256:{hashlib.sha256(value).hexdigest()}" if isinstance(value, bytes) else value for value in row]


def next_seal(previous: str, content: Sequence[Any]) -> str:
    """The seal of an input that was stored after the one with the seal `previous`."""
    text = json.dumps(content, separators=(",", ":"))
    return hashlib.sha256(f"{previous}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()


class RunReader:
    """A run directory, read with nothing but SQLite and JSON. `read_manifest` first; use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._tables: set[str] = set()

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def read_manifest(self) -> Document:
        """The manifest; MalformedError where there is none or it is no object."""
        file = self.path / MANIFEST
        if not file.is_file():
            raise MalformedError(f"there is no {MANIFEST}")
        manifest = parse_json(read_bytes(file))
        if not isinstance(manifest, dict):
            raise MalformedError(f"{MANIFEST} is not a JSON object")
        return manifest

    def open_results(self) -> None:
        """Open the database, in one transaction for all that is read; MalformedError where it is none of a run."""
        file = self.path / RESULTS
        if not file.is_file():
            raise MalformedError(f"there is no {RESULTS}")
        with _told_of(file):
            connection = read_only(file)
            self._connection = connection
            connection.execute("BEGIN")
            kinds = dict(connection.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"))
        self._tables = {name for name, kind in kinds.items() if kind == "table" and name in _COLUMNS}
        missing = [name for name in _REQUIRED_TABLES if name not in self._tables]
        if missing:
            raise MalformedError(f"{RESULTS} has no table {', '.join(missing)}")
        for table in sorted(self._tables):
            with _told_of(file):
                columns = tuple(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
            if columns == _COLUMNS[table]:
                continue
            if table in _REQUIRED_TABLES or self._rows(f"SELECT 1 FROM {table} LIMIT 1"):
                raise MalformedError(f"the table {table} of {RESULTS} does not have the columns of a run")
            self._tables.discard(table)  # of an earlier version, and nothing was ever stored in it

    @property
    def has_seals(self) -> bool:
        return "seals" in self._tables

    def indices(self) -> list[Any]:
        """Of all inputs, in order."""
        return [row[0] for row in self._rows("SELECT idx FROM points ORDER BY idx")]

    def stray_rows(self) -> list[str]:
        """Sentences about rows that belong to no input."""
        found = []
        for table in sorted(self._tables & {"verdicts", "tallies", "promises", "model_checks"}):
            query = f"SELECT DISTINCT idx FROM {table} WHERE idx NOT IN (SELECT idx FROM points) ORDER BY idx LIMIT 10"
            found += [f"the table {table} has rows of input {row[0]}, which is not there" for row in self._rows(query)]
        return found

    def seals(self) -> list[tuple[Any, ...]]:
        """(position, index, seal), by position."""
        return self._rows("SELECT * FROM seals ORDER BY position")

    def model_checks(self) -> list[tuple[Any, ...]] | None:
        """(drawn, asked, ties) for every shard; None where the run has no such table."""
        if "model_checks" not in self._tables:
            return None
        return self._rows("SELECT drawn, asked, ties FROM model_checks ORDER BY idx")

    def failures(self) -> list[str]:
        """Why nothing in the run is to be relied on, as it was stored when the run was stopped."""
        rows = self._rows("SELECT reason FROM failures ORDER BY position") if "failures" in self._tables else []
        return [str(row[0]) for row in rows]

    def stored(self, index: Any) -> StoredInput:
        """All rows of one input."""
        rows = {
            table: self._rows(f"SELECT * FROM {table} WHERE idx = ? ORDER BY {order}", (index,))
            if table in self._tables
            else []
            for table, order in _ORDER.items()
            if table in self._tables or table != "model_checks"
        }
        return StoredInput(index=index, rows=rows)

    def _rows(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        with _told_of(self.path / RESULTS):
            return self._connection.execute(query, parameters).fetchall()


def read_only(file: Path) -> sqlite3.Connection:
    """A connection that changes nothing; functions and views in a foreign schema get no trust."""
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
def _told_of(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorname", "") or ""
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR")):
            raise RunError(
                f"{file} cannot be read ({error}); if a process was killed while writing it, go on with the run once"
            ) from error
        raise MalformedError(f"{file.name} is damaged: {error}") from error
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        raise MalformedError(f"{file.name} is damaged: {error}") from error


def document_from_rows(stored: StoredInput, manifest: Mapping[str, Any], smoothing: Mapping[str, Any]) -> Document:
    """The certificate document that these rows stand for, without statement and digests.

    smoothing: what the manifest says of it, σ left out. MalformedError where a column cannot be read.
    """
    points = stored.rows["points"]
    if len(points) != 1:
        raise MalformedError(f"it has {len(points)} rows in the table points")
    index, label, sigma, _ = points[0]
    promises = stored.rows["promises"]
    return {
        "format": FORMAT,
        "version": VERSION,
        "input": {"index": index, "label": label},
        "smoothing": {**smoothing, "sigma": sigma},
        "verdicts": [_verdict(row) for row in stored.rows["verdicts"]],
        "tallies": [_tally(row) for row in sorted(stored.rows["tallies"], key=_selection_first)],
        "promise": _promise(promises[0]) if promises else None,
        "run": manifest,
    }


def _selection_first(row: tuple[Any, ...]) -> tuple[bool, str, Any]:
    return row[1] != "SELECTION", str(row[1]), row[2]


def _verdict(row: tuple[Any, ...]) -> Document:
    _, _, certificate, prediction, radius, norm, outcome, reason, bounds = row
    if outcome not in _OUTCOMES:
        raise MalformedError(f"its outcome is {str(outcome)[:40]!r}, which is none")
    return {
        "certificate": certificate,
        "prediction": prediction,
        "radius": radius,
        "norm": norm,
        "outcome": outcome.lower(),
        "reason": reason,
        "bounds": None if bounds is None else _column("bounds", bounds),
    }


def _tally(row: tuple[Any, ...]) -> Document:
    _, stage, start, stop, sigma, kind, num_classes, counts, sums = row
    if not (sums is None or isinstance(sums, bytes)):
        raise MalformedError("the sums of one of its tallies are no bytes")
    return {
        "stage": stage,
        "kind": kind,
        "start": start,
        "stop": stop,
        "sigma": sigma,
        "num_classes": num_classes,
        "counts": _column("counts", counts),
        "sums": None if sums is None else base64.b64encode(sums).decode(),
    }


def _promise(row: tuple[Any, ...]) -> Document:
    return dict(zip(_COLUMNS["promises"][1:], row[1:], strict=True))


def _column(name: str, text: Any) -> Any:
    if not isinstance(text, str):
        raise MalformedError(f"its {name} are no text")
    try:
        return parse_json(text)
    except MalformedError as error:
        raise MalformedError(f"its {name} cannot be read: {error}") from error
