"""A damaged memory raises an error that says what to do. It is never taken for an empty one."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cli_runner import invoke
from damaged_memories import CLAIMS, EARLIER_INSERT, KEY, centre, earlier_memory, fill, filled_memory, stored_claim
from memory_models import plane_points
from smoothcert.cli.main import app
from smoothcert.errors import DamagedMemoryError, RegionMemoryError
from smoothcert.memory import MemoryKey, list_digests, list_memories, open_existing, open_memory, recover_memory
from smoothcert.memory.log import encode
from smoothcert.records import Norm

LONG = MemoryKey("model", "sigma", "gaussian", Norm.L2, "none", 3000)
OTHER = MemoryKey("another model", "sigma", "gaussian", Norm.L2, "none", 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight claims of four numbers. Must not be changed."""
    return filled_memory(tmp_path_factory.mktemp("whole") / "memory.sqlite")


@pytest.fixture
def memory(whole: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copy(whole, tmp_path / "memory.sqlite"))


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0


def refuse_everywhere(path: Path, key: MemoryKey = KEY) -> None:
    """Every way to open it raises an error that says what to do. The file is not changed."""
    before = path.read_bytes()
    for attempt in (lambda: open_memory(path, key), lambda: open_existing(path), lambda: open_existing(path, "")):
        with pytest.raises(RegionMemoryError, match=r"(?i)restore") as caught:
            attempt().close()
        assert "memory recover" in str(caught.value) or path.stat().st_size == 0
    assert audit_fails(path)
    assert path.read_bytes() == before


def audit_fails(path: Path) -> bool:
    """Whether `memory audit` raises an error, or exits with 1 and lists the problems."""
    try:
        result = invoke(app, "memory", "audit", path)
    except RegionMemoryError as error:
        return "restore a backup" in str(error).lower()
    return result.exit_code == 1 and "NOT consistent" in result.stdout and "restore" in result.stdout


class TestTheReportedCase:
    """Eight claims, truncated by a thousand bytes."""

    @pytest.fixture
    def cut(self, memory: Path) -> Path:
        os.truncate(memory, memory.stat().st_size - 1000)
        return memory

    def test_nothing_opens_it(self, cut: Path) -> None:
        refuse_everywhere(cut)

    def test_no_lookup_and_no_claim(self, cut: Path) -> None:
        with pytest.raises(DamagedMemoryError, match="memory recover"), open_memory(cut, KEY) as memory:
            assert memory.lookup(centre(3)) is not None
        with pytest.raises(DamagedMemoryError, match="memory recover"), open_memory(cut, KEY) as memory:
            memory.claim(centre(3), 2, 1.0)

    def test_it_is_not_listed_as_something_else(self, cut: Path) -> None:
        for attempt in (list_digests, list_memories):
            with pytest.raises(DamagedMemoryError, match="damaged"):
                attempt(cut)
        for verb in (("stats",), ("export", "-o", cut.parent / "log.csv")):
            with pytest.raises(DamagedMemoryError, match="damaged"):
                invoke(app, "memory", verb[0], cut, *verb[1:])


def test_certify_refuses_a_damaged_memory(tmp_path: Path) -> None:
    """Also for a new run, which would otherwise start with an empty memory."""
    data, kept = plane_points(tmp_path / "points.npz", count=8), tmp_path / "memory.sqlite"
    settings = (
        "certify", "--model", "memory_models:in_unit_ball", "--num-classes", 2, "--data", data, "--input-range", "any",
        "--sigma", 0.5, "--sigma-rule", "optimised", "--search", "grid:points=3,noises=8,check=8",
        "--sigma-range", "0.1,2", "--n0", 20, "--n", 100, "--seed", 1, "--memory", kept,
    )  # fmt: skip
    invoke(app, *settings, "--out", tmp_path / "first")
    os.truncate(kept, kept.stat().st_size - 1000)
    for out in ("first", "second"):
        with pytest.raises(DamagedMemoryError, match="memory recover"):
            invoke(app, *settings, "--out", tmp_path / out)


def run_every_verb(path: Path) -> set[str]:
    """Run the verbs on a damaged memory: they end normally or with a RegionMemoryError. Returns those that failed."""
    failed, messages = set(), []
    (path.parent / "recovered.sqlite").unlink(missing_ok=True)
    for verb in (
        ("audit", path),
        ("stats", path),
        ("stats", path, "--json"),
        ("export", path, "-o", path.parent / "claims.csv", "--force"),
        ("export", path, "-o", path.parent / "claims.npz", "--force"),
        ("recover", path, path.parent / "recovered.sqlite"),
    ):
        try:
            if invoke(app, "memory", *verb).exit_code:
                failed.add(str(verb[0]))
        except RegionMemoryError as error:
            messages.append(str(error))
            failed.add(str(verb[0]))
    assert all(str(path) in message for message in messages), messages
    return failed


def test_no_verb_ends_with_a_traceback_on_zeroed_pages(memory: Path) -> None:
    content = memory.read_bytes()
    for start in range(0, len(content), 16384):
        memory.write_bytes(content[:start] + bytes(16384) + content[start + 16384 :])
        assert run_every_verb(memory) >= {"audit", "stats", "export"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE heads SET claims = -5",
        f"UPDATE heads SET claims = {2**62}",
        "UPDATE claims SET radius = 9e999 WHERE position = 3",
        "UPDATE claims SET label = -1 WHERE position = 3",
    ],
)
def test_no_verb_ends_with_a_traceback_on_impossible_numbers(memory: Path, statement: str) -> None:
    """SQLite finds nothing wrong with them."""
    change(memory, statement)
    assert run_every_verb(memory) >= {"audit", "stats", "export"}


def test_no_verb_ends_with_a_traceback_on_an_endless_key(memory: Path) -> None:
    key = "[" * 100_000
    change(memory, f"UPDATE memories SET key = '{key}'", f"UPDATE heads SET key = '{key}'")
    assert run_every_verb(memory) == {"audit", "stats", "export", "recover"}


@pytest.mark.parametrize("key", [KEY, LONG], ids=["short", "long"])
def test_every_truncation_is_refused(tmp_path: Path, key: MemoryKey) -> None:
    """Long centres fill whole pages, so the ends of pages are unused. Truncating these is detected, too."""
    path = filled_memory(tmp_path / "memory.sqlite", key)
    content = path.read_bytes()
    sizes = [*range(0, len(content), 509), len(content) - 1, len(content) - 16384, 100, 99, 16]
    for size in sizes:
        path.write_bytes(content[:size])
        for attempt in (lambda: open_memory(path, key), lambda: open_existing(path)):
            with pytest.raises(RegionMemoryError, match=r"(?i)restore"):
                attempt()
        assert path.read_bytes() == content[:size]
    assert len(sizes) > 100


@pytest.mark.parametrize("key", [KEY, LONG], ids=["short", "long"])
@pytest.mark.parametrize("unit", [4096, 512])
def test_zeroed_pages_lose_nothing_in_silence(tmp_path: Path, key: MemoryKey, unit: int) -> None:
    """Either an error, or nothing was lost, because parts of a page are unused."""
    path = filled_memory(tmp_path / "memory.sqlite", key)
    content = path.read_bytes()
    with open_existing(path) as memory:
        expected = [(claim.position, claim.entry) for claim in memory.claims()]
    refused = []
    for start in range(0, len(content), unit):
        zeroed = content[:start] + bytes(unit) + content[start + unit :]
        if zeroed == content:
            continue
        path.write_bytes(zeroed)
        try:
            with open_memory(path, key) as memory:
                assert [(claim.position, claim.entry) for claim in memory.claims()] == expected
                assert all(memory.lookup(centre(number, key)) is not None for number in range(1, CLAIMS + 1))
                assert memory.audit().consistent
        except RegionMemoryError as error:
            refused.append(str(error))
    assert len(refused) >= 6
    assert all("restore" in sentence for sentence in refused)


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM claims WHERE position = 8"],
        ["DELETE FROM claims WHERE position = 4"],
        ["DELETE FROM claims WHERE position = 1"],
        ["DELETE FROM claims"],
        ["UPDATE claims SET position = 9 WHERE position = 4"],
        ["UPDATE claims SET position = -1 WHERE position = 3", "UPDATE claims SET position = 3 WHERE position = 5",
         "UPDATE claims SET position = 5 WHERE position = -1"],
        ["UPDATE claims SET entry = (SELECT entry FROM claims WHERE position = 7) WHERE position = 8"],
        ["UPDATE claims SET radius = radius / 2 WHERE position = 2"],
        ["UPDATE claims SET radius = radius * 2, asked_radius = asked_radius * 2 WHERE position = 8"],
        ["UPDATE claims SET label = 1 - label, asked_label = 1 - asked_label WHERE position = 1"],
        ["UPDATE claims SET settlement = 'CUT' WHERE position = 3"],
        ["UPDATE claims SET settlement = x'00' || 'WHOLE' WHERE position = 3"],
        ["UPDATE claims SET claimed_at = '2020-01-01T00:00:00+00:00' WHERE position = 8"],
        ["UPDATE claims SET centre = zeroblob(16) WHERE position = 6"],
        ["UPDATE claims SET centre = x'00' WHERE position = 6"],
        ["UPDATE claims SET memory = 2"],
        ["DELETE FROM memories"],
        ["DELETE FROM heads"],
        ["DELETE FROM memories", "DELETE FROM heads"],
        ["UPDATE memories SET identity = '00'"],
        ["UPDATE heads SET identity = '00'"],
        ["UPDATE memories SET identity = '00'", "UPDATE heads SET identity = '00'"],
        ["UPDATE memories SET key = replace(key, 'gaussian', 'uniform')"],
        ["UPDATE memories SET key = replace(key, 'gaussian', 'uniform')",
         "UPDATE heads SET key = replace(key, 'gaussian', 'uniform')"],
        ["UPDATE heads SET claims = 7"],
        ["UPDATE heads SET claims = 9"],
        ["UPDATE heads SET claims = 0, entry = identity"],
        ["UPDATE heads SET entry = identity"],
        ["UPDATE heads SET claims = 7, entry = (SELECT entry FROM claims WHERE position = 7)"],
        ["DROP TABLE heads"],
        ["DROP TABLE claims"],
        ["DROP TABLE claims", "DROP TABLE memories", "DROP TABLE heads"],
    ],
    ids=lambda statements: statements[0][:60],
)  # fmt: skip
def test_changes_by_sql_are_refused(memory: Path, statements: list[str]) -> None:
    change(memory, *statements)
    refuse_everywhere(memory)


def test_a_memory_of_another_key_does_not_hide_the_damage(memory: Path) -> None:
    """Opening one of several memories also checks that the others exist."""
    with open_memory(memory, OTHER) as other:
        other.claim(centre(1), 0, 1.0)
    change(memory, f"DELETE FROM memories WHERE digest = '{KEY.digest}'")
    for key in (KEY, OTHER):
        with pytest.raises(DamagedMemoryError, match="memory recover"):
            open_memory(memory, key)


def test_two_claims_at_one_position(memory: Path) -> None:
    """A damaged index can cause this."""
    change(memory, "DROP TRIGGER claim_follows_head")
    with closing(sqlite3.connect(memory, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        without = "sql = replace(sql, ',\n    UNIQUE (memory, position)', '')"
        assert connection.execute(f"UPDATE sqlite_master SET {without} WHERE name = 'claims'").rowcount == 1
        connection.execute("DELETE FROM sqlite_master WHERE name = 'sqlite_autoindex_claims_1'")
        connection.execute("PRAGMA writable_schema = RESET")
    with closing(sqlite3.connect(memory, isolation_level=None)) as connection:
        connection.execute("INSERT INTO claims SELECT * FROM claims WHERE position = 8")
        connection.execute("VACUUM")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM claims WHERE position = 8").fetchone() == (2,)
    refuse_everywhere(memory)


def test_a_damaged_index_is_refused(memory: Path) -> None:
    """A row missing from the index, which SQLite's quick check does not detect."""
    with closing(sqlite3.connect(memory, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'claims'").fetchone()
        scratch = "CREATE TABLE scratch (memory INTEGER NOT NULL, position INTEGER NOT NULL)"
        connection.execute("INSERT INTO sqlite_master VALUES ('table', 'scratch', 'scratch', ?, ?)", (root, scratch))
        connection.execute("PRAGMA writable_schema = RESET")
    with closing(sqlite3.connect(memory, isolation_level=None)) as connection:
        connection.execute("DELETE FROM scratch WHERE rowid = 8")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_master WHERE name = 'scratch'")
        connection.execute("PRAGMA writable_schema = RESET")
    with closing(sqlite3.connect(memory)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    with pytest.raises(DamagedMemoryError, match="integrity"):
        open_memory(memory, KEY)


class TestFilesThatAreNone:
    def test_an_empty_file_is_not_a_new_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "memory.sqlite"
        path.touch()
        refuse_everywhere(path)
        assert path.stat().st_size == 0

    def test_an_empty_database_is_not_a_new_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "memory.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM")
        assert path.stat().st_size > 0
        with pytest.raises(RegionMemoryError, match="something else"):
            open_memory(path, KEY)

    def test_something_that_is_not_sqlite(self, tmp_path: Path) -> None:
        path = tmp_path / "memory.sqlite"
        path.write_bytes(os.urandom(40_000))
        with pytest.raises(RegionMemoryError, match=r"not a SQLite database.*restore"):
            open_memory(path, KEY)

    @pytest.mark.parametrize("beside", ["-wal", "-journal"])
    def test_a_lost_file_whose_log_remains(self, memory: Path, beside: str) -> None:
        """SQLite would play the write-ahead log of the old memory into a new file."""
        log = memory.with_name(memory.name + beside)
        log.write_bytes(b"left over")
        memory.unlink()
        with pytest.raises(RegionMemoryError, match=rf"(?i){beside}.*restore"):
            open_memory(memory, KEY)
        assert not memory.exists()
        log.write_bytes(b"")
        with open_memory(memory, KEY) as fresh:
            assert len(fresh) == 0


class TestMoments:
    """Concurrent writers and killed processes are not reported as damage."""

    def test_what_is_in_the_log_beside_the_file_counts(self, memory: Path, tmp_path: Path) -> None:
        """After kill -9 the last claims are only in the write-ahead log."""
        with open_memory(memory, KEY) as opened:
            opened.claim(centre(9), 0, 1.0)
            for part in ("", "-wal"):
                shutil.copy(f"{memory}{part}", tmp_path / f"killed.sqlite{part}")
        with open_memory(tmp_path / "killed.sqlite", KEY) as again:
            assert len(again) == 9
            assert again.lookup(centre(9)) is not None

    def test_a_file_cut_under_its_log(self, memory: Path, tmp_path: Path) -> None:
        with open_memory(memory, KEY) as opened:
            opened.claim(centre(9), 0, 1.0)
            for part in ("", "-wal"):
                shutil.copy(f"{memory}{part}", tmp_path / f"killed.sqlite{part}")
        cut = tmp_path / "killed.sqlite"
        os.truncate(cut, 16384)
        with pytest.raises(DamagedMemoryError, match=r"(?i)restore"):
            open_memory(cut, KEY)

    def test_it_is_opened_while_another_claims(self, fresh_location: str) -> None:
        stop = threading.Event()
        problems: list[BaseException] = []

        def claim_on() -> None:
            try:
                with open_memory(fresh_location, KEY) as memory:
                    number = 0
                    while not stop.is_set() and number < 3000:
                        memory.claim(centre(number := number + 1), number % 3, 1.0)
            except BaseException as error:
                problems.append(error)

        open_memory(fresh_location, KEY).close()
        writer = threading.Thread(target=claim_on)
        writer.start()
        try:
            sizes = []
            for _ in range(40):
                with open_existing(fresh_location) as memory:
                    sizes.append(len(memory))
                    memory.lookup(centre(1))
        finally:
            stop.set()
            writer.join()
        assert problems == []
        assert sizes == sorted(sizes)
        assert sizes[-1] > sizes[0]

    def test_several_processes_make_it_at_once(self, tmp_path: Path) -> None:
        """A file that another process is creating is not reported as empty or damaged."""
        program = (
            "import sys, numpy; from smoothcert.memory import open_memory; from damaged_memories import KEY;"
            "open_memory(sys.argv[1], KEY).claim(numpy.full(4, float(sys.argv[2])), 0, 0.25)"
        )
        paths = os.pathsep.join([str(Path(__file__).parent.parent / "support"), *sys.path])
        for round_number in range(3):
            place = str(tmp_path / f"{round_number}.sqlite")
            workers = [
                subprocess.Popen(
                    [sys.executable, "-c", program, place, str(number)], env={**os.environ, "PYTHONPATH": paths}
                )
                for number in range(5)
            ]
            assert [worker.wait(timeout=120) for worker in workers] == [0] * 5
            with open_existing(place) as memory:
                assert len(memory) == 5
        assert not list(tmp_path.glob("*.part"))

    def test_damage_under_a_process_that_has_it_open(self, memory: Path) -> None:
        with open_memory(memory, KEY) as opened:
            change(memory, "UPDATE heads SET claims = 12")
            for attempt in (lambda: opened.lookup(centre(3)), lambda: opened.claim(centre(3), 2, 1.0)):
                with pytest.raises(DamagedMemoryError, match="memory recover"):
                    attempt()

    def test_what_others_append_is_checked_too(self, memory: Path) -> None:
        with open_memory(memory, KEY) as opened, open_memory(memory, KEY) as other:
            other.claim(centre(9), 0, 1.0)
            change(memory, "UPDATE claims SET radius = 0.5, asked_radius = 0.5 WHERE position = 9")
            with pytest.raises(DamagedMemoryError, match="claim 9 is not what was written"):
                opened.lookup(centre(3))


class TestEarlierVersion:
    """Version 1 had no table of heads. It is refused and not changed; `memory recover` can still read it."""

    @pytest.mark.parametrize(
        "statement",
        [
            "",
            "DELETE FROM claims WHERE position = 4",
            "UPDATE claims SET radius = 0.5 WHERE position = 2",
            "DELETE FROM memories",
            "UPDATE memories SET identity = '00'",
        ],
    )
    def test_it_is_refused_and_not_changed(self, tmp_path: Path, statement: str) -> None:
        path = earlier_memory(tmp_path / "memory.sqlite")
        if statement:
            change(path, statement)
        before = path.read_bytes()
        for attempt in (lambda: open_memory(path, KEY), lambda: open_existing(path)):
            with pytest.raises(RegionMemoryError, match=r"memory of version 1; .* version 2.*memory recover"):
                attempt()
        with pytest.raises(RegionMemoryError, match="version 1"):
            invoke(app, "memory", "audit", path)
        assert path.read_bytes() == before

    def test_its_claims_can_be_recovered(self, tmp_path: Path) -> None:
        path = earlier_memory(tmp_path / "memory.sqlite")
        with closing(sqlite3.connect(path)) as connection:
            before = connection.execute("SELECT * FROM claims ORDER BY position").fetchall()
        recover_memory(path, tmp_path / "new.sqlite")
        with open_memory(tmp_path / "new.sqlite", KEY) as memory:
            assert len(memory) == CLAIMS
            assert memory.lookup(centre(3)) is not None
            assert memory.claim(centre(9), 0, 1.0).position == 9
            assert memory.audit().consistent
        with closing(sqlite3.connect(tmp_path / "new.sqlite")) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (2,)
            assert connection.execute("SELECT * FROM claims ORDER BY position").fetchall()[:CLAIMS] == before

    def test_a_truncated_one_is_refused(self, tmp_path: Path) -> None:
        path = earlier_memory(tmp_path / "memory.sqlite")
        os.truncate(path, path.stat().st_size - 1000)
        with pytest.raises(RegionMemoryError, match="memory recover"):
            open_memory(path, KEY)

    def test_an_earlier_smoothcert_cannot_claim_past_the_head(self, memory: Path) -> None:
        """It knows nothing of heads."""
        with closing(sqlite3.connect(memory, isolation_level=None)) as earlier, open_memory(memory, KEY) as opened:
            (last,) = earlier.execute("SELECT entry FROM claims ORDER BY position DESC LIMIT 1").fetchone()
            row = encode(stored_claim(9), previous=last)
            with pytest.raises(sqlite3.IntegrityError, match="earlier version of smoothcert"):
                earlier.execute(EARLIER_INSERT, (1, *row))
            assert opened.claim(centre(9), 1, 1.0).position == 9


class TestPostgres:
    @pytest.fixture
    def server_memory(self, new_database: Callable[[], str]) -> str:
        address = new_database()
        with open_memory(address, KEY) as memory:
            fill(memory)
        return address

    def change(self, address: str, *statements: str) -> None:
        import psycopg

        with psycopg.connect(address) as connection:
            # Bypass triggers and foreign keys, as the owner of a server can. A partly restored backup looks the same.
            connection.execute("SET session_replication_role = replica")
            for statement in statements:
                connection.execute(statement)

    @pytest.mark.parametrize(
        "statements",
        [
            ["DELETE FROM smoothcert_claims WHERE position = 8"],
            ["DELETE FROM smoothcert_claims WHERE position = 4"],
            ["DELETE FROM smoothcert_claims"],
            ["UPDATE smoothcert_claims SET radius = radius / 2 WHERE position = 2"],
            ["UPDATE smoothcert_claims SET radius = 'NaN' WHERE position = 2"],
            ["UPDATE smoothcert_claims SET centre = '\\x00' WHERE position = 2"],
            ["UPDATE smoothcert_claims SET position = 9 WHERE position = 8"],
            ["DELETE FROM smoothcert_memories"],
            ["DELETE FROM smoothcert_heads"],
            ["DELETE FROM smoothcert_memories", "DELETE FROM smoothcert_heads"],
            ["UPDATE smoothcert_heads SET claims = 7"],
            ["UPDATE smoothcert_heads SET claims = 9"],
            ["UPDATE smoothcert_heads SET claims = 0, entry = identity"],
            ["UPDATE smoothcert_memories SET identity = '00'"],
            ["DROP TABLE smoothcert_heads"],
            ["DROP TABLE smoothcert_claims"],
            ["DROP TABLE smoothcert_memory_version"],
            ["DELETE FROM smoothcert_memory_version"],
        ],
        ids=lambda statements: statements[0][:60],
    )
    def test_changes_by_sql_are_refused(self, server_memory: str, statements: list[str]) -> None:
        self.change(server_memory, *statements)
        for attempt in (lambda: open_memory(server_memory, KEY), lambda: open_existing(server_memory)):
            with pytest.raises(DamagedMemoryError, match=r"restore.*memory recover"):
                attempt()
        assert audit_fails(server_memory)  # type: ignore[arg-type]

    def test_damage_under_a_process_that_has_it_open(self, server_memory: str) -> None:
        with open_memory(server_memory, KEY) as opened:
            self.change(server_memory, "UPDATE smoothcert_heads SET claims = 12")
            for attempt in (lambda: opened.lookup(centre(3)), lambda: opened.claim(centre(3), 2, 1.0)):
                with pytest.raises(DamagedMemoryError, match="memory recover"):
                    attempt()

    def test_an_earlier_version_is_refused_and_recovered(self, server_memory: str, tmp_path: Path) -> None:
        self.change(
            server_memory,
            "DROP TRIGGER smoothcert_claim_follows_head ON smoothcert_claims",
            "DROP FUNCTION smoothcert_claim_follows_head",
            "DROP TABLE smoothcert_heads",
            "UPDATE smoothcert_memory_version SET version = 1",
        )
        with pytest.raises(RegionMemoryError, match=r"memory of version 1; .* version 2.*memory recover"):
            open_memory(server_memory, KEY)
        recover_memory(server_memory, tmp_path / "new.sqlite")
        with open_memory(tmp_path / "new.sqlite", KEY) as memory:
            assert len(memory) == CLAIMS
            assert memory.claim(centre(9), 0, 1.0).position == 9

    def test_an_earlier_smoothcert_that_still_runs_cannot_claim_past_the_head(self, server_memory: str) -> None:
        import psycopg

        with open_memory(server_memory, KEY) as memory:
            row = encode(stored_claim(9), previous=list(memory.claims())[-1].entry)
            places = ",".join(["%s"] * 9)
            with psycopg.connect(server_memory) as earlier, pytest.raises(psycopg.Error, match="earlier version"):
                earlier.execute(f"INSERT INTO smoothcert_claims VALUES (1, {places})", row)
            assert memory.claim(centre(9), 1, 1.0).position == 9


def test_the_centre_of_a_promise_is_not_found_in_nothing(memory: Path) -> None:
    """A memory that was complete when it was opened answers all lookups."""
    with open_memory(memory, KEY) as opened:
        for number in range(1, CLAIMS + 1):
            found = opened.lookup(centre(number))
            assert found is not None
            assert np.isclose(found.radius, 1.0 + number / 16)
