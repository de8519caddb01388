"""The compressed rows of an archived run: `results.json.gz`, in place of `results.sqlite`.

Equal rows give equal bytes before compression: there are no times in the file, and every order is fixed. Only the last
seal is kept. The others follow from manifest and rows, so they are made again when the file is read, and must end in
the one that is stated.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from smoothcert.errors import CorruptRunError, RunError
from smoothcert.runs.results_schema import SCHEMA
from smoothcert.runs.seals import begin_seals, seal_inputs
from smoothcert.strict_json import strict_loads

Tables = Mapping[str, Mapping[str, list[Any]]]

ARCHIVE = "results.json.gz"
_FORMAT, _VERSION = "smoothcert archive", 1
_MOST_BYTES = 1 << 29
"""The longest content, decompressed."""
_ORDERS = {
    "points": "(SELECT position FROM seals WHERE seals.idx = points.idx)",
    "verdicts": "idx, place",
    "tallies": "idx, stage, start",
    "promises": "idx",
    "model_checks": "idx",
}
"""The tables in an archive. Points are in the order in which they were sealed."""


def dump_rows(connection: sqlite3.Connection, manifest: Mapping[str, Any]) -> bytes:
    """The rows of a run as JSON, column by column, which compresses better than row by row; sealed with this manifest.

    The manifest of an archive differs from that of its run in the places it names. The caller holds a transaction.
    """
    tables = {table: _read_columns(connection, table, order) for table, order in _ORDERS.items()}
    return encode_rows(tables, manifest)


def encode_rows(tables: Tables, manifest: Mapping[str, Any]) -> bytes:
    with contextlib.closing(_fill(tables, manifest)) as connection:
        document = {"format": _FORMAT, "version": _VERSION, "seal": _last_seal(connection), "tables": tables}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def compress(rows: bytes) -> bytes:
    """Without a time stamp."""
    return gzip.compress(rows, compresslevel=9, mtime=0)


def decompress(file: Path) -> bytes:
    """The content of a compressed file; an error if it is damaged, or longer than any archive."""
    try:
        with gzip.open(file) as stream:
            content = stream.read(_MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorruptRunError(f"{file} is damaged: {error}") from error
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise CorruptRunError(f"{file} is not an archive: it has more than {_MOST_BYTES:,} bytes")
    return content


def open_archive(file: Path, *, manifest: Path) -> sqlite3.Connection:
    """A database in memory with the tables of the archived run. manifest: the file that its first seal is of."""
    content = decompress(file)
    try:
        document = strict_loads(content)
        stated = (document["format"], document["version"])
        if stated != (_FORMAT, _VERSION):
            raise ValueError(f"it is {stated[0]!r} {stated[1]!r}, and this version reads {_FORMAT!r} {_VERSION}")
        connection = _fill(document["tables"], strict_loads(manifest.read_bytes()))
        if _last_seal(connection) != document["seal"]:
            connection.close()
            raise ValueError("manifest and rows are not those that were archived: the last seal is another")
    except (sqlite3.Error, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptRunError(f"{file} is damaged: {error}") from error
    return connection


def _fill(tables: Tables, manifest: Mapping[str, Any]) -> sqlite3.Connection:
    """A database in memory with these rows, and their seals."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        connection.executescript(SCHEMA)
        connection.execute("BEGIN")
        for table in _ORDERS:
            _insert(connection, table, tables[table])
        begin_seals(connection, manifest)
        seal_inputs(connection, tables["points"]["idx"])
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _last_seal(connection: sqlite3.Connection) -> str:
    return str(connection.execute("SELECT seal FROM seals ORDER BY position DESC LIMIT 1").fetchone()[0])


def _read_columns(connection: sqlite3.Connection, table: str, order: str) -> dict[str, list[Any]]:
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY {order}")
    names = [column[0] for column in cursor.description]
    rows = cursor.fetchall()
    return {name: [_to_json(row[place]) for row in rows] for place, name in enumerate(names)}


def _insert(connection: sqlite3.Connection, table: str, columns: Mapping[str, list[Any]]) -> None:
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    if sorted(columns) != sorted(names):
        raise ValueError(f"the table {table} has the columns {', '.join(columns)}, expected {', '.join(names)}")
    marks = ",".join("?" * len(names))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", _list_rows(columns, names))


def _list_rows(columns: Mapping[str, list[Any]], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return (
        tuple(_from_json(name, value) for name, value in zip(names, row, strict=True))
        for row in zip(*(columns[name] for name in names), strict=True)
    )


def _to_json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _from_json(name: str, value: Any) -> Any:
    """`sums` is the only column of bytes."""
    if isinstance(value, bool):
        raise TypeError(f"{name} is {value}, which no column of a run can be")
    return base64.b64decode(value, validate=True) if name == "sums" and value is not None else value
