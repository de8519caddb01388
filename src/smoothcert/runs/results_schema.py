"""The tables of a run's results, as SQLite has them."""

from __future__ import annotations

from smoothcert.runs.seals import SEALS_TABLE

SCHEMA = (
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
TABLES = frozenset({"points", "verdicts", "tallies", "promises", "model_checks", "failures", "seals"})
