"""The log of claims in a PostgreSQL database, for when several machines answer.

Writers of one memory exclude each other by a lock on its head. Statements see what was committed before they began
(READ COMMITTED), so one that comes after the lock sees all claims. How durable a commit is, is the server's setting.

Version 1 had no heads. Such tables are taken over when they are opened, if their chains of entries are whole.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode

from smoothcert.errors import MissingExtraError, RegionMemoryError
from smoothcert.memory.log import Head, Row, StoredKey, check_agreement, damaged, disagreements, end_of_chain

if TYPE_CHECKING:
    import psycopg

SCHEMA_VERSION = 2

_SETUP_LOCK = 0x536D436572740001
"""Of the advisory locks of the database: held while tables are made."""
_SECONDS_TO_CONNECT = 10
_CORRUPTED = ("XX001", "XX002")
"""What the server says of data and of an index that it finds damaged."""
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
_HEADS = """
CREATE TABLE smoothcert_heads (
    memory bigint PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    key text NOT NULL,
    identity text NOT NULL,
    claims bigint NOT NULL,
    entry text NOT NULL
);
"""
"""One row a memory: a second copy of its key, and the head of its log."""
_PROBES = "CREATE TABLE IF NOT EXISTS smoothcert_probes (digest text PRIMARY KEY, probe text NOT NULL)"
"""By the digest of a memory, how its model answers fixed inputs. No claim rests on it."""
_GUARD = """
CREATE FUNCTION smoothcert_claim_follows_head() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM smoothcert_heads WHERE memory = NEW.memory AND claims = NEW.position AND entry = NEW.entry
    ) THEN
        RAISE EXCEPTION 'the head was not moved: an earlier version of smoothcert is writing; stop it';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER smoothcert_claim_follows_head BEFORE INSERT ON smoothcert_claims
    FOR EACH ROW EXECUTE FUNCTION smoothcert_claim_follows_head();
"""
"""A process of version 1 that has been connected since before the tables were taken over knows nothing of heads."""
_TABLES = {
    1: ("smoothcert_memory_version", "smoothcert_memories", "smoothcert_claims"),
    2: ("smoothcert_memory_version", "smoothcert_memories", "smoothcert_claims", "smoothcert_heads"),
}
_COLUMNS = "position, label, radius, asked_label, asked_radius, settlement, claimed_at, entry, "


class PostgresLog:
    """One PostgreSQL database. Not for several threads at once; what uses it holds a lock."""

    def __init__(self, address: str, *, create: bool, check: bool = True) -> None:
        """address: postgresql://…, as libpq reads it. create: make the tables if they are not there. check: whether
        they are whole; without that, any reading may fail.
        """
        self._address = address
        self._location = readable(address)
        self._connection: psycopg.Connection[Any] | None = None
        self._writing = False
        try:
            if check:
                self._prepare(create=create)
            else:
                self.tables()
        except BaseException:
            self.disconnect()
            raise

    @property
    def location(self) -> str:
        return self._location

    def tables(self) -> set[str]:
        """Those of the tables of a memory that there are."""
        return {name for name in _TABLES[SCHEMA_VERSION] if self._all("SELECT to_regclass(%s)", (name,))[0][0]}

    def memories(self) -> list[StoredKey]:
        query = "SELECT number, digest, key, identity FROM smoothcert_memories ORDER BY number"
        return [StoredKey(*row) for row in self._all(query)]

    def register(self, digest: str, key: str) -> StoredKey:
        find = "SELECT number, digest, key, identity FROM smoothcert_memories WHERE digest = %s"
        found = self._all(find, (digest,))
        if not found:
            with self._explained():
                self._add(digest, key, uuid.uuid4().hex)
            found = self._all(find, (digest,))
        return StoredKey(*found[0])

    def restore(self, copies: Iterable[tuple[StoredKey, Iterable[Row]]]) -> None:
        with self._transaction("LOCK TABLE smoothcert_memories IN EXCLUSIVE MODE"):
            if self.memories():
                raise RegionMemoryError(f"{self._location} holds a memory already; give another database")
            for stored, rows in copies:
                with self._explained():
                    self._add(stored.digest, stored.key, stored.identity)
                made = self.register(stored.digest, stored.key)
                for row in rows:
                    self.append(made.number, row)

    def _add(self, digest: str, key: str, identity: str) -> None:
        """A memory with its head, in one statement; nothing if another process has been faster."""
        self._open().execute(
            "WITH made AS (INSERT INTO smoothcert_memories (digest, key, identity) VALUES (%s, %s, %s) "
            "ON CONFLICT DO NOTHING RETURNING number, digest, key, identity) "
            "INSERT INTO smoothcert_heads SELECT number, digest, key, identity, 0, identity FROM made",
            (digest, key, identity),
        )

    def probe(self, digest: str) -> str | None:
        if self._all("SELECT to_regclass('smoothcert_probes')")[0][0] is None:
            return None
        found = self._all("SELECT probe FROM smoothcert_probes WHERE digest = %s", (digest,))
        return str(found[0][0]) if found else None

    def keep_probe(self, digest: str, probe: str) -> None:
        with self._transaction("LOCK TABLE smoothcert_memories IN EXCLUSIVE MODE"), self._explained():
            self._open().execute(_PROBES)
            self._open().execute(
                "INSERT INTO smoothcert_probes VALUES (%s, %s) ON CONFLICT DO NOTHING", (digest, probe)
            )

    def writing(self, memory: int) -> contextlib.AbstractContextManager[None]:
        return self._transaction(f"SELECT 1 FROM smoothcert_heads WHERE memory = {int(memory)} FOR UPDATE")

    @contextlib.contextmanager
    def _transaction(self, lock: str) -> Iterator[None]:
        with self._explained():
            connection = self._open()
        try:
            with self._explained():
                # In one message, because every message is waited for.
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

    def head(self, memory: int) -> Head:
        rows = self._all("SELECT claims, entry FROM smoothcert_heads WHERE memory = %s", (memory,))
        if not rows:
            raise damaged(self._location, "the head of its log is missing")
        return Head(*rows[0])

    def heads(self) -> list[tuple[StoredKey, Head]]:
        """All heads, with the keys that are stored beside them."""
        query = "SELECT memory, digest, key, identity, claims, entry FROM smoothcert_heads ORDER BY memory"
        return [(StoredKey(*row[:4]), Head(*row[4:])) for row in self._all(query)]

    def highest(self) -> dict[int, int]:
        """The highest position of each number of a memory that occurs among the claims."""
        return dict(self._all("SELECT memory, max(position) FROM smoothcert_claims GROUP BY memory"))

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
                "UPDATE smoothcert_heads SET claims = %s, entry = %s WHERE memory = %s AND claims = %s",
                (row.position, row.entry, memory, row.position - 1),
            )
            # If the head was elsewhere and did not move, the trigger refuses this.
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
        """Make the tables where there are none; refuse what is not whole; bring an earlier version up to date."""
        with self._explained():
            connection = self._open()
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))
                there = self.tables()
                if not there:
                    if not create:
                        raise RegionMemoryError(f"{self._location} holds no memory of promised regions")
                    connection.execute(_SCHEMA + _HEADS + _GUARD)
                    connection.execute("INSERT INTO smoothcert_memory_version VALUES (%s)", (SCHEMA_VERSION,))
                    return
                version = self._version(there)
                lacking = set(_TABLES[version]) - there
                if lacking:
                    raise damaged(self._location, f"it lacks {', '.join(sorted(lacking))}")
                if version == 1:
                    self._take_over(connection)
                numbers = [row[0] for row in self._all(disagreements("smoothcert_"))]
                check_agreement(numbers, location=self._location)

    def _version(self, there: set[str]) -> int:
        name = "smoothcert_memory_version"
        found = self._all(f"SELECT version FROM {name}") if name in there else []
        if len(found) != 1:
            raise damaged(self._location, "it does not say of which version it is")
        version: int = found[0][0]
        if version not in _TABLES:
            raise RegionMemoryError(
                f"{self._location} holds a memory of version {version}; this smoothcert reads versions up to "
                f"{SCHEMA_VERSION}: use the smoothcert it was made with, or another database"
            )
        return version

    def _take_over(self, connection: psycopg.Connection[Any]) -> None:
        """From version 1: give every memory the head that its claims have, if their chain is whole."""
        # Waits for those who are claiming, and keeps others from it.
        connection.execute("LOCK TABLE smoothcert_memories, smoothcert_claims IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(_HEADS)
        for stored in self.memories():
            connection.execute(
                "INSERT INTO smoothcert_heads VALUES (%s, %s, %s, %s, %s, %s)", (*stored, *end_of_chain(self, stored))
            )
        connection.execute(_GUARD)
        connection.execute("UPDATE smoothcert_memory_version SET version = %s", (SCHEMA_VERSION,))

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
            if getattr(error, "sqlstate", None) in _CORRUPTED:
                raise damaged(self._location, said) from None
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
