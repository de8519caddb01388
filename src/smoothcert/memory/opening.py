"""Opening memories by location: a path means SQLite, a postgresql:// address means PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from smoothcert.errors import InputError, RegionMemoryError
from smoothcert.memory.audit import Audit, audit_claims
from smoothcert.memory.claim_log import ClaimLog, LogReader
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import StoredKey, damage_error
from smoothcert.memory.regions import RegionMemory
from smoothcert.strict_json import strict_loads

_POSTGRES = ("postgresql://", "postgres://")


def open_memory(location: str | Path, key: MemoryKey) -> RegionMemory:
    """Open the memory with this key. The database and the memory are created if they do not exist.

    location: the path of a SQLite file, or the address of a PostgreSQL database, postgresql://user@host/database. All
    claims are read and checked: an incomplete log raises DamagedMemoryError and is never taken for an empty memory.
    """
    log = open_log(location, create=True)
    return _open_stored(log, lambda: log.register(key.digest, key.to_text()))


def open_existing(location: str | Path, digest: str = "") -> RegionMemory:
    """Open the only memory of an existing database whose digest starts with `digest`. Nothing is created."""
    log = open_log(location, create=False)
    return _open_stored(log, lambda: _select(log, digest))


def _open_stored(log: ClaimLog, find: Callable[[], StoredKey]) -> RegionMemory:
    try:
        stored = find()
        return RegionMemory(log, parse_key(stored, location=log.location), stored)
    except BaseException:
        log.disconnect()
        raise


def audit_existing(
    location: str | Path, digest: str = "", *, progress: Callable[[int, int], None] | None = None
) -> tuple[MemoryKey, Audit]:
    """Audit the only memory whose digest starts with `digest`, even if `open_existing` would refuse it.

    The audit lists all problems of the log. A damaged database raises an error.
    """
    with existing_log(location) as log:
        stored = _select(log, digest)
        key = parse_key(stored, location=log.location)
        return key, audit_claims(LogReader(log, stored), key=key, progress=progress)


def is_server(location: str | Path) -> bool:
    """Whether this is the address of a database server and not a file."""
    return isinstance(location, str) and location.lower().startswith(_POSTGRES)


def resolve_location(location: str | Path) -> str:
    """The absolute path of a file, or the address of a server without passwords."""
    if is_server(location):
        from smoothcert.memory.postgres_log import hide_secrets

        return hide_secrets(str(location))
    return str(Path(location).resolve())


@contextlib.contextmanager
def existing_log(location: str | Path) -> Iterator[ClaimLog]:
    """The existing database at this location, disconnected at the end."""
    log = open_log(location, create=False)
    try:
        yield log
    finally:
        log.disconnect()


def open_log(location: str | Path, *, create: bool) -> ClaimLog:
    """Connect to the database at this location. The logs of its memories are not checked yet."""
    _refuse_unsupported(location)
    if is_server(location):
        from smoothcert.memory.postgres_log import PostgresLog

        return PostgresLog(str(location), create=create)
    from smoothcert.memory.sqlite_log import SqliteLog

    return SqliteLog(Path(location), create=create)


def check_location(location: str | Path) -> None:
    """Refuse a location where no memory can be, without connecting to it."""
    _refuse_unsupported(location)
    if not is_server(location):
        from smoothcert.memory.sqlite_log import check_folder

        check_folder(Path(location).resolve())


def _refuse_unsupported(location: str | Path) -> None:
    if isinstance(location, str) and not is_server(location) and ("://" in location or "password=" in location):
        # The message does not repeat the location, which may contain a password.
        raise InputError(
            "this location is not supported for a memory: give the path of a file, or an address that begins with "
            f"{' or '.join(_POSTGRES)}"
        )


def parse_key(stored: StoredKey, *, location: str) -> MemoryKey:
    """Parse the key of a stored memory. Raise DamagedMemoryError if it is invalid or does not match its digest."""
    try:
        key = MemoryKey.from_json(strict_loads(stored.key))
    except (KeyError, TypeError, ValueError) as error:
        raise damage_error(location, f"the key of {stored.digest[:12]} cannot be read: {error!r}") from error
    if key.digest != stored.digest:
        raise damage_error(location, f"the key of {stored.digest[:12]} does not match this digest")
    return key


def _select(log: ClaimLog, digest: str) -> StoredKey:
    start = digest.strip().lower()
    known = log.memories()
    matching = [memory for memory in known if memory.digest.startswith(start)]
    if len(matching) == 1:
        return matching[0]
    if not known:
        raise RegionMemoryError(f"{log.location} holds no memory yet")
    names = ", ".join(memory.digest[:12] for memory in known[:10]) + (", …" if len(known) > 10 else "")
    found = f"{len(matching)} memories begin with '{start}'" if start else f"there are {len(known)} memories"
    raise RegionMemoryError(f"{found} in {log.location}; name one by the beginning of its digest: {names}")
