"""Where a memory is: a path means SQLite, a postgresql:// address PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from smoothcert.errors import InputError, RegionMemoryError
from smoothcert.memory.audit import Audit, audit_claims
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import ClaimLog, LogReading, StoredKey, damaged
from smoothcert.memory.regions import RegionMemory
from smoothcert.strict_json import strict_loads

_POSTGRES = ("postgresql://", "postgres://")


def open_memory(location: str | Path, key: MemoryKey) -> RegionMemory:
    """The memory with this key; the database and the memory are made if they are not there.

    location: the path of a SQLite file, or the address of a PostgreSQL database, postgresql://user@host/database. All
    claims are read and proved: a log that is not complete is a `DamagedMemoryError`, never an empty memory.
    """
    log = open_log(location, create=True)
    try:
        stored = log.register(key.digest, key.to_text())
        return RegionMemory(log, key_of(stored, location=log.location), stored)
    except BaseException:
        log.disconnect()
        raise


def open_existing(location: str | Path, digest: str = "") -> RegionMemory:
    """The one memory in an existing database whose key's digest begins like this. Nothing is ever made."""
    log = existing_log(location)
    try:
        stored = _the_one(log, digest.strip().lower())
        return RegionMemory(log, key_of(stored, location=log.location), stored)
    except BaseException:
        log.disconnect()
        raise


def audit_existing(
    location: str | Path, digest: str = "", *, progress: Callable[[int, int], None] | None = None
) -> tuple[MemoryKey, Audit]:
    """Audit the one memory whose key's digest begins like this, also where it could not be opened: what is wrong with
    its log is in the audit. What is wrong with the database itself is an error.
    """
    log = existing_log(location)
    try:
        stored = _the_one(log, digest.strip().lower())
        key = key_of(stored, location=log.location)
        return key, audit_claims(LogReading(log, stored), key=key, progress=progress)
    finally:
        log.disconnect()


def is_server(location: str | Path) -> bool:
    """Whether this names a database server, not a file."""
    return isinstance(location, str) and location.lower().startswith(_POSTGRES)


def lasting_name(location: str | Path) -> str:
    """How to find the place again from anywhere: a path from the root, or an address without its passwords."""
    if is_server(location):
        from smoothcert.memory.postgres_log import readable

        return readable(str(location))
    return str(Path(location).resolve())


def existing_log(location: str | Path) -> ClaimLog:
    """The database at this place; that there is none is an error."""
    return open_log(location, create=False)


def _the_one(log: ClaimLog, digest: str) -> StoredKey:
    known = log.memories()
    fitting = [memory for memory in known if memory.digest.startswith(digest)]
    if len(fitting) == 1:
        return fitting[0]
    if not known:
        raise RegionMemoryError(f"{log.location} holds no memory yet")
    names = ", ".join(memory.digest[:12] for memory in known[:10]) + (", …" if len(known) > 10 else "")
    asked = f"{len(fitting)} memories begin with '{digest}'" if digest else f"there are {len(known)} memories"
    raise RegionMemoryError(f"{asked} in {log.location}; say which by the beginning of its digest: {names}")


def key_of(stored: StoredKey, *, location: str) -> MemoryKey:
    """The key of a stored memory; one that does not fit its digest is refused."""
    try:
        key = MemoryKey.from_json(strict_loads(stored.key))
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(location, f"the key of {stored.digest[:12]} cannot be read: {error!r}") from error
    if key.digest != stored.digest:
        raise damaged(location, f"the key of {stored.digest[:12]} does not have this digest")
    return key


def open_log(location: str | Path, *, create: bool) -> ClaimLog:
    """The database at this place, with its memories as they are: of their logs nothing is proved yet."""
    if is_server(location):
        from smoothcert.memory.postgres_log import PostgresLog

        return PostgresLog(str(location), create=create)
    if isinstance(location, str) and ("://" in location or "password=" in location):
        # Not repeated here: it may hold a password.
        raise InputError(
            "this is no place for a memory: give the path of a file, or an address that begins with "
            f"{' or '.join(_POSTGRES)}"
        )
    from smoothcert.memory.sqlite_log import SqliteLog

    return SqliteLog(Path(location), create=create)
