"""Databases for the tests of the memory: a SQLite file, and a PostgreSQL server started by the test run itself."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postgres_server import NoServerError, running_server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL database. If none can be started, CI fails; elsewhere the tests are skipped."""
    try:
        with running_server() as address:
            yield address
    except NoServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The location of a database without memories."""
    if request.param == "sqlite":
        return str(tmp_path / "memory.sqlite")
    new_database: Callable[[], str] = request.getfixturevalue("new_database")
    return new_database()


@pytest.fixture
def new_database(postgres: str) -> Callable[[], str]:
    """A function that creates an empty PostgreSQL database and returns its address."""
    import psycopg

    def make() -> str:
        name = f"fresh{next(_numbers)}"
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return postgres.replace("@/postgres", f"@/{name}")

    return make
