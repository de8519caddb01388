"""Errors of SQLite by kind, and what a person can do about those of the disk."""

from __future__ import annotations

import sqlite3

_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
"""Another connection holds a lock. Only these errors go away by waiting."""


def primary_code(error: sqlite3.Error) -> str:
    """The name of SQLite's primary error code, which extended codes such as SQLITE_READONLY_DIRECTORY begin with.

    Empty if the error was raised by Python's sqlite3 module itself.
    """
    return "_".join((getattr(error, "sqlite_errorname", None) or "").split("_")[:2])


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another connection holds a lock, so that trying again can help."""
    return primary_code(error) in _LOCKED


def explain_disk_error(error: sqlite3.Error) -> str | None:
    """What failed and what to do, if the disk is full, failing or not writable; None for other errors."""
    match primary_code(error):
        case "SQLITE_FULL":
            return f"{error}; make room on the disk"
        case "SQLITE_IOERR":
            return f"{error}, {error.sqlite_errorname}; the disk may be full, read-only or failing: check it"
        case "SQLITE_READONLY" | "SQLITE_PERM":
            return f"{error}; the file and its directory must be writable"
        case "SQLITE_CANTOPEN":
            return f"{error}; the file and its directory must be writable, and the disk must have room"
        case _:
            return None
