"""Where a memory is: a path means SQLite, a postgresql:// address PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from smoothcert.errors import InputError, RegionMemoryError
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import ClaimLog, StoredKey
from smoothcert.memory.regions import RegionMemory
from smoothcert.strict_json import strict_loads

_POSTGRES = ("postgresql://", "postgres://")


def open_memory(location: str | Path, key: MemoryKey) -> RegionMemory:
    """The memory with this key; the database and the memory are made if they are not there.

    location: the path of a SQLite file, or the address of a PostgreSQL database, postgresql://user@host/database.
    """
    log = _open_log(location, create=True)
    try:
        return RegionMemory(log, key, log.register(key.digest, key.to_text()))
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
    return _open_log(location, create=False)


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
        raise RegionMemoryError(f"the memory {stored.digest[:12]} in {location} is damaged: {error!r}") from error
    if key.digest != stored.digest:
        raise RegionMemoryError(
            f"the memory {stored.digest[:12]} in {location} is damaged: its key does not have this digest"
        )
    return key


def _open_log(location: str | Path, *, create: bool) -> ClaimLog:
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
