"""A connection to PostgreSQL that ends: when the server says nothing for too long, and on Ctrl-C.

A server, a proxy or a network that stops without closing the connection looks like a slow answer, and psycopg waits for
an answer without limit. On Ctrl-C it asks such a server to cancel and waits again.

The settings are those of libpq, in the address: `connect_timeout`, `keepalives_idle` and so on, and
`options=-c statement_timeout=5min` for the longest answer, 0 for no limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import waiting
from psycopg.conninfo import conninfo_to_dict

SECONDS_TO_CONNECT = 10
SECONDS_OF_SILENCE = 60.0
"""How long an answer may take, if no `statement_timeout` is set."""
_GRACE_SECONDS = 10.0
"""A server that cancels a statement by itself gets this time to say so."""
_DEFAULTS = {
    "connect_timeout": SECONDS_TO_CONNECT,
    # A machine that has vanished is noticed within a minute, also between statements.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "smoothcert memory",
}
_SECONDS_BETWEEN_LOOKS = 0.1
"""How often the wait looks for Ctrl-C and the limit."""


class SilentServerError(psycopg.OperationalError):
    """The server has not answered in time. seconds: how long it was waited for."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer for {seconds:.0f} s")
        self.seconds = seconds


class LimitedConnection(psycopg.Connection[Any]):
    """seconds_of_silence: the longest wait for an answer, or for more of it; None for no limit."""

    seconds_of_silence: float | None = SECONDS_OF_SILENCE

    def wait(self, gen: Any, interval: float = _SECONDS_BETWEEN_LOOKS, timeout: float | None = None) -> Any:
        """Every answer is waited for here. A connection whose answer was given up is closed: it could still arrive."""
        limit = self.seconds_of_silence if timeout is None else timeout
        try:
            return waiting.wait(_limit_silence(gen, limit), self.pgconn.socket, interval=interval)
        except (SilentServerError, KeyboardInterrupt):
            self.close()
            raise


def connect(address: str) -> LimitedConnection:
    """Connect, with our limits unless the address, the environment or the server sets others."""
    given = conninfo_to_dict(address)
    if "PGCONNECT_TIMEOUT" in os.environ:
        given["connect_timeout"] = os.environ["PGCONNECT_TIMEOUT"]
    settings: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
    # Statements are not prepared: a connection pooler may send them to different sessions.
    connection = LimitedConnection.connect(
        address,
        autocommit=True,
        prepare_threshold=None,
        # Of several servers the primary: a replica may not have the last claims yet.
        target_session_attrs="read-write",
        **settings,
    )
    try:
        connection.seconds_of_silence = _read_limit(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _read_limit(connection: LimitedConnection) -> float | None:
    """The longest wait that fits the server's `statement_timeout`, whoever set it."""
    query = "SELECT setting::bigint, source FROM pg_settings WHERE name = 'statement_timeout'"
    found = connection.execute(query).fetchone()
    milliseconds, source = found if found is not None else (0, "default")
    if milliseconds:
        return float(milliseconds / 1000 + _GRACE_SECONDS)
    return None if source == "client" else SECONDS_OF_SILENCE


def _limit_silence(steps: Generator[Any, Any, Any], limit: float | None) -> Generator[Any, Any, Any]:
    """The same steps of psycopg's protocol, ended if nothing could be read or written for `limit` seconds."""
    last_ready = time.monotonic()
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if ready:
                last_ready = time.monotonic()
            elif limit is not None and time.monotonic() - last_ready > limit:
                raise SilentServerError(limit)
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value
