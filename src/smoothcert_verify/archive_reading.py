"""Reading archives of runs: a compressed JSON file with the rows of all tables, column by column."""

from __future__ import annotations

import base64
import binascii
import gzip
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert_verify.findings import PlaceError, refuse
from smoothcert_verify.json_values import parse_json

FORMAT, VERSION = "smoothcert archive", 1

_MOST_BYTES = 1 << 29
_BYTES = "sums"
"""The only column of bytes, which JSON has as base64."""
_NOT_ARCHIVED = ("failures", "seals")


@dataclass(frozen=True, slots=True)
class Archive:
    """connection: a database in memory, without seals. order: the inputs as they were sealed. seal: the last one."""

    connection: sqlite3.Connection
    order: Sequence[Any]
    seal: Any


def read_archive(file: Path, tables: Mapping[str, Sequence[str]]) -> Archive:
    """The rows of an archive. tables: the columns of every table of a run."""
    document = parse_json(_decompress(file))
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise refuse("unknown-format", expected=f"{FORMAT} {VERSION}")
    stored = document.get("tables")
    archived = {table: columns for table, columns in tables.items() if table not in _NOT_ARCHIVED}
    if not isinstance(stored, dict) or stored.keys() != archived.keys():
        raise refuse("missing-tables", tables=", ".join(archived))
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for table, columns in tables.items():
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        for table, columns in archived.items():
            rows = _list_rows(table, stored[table], columns)
            connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(columns))})", rows)
            connection.execute(f"CREATE INDEX {table}_of_input ON {table} (idx)")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error | UnicodeError | OverflowError):
            raise refuse("damaged-file", name=file.name, error=str(error)) from error
        raise
    return Archive(connection, stored["points"]["idx"], document.get("seal"))


def _decompress(file: Path) -> bytes:
    try:
        with gzip.open(file) as stream:
            content = stream.read(_MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise refuse("damaged-file", name=file.name, error=str(error)) from error
    except OSError as error:
        raise PlaceError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise PlaceError(f"{file} is longer than {_MOST_BYTES >> 20} MB, which is too long for an archive")
    return content


def _list_rows(table: str, stored: Any, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of a table, whose values are numbers, texts or null, as those of a database are."""
    if not isinstance(stored, dict) or stored.keys() != set(columns):
        raise refuse("other-columns", table=table)
    lists = [stored[name] for name in columns]
    if not all(isinstance(values, list) and len(values) == len(lists[0]) for values in lists):
        raise refuse("other-columns", table=table)
    for name, values in zip(columns, lists, strict=True):
        for value in values:
            if value is not None and type(value) not in (int, float, str):
                raise refuse("invalid-value", field=f"{table}.{name}", value=value, expected="a number or a text")
    contents = [_to_bytes(values) if name == _BYTES else values for name, values in zip(columns, lists, strict=True)]
    return list(zip(*contents, strict=True))


def _to_bytes(values: Sequence[Any]) -> list[bytes | None]:
    try:
        return [None if value is None else base64.b64decode(value, validate=True) for value in values]
    except (binascii.Error, TypeError, ValueError) as error:
        raise refuse("invalid-value", field=_BYTES, value=str(error), expected="base64") from error
