"""Memories of promised regions for tests that damage them, in the current and in the earlier schema."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from smoothcert.memory import Claim, MemoryKey, RegionMemory, open_memory
from smoothcert.memory.log import encode
from smoothcert.records import Norm, Settlement

KEY = MemoryKey("model", "sigma", "gaussian", Norm.L2, "none", 4)
CLAIMS = 8


def centre(number: int, key: MemoryKey = KEY) -> np.ndarray:  # type: ignore[type-arg]
    """The centre of the claim with this number, far from all others."""
    return np.full(key.dimension, 10.0 * number, dtype=np.float32)


def fill(memory: RegionMemory, count: int = CLAIMS) -> None:
    for number in range(1, count + 1):
        memory.claim(centre(number, memory.key), number % 3, 1.0 + number / 16)


def filled_memory(path: Path, key: MemoryKey = KEY, count: int = CLAIMS) -> Path:
    """A closed file with this many claims, without a write-ahead log."""
    with open_memory(path, key) as memory:
        fill(memory, count)
    assert not path.with_name(path.name + "-wal").exists()
    return path


EARLIER_SCHEMA = """
CREATE TABLE memories (
    number INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    identity TEXT NOT NULL
) STRICT;
CREATE TABLE claims (
    memory INTEGER NOT NULL REFERENCES memories (number),
    position INTEGER NOT NULL,
    label INTEGER NOT NULL,
    radius REAL NOT NULL,
    asked_label INTEGER NOT NULL,
    asked_radius REAL NOT NULL,
    settlement TEXT NOT NULL,
    claimed_at TEXT NOT NULL,
    entry TEXT NOT NULL,
    centre BLOB NOT NULL,
    UNIQUE (memory, position)
) STRICT;
"""
"""Of version 1, as smoothcert made it before there was a table of heads."""
EARLIER_INSERT = "INSERT INTO claims VALUES (?,?,?,?,?,?,?,?,?,?)"


def earlier_memory(path: Path, key: MemoryKey = KEY, count: int = CLAIMS) -> Path:
    """A file in version 1 of the schema."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 16384")
        connection.executescript(EARLIER_SCHEMA)
        connection.execute(f"PRAGMA application_id = {0x536D4365}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("PRAGMA journal_mode = WAL")
        entry = "0123456789abcdef" * 2
        connection.execute("INSERT INTO memories VALUES (1, ?, ?, ?)", (key.digest, key.to_text(), entry))
        for number in range(1, count + 1):
            claim = stored_claim(number, key)
            row = encode(claim, previous=entry)
            entry = row.entry
            connection.execute(EARLIER_INSERT, (1, *row))
    return path


def stored_claim(number: int, key: MemoryKey = KEY) -> Claim:
    """The claim that `fill` makes, as it is stored."""
    label, radius = number % 3, 1.0 + number / 16
    return Claim(number, centre(number, key), label, radius, label, radius, Settlement.WHOLE, datetime.now(UTC))


def put_back(path: Path, claims: int) -> None:
    """Set the file back to its state after this many claims, like a backup of that time."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM claims WHERE position > ?", (claims,))
        connection.execute(
            "UPDATE heads SET claims = ?, entry = (SELECT entry FROM claims WHERE position = ?)", (claims, claims)
        )
