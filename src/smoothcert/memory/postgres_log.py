"""The log of claims in a PostgreSQL database, for when several machines answer.

Writers of one memory exclude each other by a lock on its row. Statements see what was committed before they began
(READ COMMITTED), so one that comes after the lock sees all claims. How durable a commit is, is the server's setting.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode

from smoothcert.errors import MissingExtraError, RegionMemoryError
from smoothcert.memory.log import Row, StoredKey

if TYPE_CHECKING:
    import psycopg

SCHEMA_VERSION = 1

_SETUP_LOCK = 0x536D436572740001
"""Of the advisory locks of the database: held while tables are made."""
_SECONDS_TO_CONNECT = 10
_HARMLESS = {"host", "hostaddr", "port", "user", "dbname", "sslmode"}
"""Parameters of an address that may be shown."""
_SCHEMA = """
CREATE TABLE smoothcert_memory_version (version integer NOT NULL);
CREATE TABLE smoothcert_memories (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    key text NOT NULL,
    identity text NOT NULL
);
CREATE TABLE smoothcert_claims (
    memory bigint NOT NULL REFERENCES smoothcert_memories (number),
    position bigint NOT NULL,
    label bigint NOT NULL,
    radius double precision NOT NULL,
    asked_label bigint NOT NULL,
    asked_radius double precision NOT NULL,
    settlement text NOT NULL,
    claimed_at text NOT NULL,
    entry text NOT NULL,
    centre bytea NOT NULL,
    PRIMARY KEY (memory, position)
);
ALTER TABLE smoothcert_claims ALTER COLUMN centre SET STORAGE EXTERNAL;
"""
_COLUMNS = "position, label, radius, asked_label, asked_radius, settlement, claimed_at, entry, "


class PostgresLog:
    """One PostgreSQL database. Not for several threads at once; what uses it holds a lock."""

    def __init__(self, address: str, *, create: bool) -> None:
        """address: postgresql://…, as libpq reads it. create: make the tables if they are not there."""
        self._address = address
        self._location = readable(address)
        self._connection: psycopg.Connection[Any] | None = None
        self._writing = False
        try:
            self._prepare(create=create)
        except BaseException:
            self.disconnect()
            raise

    @property
    def location(self) -> str:
        return self._location

    def memories(self) -> list[StoredKey]:
        query = "SELECT number, digest, key, identity FROM smoothcert_memories ORDER BY number"
        return [StoredKey(*row) for row in self._all(query)]

    def register(self, digest: str, key: str) -> StoredKey:
        find = "SELECT number, digest, key, identity FROM smoothcert_memories WHERE digest = %s"
        found = self._all(find, (digest,))
        if not found:
            with self._explained():
                self._open().execute(
                    "INSERT INTO smoothcert_memories (digest, key, identity) VALUES (%s, %s, %s) "
                    "ON CONFLICT DO NOTHING",
                    (digest, key, uuid.uuid4().hex),
                )
            found = self._all(find, (digest,))
        return StoredKey(*found[0])

    @contextlib.contextmanager
    def writing(self, memory: int) -> Iterator[None]:
        with self._explained():
            connection = self._open()
        try:
            with self._explained():
                # In one message, because every message is waited for.
                lock = f"SELECT 1 FROM smoothcert_memories WHERE number = {int(memory)} FOR UPDATE"
                connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED; {lock}")
            self._writing = True
            yield
            with self._explained():
                connection.execute("COMMIT")
        except BaseException:
            # What became of a commit that failed is not known. A new connection reads it from the log.
            self._writing = False
            self._roll_back()
            raise
        finally:
            self._writing = False

    def count(self, memory: int) -> int:
        rows = self._all("SELECT max(position) FROM smoothcert_claims WHERE memory = %s", (memory,))
        return int(rows[0][0] or 0)

    def read(self, memory: int, *, after: int, at_most: int) -> list[Row]:
        query = (
            f"SELECT {_COLUMNS} centre FROM smoothcert_claims WHERE memory = %s AND position > %s "
            "ORDER BY position LIMIT %s"
        )
        return [Row(*row) for row in self._all(query, (memory, after, at_most))]

    def fetch(self, memory: int, positions: Sequence[int]) -> list[Row]:
        if not positions:
            return []
        query = f"SELECT {_COLUMNS} centre FROM smoothcert_claims WHERE memory = %s AND position = ANY(%s)"
        return [Row(*row) for row in self._all(query, (memory, list(positions)))]

    def entries(self, memory: int, positions: Sequence[int]) -> dict[int, str]:
        query = (
            "SELECT position, entry FROM smoothcert_claims WHERE memory = %s AND position = ANY(%s) "
            "UNION ALL SELECT 0, identity FROM smoothcert_memories WHERE number = %s AND 0 = ANY(%s)"
        )
        return dict(self._all(query, (memory, list(positions), memory, list(positions))))

    def outline(self, memory: int) -> list[Row]:
        query = f"SELECT {_COLUMNS} ''::bytea FROM smoothcert_claims WHERE memory = %s ORDER BY position"
        return [Row(*row) for row in self._all(query, (memory,))]

    def append(self, memory: int, row: Row) -> None:
        with self._explained():
            self._open().execute(
                f"INSERT INTO smoothcert_claims (memory, {_COLUMNS} centre) VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)",
                (memory, *row),
            )

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _roll_back(self) -> None:
        try:
            self._open().execute("ROLLBACK")
        except Exception:
            self.disconnect()

    def _all(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._explained():
            # The binary format, because centres would be sent as hexadecimal digits otherwise.
            return self._open().cursor(binary=True).execute(query, parameters).fetchall()

    def _open(self) -> psycopg.Connection[Any]:
        driver = _driver()
        if self._connection is not None and self._connection.closed:
            self._connection = None
        if self._connection is None and self._writing:
            raise RegionMemoryError(f"the connection to {self._location} was lost in the middle of a claim")
        if self._connection is None:
            # Statements are not prepared: a pooler between us and the server may hand them to different sessions.
            self._connection = driver.connect(
                self._address,
                autocommit=True,
                connect_timeout=_SECONDS_TO_CONNECT,
                prepare_threshold=None,
                application_name="smoothcert memory",
                # Of several servers the one that is written to: a copy may not have heard of the last claims yet.
                target_session_attrs="read-write",
            )
        return self._connection

    def _prepare(self, *, create: bool) -> None:
        """Make the tables where there are none; refuse those of another version."""
        with self._explained():
            connection = self._open()
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))
                there = connection.execute("SELECT to_regclass('smoothcert_memory_version')").fetchone()
                if there is None or there[0] is None:
                    if not create:
                        raise RegionMemoryError(f"{self._location} holds no memory of promised regions")
                    connection.execute(_SCHEMA)
                    connection.execute("INSERT INTO smoothcert_memory_version VALUES (%s)", (SCHEMA_VERSION,))
                version = connection.execute("SELECT version FROM smoothcert_memory_version").fetchone()
        if version is None or version[0] != SCHEMA_VERSION:
            raise RegionMemoryError(
                f"{self._location} holds a memory of version {version[0] if version else 'unknown'}; this smoothcert "
                f"reads version {SCHEMA_VERSION}: use the smoothcert it was made with, or another database"
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Whatever the driver raises, as a sentence without a password; the original, which might tell, is dropped."""
        driver = _driver()
        try:
            yield
        except driver.Error as error:
            said = " ".join(_without_secrets(str(error), self._address).split())
            if self._connection is None:
                sentence = f"the PostgreSQL server of {self._location} cannot be reached: {said}"
            else:
                sentence = f"the memory in {self._location} cannot be used: {said}"
            raise RegionMemoryError(sentence) from None


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError("psycopg", "postgres", "a memory in PostgreSQL") from error
    return psycopg


def readable(address: str) -> str:
    """The address without anything that might be secret, for people to read.

    What is not known to be harmless is left out: people forget to encode a password, and then parts of it stand where
    a host, a port or a path should be.
    """
    scheme, user, rest = _dissected(address)
    place, _, query = rest.partition("?")
    hosts, slash, database = place.partition("/")
    shown = ",".join(_host(host) for host in hosts.split(","))
    options = [(name, value) for name, value in parse_qsl(query.partition("#")[0]) if name in _HARMLESS]
    return (
        f"{scheme}://{user + '@' if user else ''}{shown}{slash}{database.partition('#')[0]}"
        f"{'?' if options else ''}{urlencode(options, safe='/:,')}"
    )


def _dissected(address: str) -> tuple[str, str, str]:
    """Scheme, user, and what comes after the last @. What is between user and @ is the password, however typed."""
    scheme, _, rest = address.partition("://")
    userinfo, _, place = rest.rpartition("@")
    return scheme, userinfo.partition(":")[0], place


def _host(host: str) -> str:
    name, _, port = host.rpartition(":")
    if host.startswith("[") or not name:
        return host
    return f"{name}:{port}" if port.isdigit() else name


def _without_secrets(text: str, address: str) -> str:
    """The text with every password of the address blotted out, as it was typed and as it was meant.

    Where the address is not one that can be read in one way only, the text may quote any part of it: it is dropped.
    """
    _, user, rest = _dissected(address)
    userinfo = address.partition("://")[2].rpartition("@")[0]
    if set(userinfo) & set("/?#[]@ ") or "#" in rest or not _well_placed(rest):
        return "its address makes no sense; special characters in a password must be percent-encoded"
    typed = userinfo[len(user) + 1 :]
    secrets = {typed, unquote(typed)}
    secrets |= {value for name, value in parse_qsl(rest.partition("?")[2]) if name not in _HARMLESS}
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def _well_placed(rest: str) -> bool:
    """Whether every host has a port that is a number, or none."""
    hosts = rest.partition("?")[0].partition("/")[0].split(",")
    return all(host == _host(host) for host in hosts)
