"""Opening, listing, closing, threads, forks, and error messages."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from smoothcert.errors import InputError, MissingExtraError, RegionMemoryError
from smoothcert.memory import MemoryKey, list_memories, open_existing, open_memory, sqlite_log
from smoothcert.memory.claim_log import SCHEMA_VERSION
from smoothcert.memory.postgres_log import hide_secrets
from smoothcert.records import Norm, Settlement

KEY = MemoryKey("model", "sigma", "gaussian", Norm.L2, "none", 4)
OTHER = MemoryKey("another model", "sigma", "uniform", Norm.L1, "none", 4)


def point(*values: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.array([*values, 0, 0, 0, 0][:4], dtype=np.float32)


def test_a_key_is_its_content() -> None:
    assert KEY.digest == MemoryKey.from_json(KEY.to_json()).digest
    assert len({KEY.digest, OTHER.digest, MemoryKey("model", "sigma", "gaussian", Norm.L1, "none", 4).digest}) == 3
    with pytest.raises(InputError, match="dimension 0"):
        MemoryKey("model", "sigma", "gaussian", Norm.L2, "none", 0)


def test_memories_of_one_database_do_not_know_each_other(fresh_location: str) -> None:
    with open_memory(fresh_location, KEY) as memory, open_memory(fresh_location, OTHER) as other:
        assert memory.claim(point(0), 1, 2.0).position == 1
        assert other.claim(point(1), 2, 2.0).position == 1
        assert memory.claim(point(9), 2, 2.5).position == 2
        assert other.lookup(point(9)) is None
        assert memory.claim(point(1), 2, 3.0).settlement is Settlement.OVERRULED
        assert (len(memory), len(other)) == (3, 1)
        assert memory.audit().consistent


def test_what_a_database_holds_is_listed(fresh_location: str) -> None:
    before = datetime.now(UTC)
    with open_memory(fresh_location, KEY) as memory, open_memory(fresh_location, OTHER):
        memory.claim(point(0), 1, 2.0)
        memory.claim(point(9), 2, 2.5)
        memory.claim(point(1), 2, 3.0)
    first, second = list_memories(fresh_location)
    assert (first.key, first.digest, first.claims) == (KEY, KEY.digest, 3)
    assert first.classes == {1: 2, 2: 1}
    assert first.settlements == {Settlement.WHOLE: 2, Settlement.OVERRULED: 1}
    assert first.radii is not None
    assert (first.radii.smallest, first.radii.median, first.radii.largest) == (1.0, 2.0, 2.5)
    assert first.first_claimed is not None
    assert first.last_claimed is not None
    assert before <= first.first_claimed <= first.last_claimed <= datetime.now(UTC)
    assert (second.key, second.claims, second.radii, second.classes) == (OTHER, 0, None, {})
    with open_existing(fresh_location, KEY.digest[:8]) as again:
        claims = list(again.claims())
    assert [claim.position for claim in claims] == [1, 2, 3]
    assert np.array_equal(claims[1].centre, point(9))
    assert (claims[2].asked_label, claims[2].asked_radius, claims[2].label) == (2, 3.0, 1)


def test_an_existing_memory_is_named_by_the_beginning_of_its_digest(fresh_location: str) -> None:
    open_memory(fresh_location, KEY).close()
    with open_existing(fresh_location) as only:
        assert only.key == KEY
    open_memory(fresh_location, OTHER).close()
    with pytest.raises(RegionMemoryError, match=r"there are 2 memories.*digest"):
        open_existing(fresh_location)
    with pytest.raises(RegionMemoryError, match="0 memories begin with 'zz'"):
        open_existing(fresh_location, "zz")


def test_one_process_sees_what_another_claims(fresh_location: str) -> None:
    with open_memory(fresh_location, KEY) as one, open_memory(fresh_location, KEY) as two:
        for number in range(30):
            memory = (one, two)[number % 2]
            assert memory.claim(point(number), number % 3, 0.4).position == number + 1
        assert one.lookup(point(29)) == two.lookup(point(29))
        overruled = one.claim(point(29.125), 0, 1.0)
        assert (overruled.label, overruled.settlement) == (2, Settlement.OVERRULED)
        assert two.claim(point(29.125), 0, 1.0) == overruled


def test_directions_are_fitted_again_as_a_memory_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from smoothcert.memory import regions

    monkeypatch.setattr(regions, "_FIRST_FIT", 10)
    monkeypatch.setattr(regions, "_SECONDS_BETWEEN_LOOKS", 0.0)
    with open_memory(tmp_path / "m.sqlite", KEY) as memory:
        seen = set()
        for number in range(200):
            memory.claim(point(number), number % 2, 0.25)
            seen.add(memory._fitted_at)
        # The size is checked before each claim.
        assert sorted(seen) == [0, 10, 40, 160]
        assert all(memory.lookup(point(number)) is not None for number in range(200))


@pytest.mark.parametrize(
    ("x", "label", "radius", "sentence"),
    [
        (np.zeros(5, dtype=np.float32), 0, 1.0, "inputs of 4 numbers"),
        (np.full(4, np.nan, dtype=np.float32), 0, 1.0, "NaN"),
        (np.array([0, 0, 0, np.inf], dtype=np.float32), 0, 1.0, "infinite"),
        (np.array([0, 0, 0, 1e39]), 0, 1.0, "too large"),
        (np.array([0, 0, 0, 0.1]), 0, 1.0, "float32 cannot hold"),
        (np.array(["a", "b", "c", "d"]), 0, 1.0, "numbers"),
        (np.zeros(4), -1, 1.0, "whole number from 0"),
        (np.zeros(4), 1.5, 1.0, "whole number from 0"),
        (np.zeros(4), 0, -1.0, "finite number from 0"),
        (np.zeros(4), 0, float("nan"), "finite number from 0"),
        (np.zeros(4), 0, float("inf"), "finite number from 0"),
    ],
)
def test_what_cannot_be_claimed_is_refused(tmp_path: Path, x: object, label: int, radius: float, sentence: str) -> None:
    with open_memory(tmp_path / "m.sqlite", KEY) as memory:
        with pytest.raises(InputError, match=sentence):
            memory.claim(x, label, radius)
        assert len(memory) == 0


def test_any_shape_and_any_exact_type_is_the_same_input(tmp_path: Path) -> None:
    with open_memory(tmp_path / "m.sqlite", KEY) as memory:
        first = memory.claim(np.array([[0.5, 0], [0, 2]], dtype=np.float32), np.int64(1), np.float32(1.5))
        assert memory.claim(np.array([0.5, 0, 0, 2]), 1, 1.5) == first
        assert memory.claim(np.array([0.5, 0, 0, 2], dtype=np.float16), 1, 1.5) == first
        promise = memory.lookup([0, 0, 0, 2])
        assert promise is not None
        assert (promise.label, promise.radius) == (1, 1.0)


def test_a_closed_memory_says_so(tmp_path: Path) -> None:
    memory = open_memory(tmp_path / "m.sqlite", KEY)
    memory.close()
    memory.close()
    with pytest.raises(RegionMemoryError, match="was closed"):
        memory.lookup(point(0))


def test_threads_share_a_memory(fresh_location: str) -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(4, 40, 4)).astype(np.float32)
    with open_memory(fresh_location, KEY) as memory:
        problems: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for x in points[number]:
                    promise = memory.claim(x, number, 0.5)
                    found = memory.lookup(x)
                    assert found is not None
                    assert found.label == promise.label
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert len(memory) == 160
        assert memory.audit().consistent


FORKING = """
import os, sys
import numpy as np
from smoothcert.memory import MemoryKey, open_memory
from smoothcert.records import Norm

memory = open_memory(sys.argv[1], MemoryKey("model", "sigma", "gaussian", Norm.L2, "none", 4))
generator = np.random.default_rng(0)
claim = lambda: memory.claim(generator.normal(size=4).astype("f4"), int(generator.integers(3)), 0.3)
for _ in range(5):
    claim()
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        generator = np.random.default_rng(number + 1)
        for _ in range(20):
            claim()
        os._exit(0)
    children.append(child)
for _ in range(20):
    claim()
# The parent closes while children may still be writing: their claims must not be lost.
memory.close()
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_memory_survives_forks(fresh_location: str) -> None:
    subprocess.run([sys.executable, "-c", FORKING, fresh_location], check=True, timeout=120)
    with open_existing(fresh_location) as memory:
        assert len(memory) == 85
        assert memory.audit().consistent


def test_a_typing_error_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(RegionMemoryError, match="does not exist"):
        open_existing(tmp_path / "memroy.sqlite")
    with pytest.raises(RegionMemoryError, match="does not exist"):
        list_memories(tmp_path / "memroy.sqlite")
    with pytest.raises(RegionMemoryError, match=r"directory .* does not exist"):
        open_memory(tmp_path / "nowhere" / "memory.sqlite", KEY)
    with pytest.raises(RegionMemoryError, match="is a directory"):
        open_memory(tmp_path, KEY)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_memory_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_bytes(b"not a database at all, but long enough to be mistaken for one\n" * 40)
    before = text.read_bytes()
    with pytest.raises(RegionMemoryError, match="not a SQLite database"):
        open_memory(text, KEY)
    assert text.read_bytes() == before
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE points (idx INTEGER)")
    before = other.read_bytes()
    with pytest.raises(RegionMemoryError, match="database of something else"):
        open_memory(other, KEY)
    assert other.read_bytes() == before


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    open_memory(path, KEY).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(RegionMemoryError, match="memory of version 99"):
        open_existing(path)


def test_a_locked_memory_is_waited_for_and_then_said_to_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_SECONDS_TO_WAIT", 0.2)
    path = tmp_path / "m.sqlite"
    with open_memory(path, KEY) as memory, closing(sqlite3.connect(path, isolation_level=None)) as other:
        memory.claim(point(0), 0, 1.0)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RegionMemoryError, match="locked by another process"):
            memory.claim(point(5), 0, 1.0)
        # Reading does not wait for writers.
        assert memory.lookup(point(0)) is not None
        other.execute("ROLLBACK")
        assert memory.claim(point(5), 0, 1.0).position == 2


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """SQLite's limit on pages simulates a full disk."""
    key = MemoryKey("model", "sigma", "gaussian", Norm.L2, "none", 3000)
    generator = np.random.default_rng(0)
    acknowledged = []
    with open_memory(tmp_path / "m.sqlite", key) as memory:
        memory._log._open().execute("PRAGMA max_page_count = 40")  # type: ignore[attr-defined]

        def claim_until_it_fails() -> None:
            for _ in range(100):
                acknowledged.append(memory.claim(generator.normal(size=3000).astype("f4"), 0, 1.0))

        with pytest.raises(RegionMemoryError, match="make room on the disk"):
            claim_until_it_fails()
        assert len(memory) == len(acknowledged) > 10
        memory._log._open().execute("PRAGMA max_page_count = 4000")  # type: ignore[attr-defined]
        assert memory.claim(generator.normal(size=3000).astype("f4"), 0, 1.0).position == len(acknowledged) + 1
    with open_existing(tmp_path / "m.sqlite") as again:
        assert [claim.position for claim in again.claims()] == list(range(1, len(acknowledged) + 2))


def test_a_place_that_cannot_be_written_is_said_to_be_so(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        place = Path("/proc/memory.sqlite")
    else:
        tmp_path.chmod(0o500)
        place = tmp_path / "m.sqlite"
    with pytest.raises(RegionMemoryError, match="cannot be written"):
        open_memory(place, KEY)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:s3cret@host:5433/db", "postgresql://ann@host:5433/db"),
        ("postgres://ann@host/db", "postgres://ann@host/db"),
        ("postgresql://host/db?user=ann&password=s3cret", "postgresql://host/db?user=ann"),
        ("postgresql://ann:s3cr%40et@/db?host=/run/pg", "postgresql://ann@/db?host=/run/pg"),
        ("postgresql://ann:p@ss:w@host/db", "postgresql://ann@host/db"),
        ("postgresql://[ann:s3cret@host/db", "postgresql://[ann@host/db"),
        ("postgresql://ann:s3/cret@host/db", "postgresql://ann@host/db"),
        ("postgresql://ann:s3?cret#@host/db", "postgresql://ann@host/db"),
        ("postgresql://ann:s3cret", "postgresql://ann"),
        ("postgresql://h1:1,h2:2/db?sslmode=require&sslpassword=s3cret", "postgresql://h1:1,h2:2/db?sslmode=require"),
    ],
)
def test_no_password_is_ever_shown(address: str, shown: str) -> None:
    assert hide_secrets(address) == shown


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s3cret@127.0.0.1:1/db",
        "postgresql://ann:s3cret@127.0.0.1:s3cret/db",
        "postgresql://ann@127.0.0.1:1/db?password=s3cret",
        "postgresql://ann:s3cret@127.0.0.1/db?nonsense=s3cret",
        "postgresql://ann:s3cret@[127.0.0.1/db",
        "postgresql://ann:s3cret%zz@127.0.0.1:1/db",
        "postgresql://ann:a/s3cret@127.0.0.1:1/db",
        "postgresql://ann:s3cret/a@127.0.0.1:1/db",
        "postgresql://ann:s3cret#a@127.0.0.1:1/db",
        "postgresql://127.0.0.1:s3cret/db",
    ],
)
def test_a_server_that_cannot_be_reached_is_said_to_be_so(address: str) -> None:
    with pytest.raises(RegionMemoryError, match="cannot be reached") as caught:
        open_memory(address, KEY)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_without_the_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'smoothcert\[postgres\]'"):
        open_memory("postgresql://ann@127.0.0.1:1/db", KEY)


class TestPostgres:
    def test_a_database_without_memories_stays_so(self, new_database) -> None:  # type: ignore[no-untyped-def]
        address = new_database()
        for attempt in (open_existing, list_memories):
            with pytest.raises(RegionMemoryError, match="holds no memory"):
                attempt(address)

    def test_another_version_is_refused(self, new_database) -> None:  # type: ignore[no-untyped-def]
        import psycopg

        address = new_database()
        open_memory(address, KEY).close()
        with psycopg.connect(address) as connection:
            connection.execute("UPDATE smoothcert_memory_version SET version = 99")
        with pytest.raises(RegionMemoryError, match="memory of version 99"):
            open_memory(address, KEY)

    def test_a_lost_connection_is_made_again(self, new_database) -> None:  # type: ignore[no-untyped-def]
        import psycopg

        address = new_database()
        with open_memory(address, KEY) as memory:
            first = memory.claim(point(0), 0, 1.0)
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            with pytest.raises(RegionMemoryError, match="cannot be used"):
                memory.claim(point(5), 0, 1.0)
            assert memory.claim(point(0), 0, 1.0) == first
            assert memory.claim(point(5), 0, 1.0).position == 2

    def test_nan_in_the_database_is_found(self, new_database) -> None:  # type: ignore[no-untyped-def]
        import psycopg

        address = new_database()
        with open_memory(address, KEY) as memory:
            memory.claim(point(0), 0, 1.0)
            with psycopg.connect(address) as connection:
                connection.execute("UPDATE smoothcert_claims SET radius = 'NaN'")
            assert not memory.audit().consistent
        with pytest.raises(RegionMemoryError, match="damaged"):
            open_memory(address, KEY)

    def test_both_databases_have_a_version(self) -> None:
        assert SCHEMA_VERSION == 2
