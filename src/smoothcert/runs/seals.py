"""Seals of a run: a chain of digests in its database that reveals changes of anything that was stored.

Seal 0 is the digest of the manifest. Seal k is the SHA-256 of seal k-1 and of all rows of the k-th input that was
stored, as they were stored. So no field of the manifest or of a row can change, and no input can be removed, inserted
or exchanged, without breaking the chain, unless all later seals are made again. A seal is not a signature: anyone who
can write the file can make new seals. It reveals accidents and careless edits, and the last seal identifies a whole
run.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

SEALS_TABLE = """
CREATE TABLE seals (
    position INTEGER PRIMARY KEY,
    idx INTEGER UNIQUE REFERENCES points (idx),
    seal TEXT NOT NULL
) STRICT;
"""

_ROWS = (
    "SELECT * FROM points WHERE idx = ?",
    "SELECT * FROM verdicts WHERE idx = ? ORDER BY place",
    "SELECT * FROM tallies WHERE idx = ? ORDER BY stage, start",
    "SELECT * FROM promises WHERE idx = ?",
    "SELECT * FROM model_checks WHERE idx = ?",
)


def canonical_json(document: Any) -> bytes:
    """The same bytes for equal documents: sorted names, no spaces, ASCII. Floats are written by repr, so exactly."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def document_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(document)).hexdigest()


def begin_seals(connection: sqlite3.Connection, manifest: Mapping[str, Any]) -> None:
    """Seal 0 of a new run."""
    connection.execute("INSERT INTO seals VALUES (0, NULL, ?)", (document_digest(manifest),))


def seal_inputs(connection: sqlite3.Connection, indices: Sequence[int]) -> None:
    """Seal the rows of these inputs, in this order. They are read back, so the seals cover what is stored.

    Call it in the transaction that stored them.
    """
    last = connection.execute("SELECT position, seal FROM seals ORDER BY position DESC LIMIT 1").fetchone()
    if last is None:
        raise sqlite3.DatabaseError("the seals are missing")
    position, seal = last
    for index in indices:
        content = [[_row_as_json(row) for row in connection.execute(query, (index,))] for query in _ROWS]
        position, seal = position + 1, _next_seal(seal, content)
        connection.execute("INSERT INTO seals VALUES (?, ?, ?)", (position, index, seal))


def _row_as_json(row: Sequence[Any]) -> list[Any]:
    """A row as JSON; bytes are replaced by their digest."""
    return [f"sha256:{hashlib.sha256(value).hexdigest()}" if isinstance(value, bytes) else value for value in row]


def _next_seal(previous: str, content: Sequence[Any]) -> str:
    # Records contain no infinities. If one ever does, the run should still be stored, so they are not refused here.
    text = json.dumps(content, separators=(",", ":"))
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()
