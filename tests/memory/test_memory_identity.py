"""A log that changed after a process has read it: restored, replaced, deleted, or opened from another directory."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from smoothcert.errors import InputError, RegionMemoryError
from smoothcert.memory import MemoryKey, RegionMemory, list_digests, open_memory
from smoothcert.memory.decision import Neighbour, find_deepest
from smoothcert.memory.log import Row, compute_entry
from smoothcert.records import Norm

KEY = MemoryKey(
    model="m", sigma_rule="s", noise="gaussian", norm=Norm.L2, preprocessing="p", dimension=2
)  # fmt: skip


def at(x: float, y: float = 0.0) -> np.ndarray:
    return np.array([x, y], dtype=np.float32)


def restore(source: Path, target: Path) -> None:
    """Restore a database with SQLite's backup API while other processes have it open."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def test_a_log_put_back_under_a_process_is_noticed(tmp_path: Path) -> None:
    place, earlier = tmp_path / "m.sqlite", tmp_path / "earlier.sqlite"
    with open_memory(place, KEY) as memory:
        memory.claim(at(0), 0, 1.0)
        restore(place, earlier)
        memory.claim(at(5), 0, 1.0)
        restore(earlier, place)
        # Another process continues from the earlier state and takes the position that this process has used.
        with open_memory(place, KEY) as other:
            assert other.claim(at(10), 1, 3.0).position == 2
        for question in (lambda: memory.lookup(at(10)), lambda: memory.claim(at(11), 0, 3.0)):
            with pytest.raises(RegionMemoryError, match="has changed: claim 2"):
                question()
    with open_memory(place, KEY) as again:
        assert len(again) == 2
        assert again.audit().consistent
        assert again.claim(at(11), 0, 3.0).label == 1


def test_a_log_that_lost_its_end_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    with open_memory(place, KEY) as memory:
        memory.claim(at(0), 0, 1.0)
        memory.claim(at(5), 1, 1.0)
        with closing(sqlite3.connect(place)) as connection, connection:
            connection.execute("DELETE FROM claims WHERE position = 2")
        with pytest.raises(RegionMemoryError, match="claim 2, which this process has read"):
            memory.lookup(at(20))


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_deleted_or_replaced_is_noticed(tmp_path: Path, replaced: bool) -> None:
    place = tmp_path / "m.sqlite"
    with open_memory(place, KEY) as memory:
        memory.claim(at(0), 0, 1.0)
        for part in tmp_path.glob("m.sqlite*"):
            part.unlink()
        if replaced:
            open_memory(place, KEY).close()
        with pytest.raises(RegionMemoryError, match="deleted or replaced while it was in use"):
            memory.claim(at(5), 1, 1.0)
        with pytest.raises(RegionMemoryError, match="deleted or replaced while it was in use"):
            memory.lookup(at(0))


def test_two_memories_of_one_key_are_told_apart(tmp_path: Path) -> None:
    with open_memory(tmp_path / "a.sqlite", KEY) as one, open_memory(tmp_path / "b.sqlite", KEY) as other:
        promises = [memory.claim(at(0), 0, 1.0) for memory in (one, other)]
        assert promises[0].memory == one.identity != other.identity == promises[1].memory
        assert one.missing(promises) == [promises[1]]
        assert other.missing(promises) == [promises[0]]


def test_copies_that_went_different_ways_are_told_apart(tmp_path: Path) -> None:
    with open_memory(tmp_path / "a.sqlite", KEY) as one:
        shared = one.claim(at(0), 0, 1.0)
        restore(tmp_path / "a.sqlite", tmp_path / "b.sqlite")
        with open_memory(tmp_path / "b.sqlite", KEY) as copy:
            mine, theirs = one.claim(at(9), 0, 1.0), copy.claim(at(9), 1, 1.0)
            assert mine.position == theirs.position
            assert one.missing([shared, mine, theirs]) == [theirs]
            assert copy.missing([shared, mine, theirs]) == [mine]


def test_a_relative_place_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_memory("m.sqlite", KEY) as memory:
        memory.claim(at(0), 0, 1.0)
        monkeypatch.chdir(tmp_path / "elsewhere")
        if (child := os.fork()) == 0:  # forking closes connections; both sides connect again
            os._exit(0 if memory.claim(at(5), 1, 1.0).position == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert memory.claim(at(9), 1, 1.0).position == 3
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_name_that_sqlite_takes_for_no_file_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_memory(":memory:", KEY) as memory:
        memory.claim(at(0), 0, 1.0)
    with open_memory(":memory:", KEY) as memory:
        assert len(memory) == 1


@pytest.mark.parametrize(
    "place", ["mysql://u:geheim@h/d", "postgresql+psycopg://u:geheim@h/d", "host=h password=geheim"]
)
def test_an_address_of_another_kind_is_refused_and_not_repeated(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="not supported for a memory") as caught:
        open_memory(place, KEY)
    assert "geheim" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_wait_for_the_lock_leaves_no_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt arrives when BEGIN returns with the lock held."""
    with open_memory(tmp_path / "m.sqlite", KEY) as memory:
        memory.claim(at(0), 0, 1.0)
        real = memory._log._connection  # type: ignore[attr-defined]

        class Interrupted:
            in_transaction = property(lambda self: real.in_transaction)

            def execute(self, statement: str, *rest: object) -> object:
                result = real.execute(statement, *rest)
                if statement.startswith("BEGIN"):
                    raise KeyboardInterrupt
                return result

        monkeypatch.setattr(memory._log, "_connection", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            memory.claim(at(5), 1, 1.0)
        assert not real.in_transaction
        monkeypatch.setattr(memory._log, "_connection", real)
        assert memory.claim(at(5), 1, 1.0).position == 2


def changed(memory: RegionMemory, place: Path, statement: str) -> tuple[str, ...]:
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute(statement)
    return memory.audit().problems


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE claims SET radius = radius / 2 WHERE position = 2",
        "UPDATE claims SET claimed_at = '2020-01-01T00:00:00+00:00' WHERE position = 2",
        "UPDATE claims SET asked_radius = 9.0 WHERE position = 2",
    ],
)
def test_changes_that_break_no_rule_break_the_chain(tmp_path: Path, statement: str) -> None:
    place = tmp_path / "m.sqlite"
    with open_memory(place, KEY) as memory:
        for x in (0, 5, 10):
            memory.claim(at(x), 0, 1.0)
        assert memory.audit().consistent
        problems = changed(memory, place, statement)
    assert any("claim 2 is not what was written" in problem for problem in problems)


def test_an_entry_depends_on_everything_before_it() -> None:
    row = Row(1, 0, 1.0, 0, 1.0, "WHOLE", "2026-01-01T00:00:00+00:00", "", b"\0" * 8)
    entries = {
        compute_entry("a", row),
        compute_entry("b", row),
        compute_entry("a", row._replace(label=1)),
        compute_entry("a", row._replace(radius=2.0)),
        compute_entry("a", row._replace(centre=b"\1" * 8)),
    }
    assert len(entries) == 5
    assert compute_entry("a", row._replace(entry="whatever")) == compute_entry("a", row)


def test_equal_balls_are_measured_once() -> None:
    """The earliest one is returned."""
    balls = [Neighbour(position, 0, 1.0, at(0)) for position in (9, 4, 7)]
    found = find_deepest(at(0.5), balls, norm=Norm.L2)
    assert found is not None
    assert (found.position, found.remaining) == (4, 0.5)


def test_an_audit_of_the_largest_numbers_there_are(tmp_path: Path) -> None:
    key = MemoryKey(model="m", sigma_rule="s", noise="gaussian", norm=Norm.L2, preprocessing="p", dimension=200)
    with open_memory(tmp_path / "m.sqlite", key) as memory:
        for sign in (1, -1, 1, -1):
            memory.claim(np.full(200, sign * 3.3e38, dtype=np.float32), 0 if sign > 0 else 1, 1.0)
        assert memory.audit().consistent


def test_the_digests_in_a_database(tmp_path: Path) -> None:
    with open_memory(tmp_path / "m.sqlite", KEY):
        pass
    assert list_digests(tmp_path / "m.sqlite") == (KEY.digest,)
