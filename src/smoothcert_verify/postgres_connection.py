"""A connection to PostgreSQL for reading, which ends if the server says nothing for too long, and on Ctrl-C."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import waiting
from psycopg.conninfo import conninfo_to_dict

_SECONDS_TO_CONNECT = 10
SECONDS_OF_SILENCE = 60.0
"""How long an answer may take, if no `statement_timeout` is set."""
_GRACE_SECONDS = 10.0


class SilentServerError(psycopg.OperationalError):
    """The server has not answered in time."""


class ReadingConnection(psycopg.Connection[Any]):
    """seconds_of_silence: the longest wait for an answer, or for more of it; None for no limit."""

    seconds_of_silence: float | None = SECONDS_OF_SILENCE

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        limit = self.seconds_of_silence if timeout is None else timeout
        try:
            return waiting.wait(_limit_silence(gen, limit), self.pgconn.socket, interval=interval)
        except (SilentServerError, KeyboardInterrupt):
            self.close()  # the answer could still arrive
            raise


def connect(address: str) -> ReadingConnection:
    """Connect for one transaction that reads."""
    settings: dict[str, Any] = {}
    if "connect_timeout" not in conninfo_to_dict(address) and "PGCONNECT_TIMEOUT" not in os.environ:
        settings["connect_timeout"] = _SECONDS_TO_CONNECT
    connection = ReadingConnection.connect(address, autocommit=True, prepare_threshold=None, **settings)
    try:
        query = "SELECT setting::bigint, source FROM pg_settings WHERE name = 'statement_timeout'"
        milliseconds, source = connection.execute(query).fetchone() or (0, "default")
        if milliseconds:
            connection.seconds_of_silence = milliseconds / 1000 + _GRACE_SECONDS
        elif source == "client":
            connection.seconds_of_silence = None
        connection.autocommit = False
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
    except BaseException:
        connection.close()
        raise
    return connection


def name_place(address: str) -> str:
    """Server and database for a message. Anything that could be a part of a password is left out."""
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(address).items()}
    except psycopg.Error:
        return "the PostgreSQL server"
    host, port, database = parts.get("host", ""), parts.get("port", ""), parts.get("dbname", "")
    if not (re.fullmatch(r"[\w.,:/-]*", host) and re.fullmatch(r"[\d,]*", port) and re.fullmatch(r"[\w-]*", database)):
        return "the PostgreSQL server"
    place = f" {host}{':' + port if port else ''}" if host else ""
    return f"the PostgreSQL server{place}, database {database or 'by default'},"


def _limit_silence(steps: Generator[Any, Any, Any], limit: float | None) -> Generator[Any, Any, Any]:
    last_ready = time.monotonic()
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if ready:
                last_ready = time.monotonic()
            elif limit is not None and time.monotonic() - last_ready > limit:
                raise SilentServerError(f"no answer for {limit:.0f} s")
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value
