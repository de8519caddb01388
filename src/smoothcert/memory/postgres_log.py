"""The log of claims in a PostgreSQL database, shared by several machines.

Writers of one memory exclude each other by a row lock on its head. Statements see what was committed before they
started (READ COMMITTED), so statements after the lock see all claims. The server's settings decide how durable a commit
is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from smoothcert.errors import MissingExtraError, RegionMemoryError
from smoothcert.memory.claim_log import SCHEMA_VERSION, TABLES, ClaimLog
from smoothcert.memory.log import Head, StoredKey, damage_error

if TYPE_CHECKING:
    import psycopg

_SETUP_LOCK = 0x536D436572740001
"""The advisory lock held while tables are created and checked."""
_CORRUPTED = ("XX001", "XX002")
"""SQLSTATE codes for damaged data and damaged indexes."""
_HARMLESS = {
    *("host", "hostaddr", "port", "user", "dbname", "sslmode", "connect_timeout", "tcp_user_timeout"),
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
}
"""Parameters of an address that may be shown and stored."""
_HARMLESS_OPTIONS = re.compile(r"(-c ?(statement|lock)_timeout=\w+ ?)+")
_WAITED_FOR = {
    "SELECT": "claims to be read",
    "INSERT": "a claim to be written",
    "UPDATE": "a claim to be written",
    "COMMIT": "a claim to be committed",
}
_LOCK = "its lock, which one writer at a time holds"
_SCHEMA = TABLES.format(
    prefix="smoothcert_",
    number="bigint GENERATED ALWAYS AS IDENTITY",
    integer="bigint",
    real="double precision",
    text="text",
    blob="bytea",
    unique="PRIMARY KEY",
    options="",
)
_EXTRAS = """
CREATE TABLE smoothcert_memory_version (version integer NOT NULL);
ALTER TABLE smoothcert_claims ALTER COLUMN centre SET STORAGE EXTERNAL;
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
"""The trigger refuses a writer that knows nothing of heads, as in version 1."""
_VERSION_TABLE = "smoothcert_memory_version"
_REQUIRED = {_VERSION_TABLE, "smoothcert_memories", "smoothcert_claims", "smoothcert_heads"}


class PostgresLog(ClaimLog):
    """One PostgreSQL database."""

    _PREFIX = "smoothcert_"
    _MARK = "%s"
    _POSITIONS_PER_QUERY = 30000
    _CREATE_PROBES = "CREATE TABLE IF NOT EXISTS smoothcert_probes (digest text PRIMARY KEY, probe text NOT NULL)"

    def __init__(self, address: str, *, create: bool, check: bool = True) -> None:
        """address: postgresql://…, as libpq reads it. create: create the tables if there are none.

        check: check that the tables are complete. Without it, any read may fail.
        """
        self._address = address
        self._waiting_for = ""
        super().__init__(hide_secrets(address))
        try:
            if check:
                self._prepare(create=create)
            else:
                self.tables()
        except BaseException:
            self.disconnect()
            raise

    def tables(self) -> set[str]:
        """Names of the tables of a memory that exist."""
        query = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NOT NULL"
        return {name for (name,) in self._query(query, ([*_REQUIRED, "smoothcert_probes"],))}

    def heads(self) -> list[tuple[StoredKey, Head]]:
        """Return all heads with the keys that are stored beside them."""
        query = "SELECT memory, digest, key, identity, claims, entry FROM smoothcert_heads ORDER BY memory"
        return [(StoredKey(*row[:4]), Head(*row[4:])) for row in self._query(query)]

    def highest_positions(self) -> dict[int, int]:
        """Return the highest position among the claims of each memory number."""
        return dict(self._query("SELECT memory, max(position) FROM smoothcert_claims GROUP BY memory"))

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        self._waiting_for = _WAITED_FOR.get(statement.split(maxsplit=1)[0], "a change of its tables")
        # The binary format, because centres would be sent as hexadecimal digits otherwise.
        return self._open().cursor(binary=True).execute(statement, values)

    def _begin(self, memory: int | None) -> None:
        if memory is None:
            lock = "LOCK TABLE smoothcert_memories IN EXCLUSIVE MODE"
        else:
            lock = f"SELECT 1 FROM smoothcert_heads WHERE memory = {int(memory)} FOR UPDATE"
        connection = self._open()
        self._waiting_for = _LOCK
        # Both statements in one message, because each message costs a round trip.
        connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED; {lock}")

    def _open(self) -> psycopg.Connection[Any]:
        _import_driver()
        if self._connection is not None and self._connection.closed:
            self._connection = None
        if self._connection is None:
            self._check_lost_connection()
            from smoothcert.memory import postgres_connection

            self._waiting_for = "a connection"
            self._connection = postgres_connection.connect(self._address)
        connection: psycopg.Connection[Any] = self._connection
        return connection

    def _prepare(self, *, create: bool) -> None:
        """Create the tables if there are none. Refuse tables of another version or that are damaged."""
        with self._translate_errors():
            connection = self._open()
            try:
                self._waiting_for = "the lock on its tables"
                connection.execute(f"BEGIN; SELECT pg_advisory_xact_lock({_SETUP_LOCK})")
                existing = self.tables() & _REQUIRED
                if existing:
                    self._check_tables(existing)
                elif create:
                    self._waiting_for = "its tables to be created"
                    connection.execute(_SCHEMA + _EXTRAS)
                    connection.execute(f"INSERT INTO {_VERSION_TABLE} VALUES (%s)", (SCHEMA_VERSION,))
                else:
                    raise RegionMemoryError(f"{self.location} holds no memory of promised regions")
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _check_tables(self, existing: set[str]) -> None:
        found = self._query(f"SELECT version FROM {_VERSION_TABLE}") if _VERSION_TABLE in existing else []
        if len(found) != 1:
            raise damage_error(self.location, "its version is missing")
        self._check_version(found[0][0])
        missing = _REQUIRED - existing
        if missing:
            raise damage_error(self.location, f"it lacks {', '.join(sorted(missing))}")
        self._check_agreement()

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Messages contain no password. The original exception, which may contain one, is dropped."""
        driver = _import_driver()
        try:
            yield
        except driver.Error as error:
            raise self._describe(error) from None

    def _describe(self, error: psycopg.Error) -> RegionMemoryError:
        from smoothcert.memory.postgres_connection import SilentServerError

        message = " ".join(_remove_secrets(str(error), self._address).split())
        # A commit without an answer may have taken effect.
        note = ". The claim being made may be stored or not: make it again, which is safe" if self._is_writing else ""
        match error:
            case SilentServerError():
                return RegionMemoryError(
                    f"the PostgreSQL server of {self.location} has not answered for {error.seconds:.0f} s; waited for: "
                    f"{self._waiting_for}{note}. Check the server, other writers and the network; "
                    "options=-c%20statement_timeout%3D5min in the address allows longer answers"
                )
            case _ if error.sqlstate in _CORRUPTED:
                return damage_error(self.location, message)
            case _ if self._connection is None:
                return RegionMemoryError(
                    f"the PostgreSQL server of {self.location} cannot be reached: {message}. Check that it runs, and "
                    "the address; connect_timeout=30 in the address waits longer for a connection"
                )
            case _:
                return RegionMemoryError(
                    f"the memory in {self.location} cannot be used: {message} (waited for: {self._waiting_for}){note}"
                )


def _import_driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError("psycopg", "postgres", "a memory in PostgreSQL") from error
    return psycopg


def hide_secrets(address: str) -> str:
    """Return the address without anything that may be secret.

    Only parts known to be harmless are kept: if a password was not percent-encoded, parts of it may be in the place of
    a host, a port or a path.
    """
    scheme, user, rest = _split_address(address)
    place, _, query = rest.partition("?")
    hosts, slash, database = place.partition("/")
    shown = ",".join(_drop_invalid_port(host) for host in hosts.split(","))
    options = [option for option in parse_qsl(query.partition("#")[0]) if _is_harmless(*option)]
    return (
        f"{scheme}://{user + '@' if user else ''}{shown}{slash}{database.partition('#')[0]}"
        f"{'?' if options else ''}{urlencode(options, safe='/:,', quote_via=quote)}"
    )


def _is_harmless(name: str, value: str) -> bool:
    """Whether this parameter of an address may be shown. `options` can hold anything."""
    return name in _HARMLESS or (name == "options" and _HARMLESS_OPTIONS.fullmatch(value) is not None)


def _split_address(address: str) -> tuple[str, str, str]:
    """Scheme, user, and the rest after the last @. All text between user and @ is the password."""
    scheme, _, rest = address.partition("://")
    userinfo, _, place = rest.rpartition("@")
    return scheme, userinfo.partition(":")[0], place


def _drop_invalid_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    if host.startswith("[") or not name:
        return host
    return f"{name}:{port}" if port.isdigit() else name


def _remove_secrets(text: str, address: str) -> str:
    """Return the text with every password of the address replaced, both as typed and percent-decoded.

    If the address is ambiguous, the text may quote any part of it, and is replaced as a whole.
    """
    _, user, rest = _split_address(address)
    userinfo = address.partition("://")[2].rpartition("@")[0]
    hosts = rest.partition("?")[0].partition("/")[0].split(",")
    has_invalid_port = any(host != _drop_invalid_port(host) for host in hosts)
    if set(userinfo) & set("/?#[]@ ") or "#" in rest or has_invalid_port:
        return "its address is invalid; special characters in a password must be percent-encoded"
    typed = userinfo[len(user) + 1 :]
    secrets = {typed, unquote(typed)}
    secrets |= {value for name, value in parse_qsl(rest.partition("?")[2]) if not _is_harmless(name, value)}
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text
