"""Recovery keeps the provably intact part of a damaged memory and reports what is lost."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cli_runner import invoke, smoothcert
from damaged_memories import CLAIMS, KEY, centre, earlier_memory, fill, filled_memory
from smoothcert.cli.main import app
from smoothcert.errors import RegionMemoryError
from smoothcert.memory import MemoryKey, Recovered, open_existing, open_memory, recover_memory
from smoothcert.records import Norm, Settlement

LONG = MemoryKey("model", "sigma", "gaussian", Norm.L2, "none", 3000)
OTHER = MemoryKey("another model", "sigma", "gaussian", Norm.L2, "none", 4)


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return filled_memory(tmp_path / "memory.sqlite")


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0


def entries(place: str | Path, digest: str = "") -> list[str]:
    with open_existing(place, digest) as memory:
        return [claim.entry for claim in memory.claims()]


@pytest.mark.parametrize(
    ("statements", "kept", "lost"),
    [
        (["DELETE FROM claims WHERE position = 8"], 7, 1),
        (["DELETE FROM claims WHERE position = 4"], 3, 5),
        (["UPDATE claims SET radius = 0.5 WHERE position = 6"], 5, 3),
        (["UPDATE claims SET settlement = CAST(x'ff' AS TEXT) WHERE position = 6"], 5, 3),
        (["UPDATE claims SET position = -1 WHERE position = 3", "UPDATE claims SET position = 3 WHERE position = 5",
          "UPDATE claims SET position = 5 WHERE position = -1"], 2, 6),
        (["DELETE FROM memories"], 8, 0),
        (["DELETE FROM heads"], 8, 0),
        (["UPDATE memories SET identity = '00'"], 8, 0),
        (["UPDATE memories SET key = '{}'"], 8, 0),
        (["UPDATE heads SET claims = 12"], 8, 4),
        (["UPDATE heads SET claims = 3"], 8, 0),
        (["DROP TABLE heads"], 8, 0),
        (["DROP TABLE memories"], 8, 0),
    ],
    ids=lambda given: given[0][:60] if isinstance(given, list) else str(given),
)  # fmt: skip
def test_the_longest_intact_beginning_is_kept(
    memory: Path, tmp_path: Path, statements: list[str], kept: int, lost: int
) -> None:
    whole = entries(memory)
    change(memory, *statements)
    before, new = memory.read_bytes(), tmp_path / "new.sqlite"
    (found,) = recover_memory(memory, new)
    assert found == Recovered(
        KEY.digest, kept, lost, head_known="heads" not in statements[0] or "UPDATE" in statements[0]
    )
    assert memory.read_bytes() == before
    assert entries(new) == whole[:kept]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory.sqlite", "new.sqlite"]
    with open_memory(new, KEY) as recovered:
        assert recovered.audit().consistent
        assert all(recovered.lookup(centre(number)) is not None for number in range(1, kept + 1))
        assert all(recovered.lookup(centre(number)) is None for number in range(kept + 1, CLAIMS + 1))
        assert recovered.claim(centre(20), 0, 1.0).position == kept + 1


@pytest.mark.parametrize("key", [KEY, LONG], ids=["short", "long"])
def test_a_file_cut_anywhere(tmp_path: Path, key: MemoryKey) -> None:
    """Exactly the intact prefix of the claims is recovered, and lost claims at the end are counted."""
    old = filled_memory(tmp_path / "memory.sqlite", key)
    content, whole = old.read_bytes(), entries(old)
    kept = {}
    for size in [*range(0, len(content), 4091), len(content) - 1000, len(content) - 1]:
        old.write_bytes(content[:size])
        new = tmp_path / f"new{size}.sqlite"
        try:
            (found,) = recover_memory(old, new)
        except RegionMemoryError as error:
            assert "estore a backup" in str(error)  # noqa: PT017 (the other outcome is as good)
            assert not new.exists()
            continue
        kept[size] = found.kept
        assert entries(new) == whole[: found.kept]
        assert found.kept + found.lost == CLAIMS or not found.head_known
        new.unlink()
    assert kept[len(content) - 1] == CLAIMS or key is LONG
    assert len(kept) >= 3
    if key is LONG:
        assert set(kept.values()) & set(range(1, CLAIMS))
    assert [path.name for path in tmp_path.iterdir()] == ["memory.sqlite"]


def test_zeroed_pages(tmp_path: Path) -> None:
    """Zero one page of centres after the other: the claims before it are kept."""
    old = filled_memory(tmp_path / "memory.sqlite", LONG)
    content, whole = old.read_bytes(), entries(old)
    kept = []
    for start in range(16384, len(content), 16384):
        old.write_bytes(content[:start] + bytes(16384) + content[start + 16384 :])
        (tmp_path / "new.sqlite").unlink(missing_ok=True)
        try:
            (found,) = recover_memory(old, tmp_path / "new.sqlite")
        except RegionMemoryError:
            continue
        assert entries(tmp_path / "new.sqlite") == whole[: found.kept]
        kept.append(found.kept)
    assert {1, 3, 7} <= set(kept)


def test_two_claims_at_one_position(memory: Path, tmp_path: Path) -> None:
    """The claim that continues the chain is kept, in any order of the rows."""
    whole = entries(memory)
    with closing(sqlite3.connect(memory, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER claim_follows_head")
        connection.execute("CREATE TABLE doubled AS SELECT * FROM claims WHERE position = 2")
        connection.execute("UPDATE doubled SET label = 9")
        connection.execute("INSERT INTO doubled SELECT * FROM claims ORDER BY position DESC")
        connection.execute("DROP TABLE claims")
        connection.execute("ALTER TABLE doubled RENAME TO claims")
    (found,) = recover_memory(memory, tmp_path / "new.sqlite")
    assert (found.kept, found.lost) == (8, 0)
    assert entries(tmp_path / "new.sqlite") == whole


def test_what_is_only_in_the_log_beside_the_file(memory: Path, tmp_path: Path) -> None:
    with open_memory(memory, KEY) as opened:
        opened.claim(centre(9), 0, 1.0)
        for part in ("", "-wal"):
            shutil.copy(f"{memory}{part}", tmp_path / f"killed.sqlite{part}")
    (found,) = recover_memory(tmp_path / "killed.sqlite", tmp_path / "new.sqlite")
    assert (found.kept, found.lost) == (9, 0)


def test_several_memories(memory: Path, tmp_path: Path) -> None:
    with open_memory(memory, OTHER) as other:
        fill(other, 3)
    open_memory(memory, LONG).close()
    change(memory, "UPDATE claims SET radius = 9 WHERE position = 3 AND memory = 2")
    found = recover_memory(memory, tmp_path / "new.sqlite")
    assert [(one.digest, one.kept, one.lost) for one in found] == [
        (KEY.digest, 8, 0), (OTHER.digest, 2, 1), (LONG.digest, 0, 0),
    ]  # fmt: skip
    assert len(entries(tmp_path / "new.sqlite", KEY.digest)) == 8
    assert len(entries(tmp_path / "new.sqlite", OTHER.digest)) == 2


def test_a_memory_whose_key_is_lost(memory: Path, tmp_path: Path) -> None:
    with open_memory(memory, OTHER) as other:
        fill(other, 3)
    change(memory, "DELETE FROM memories WHERE number = 1", "DELETE FROM heads WHERE memory = 1")
    found = recover_memory(memory, tmp_path / "new.sqlite")
    assert found == (Recovered("", 0, 8, False), Recovered(OTHER.digest, 3, 0, True))


def test_an_earlier_version(tmp_path: Path) -> None:
    """It has no head: the number of claims that were made is not known."""
    old = earlier_memory(tmp_path / "memory.sqlite")
    change(old, "DELETE FROM claims WHERE position = 6")
    (found,) = recover_memory(old, tmp_path / "new.sqlite")
    assert found == Recovered(KEY.digest, 5, 3, False)
    assert len(entries(tmp_path / "new.sqlite")) == 5


class TestRefusals:
    def test_nothing_is_overwritten(self, memory: Path, tmp_path: Path) -> None:
        for new in (tmp_path / "there.sqlite", memory):
            new.touch()
            before = new.read_bytes()
            with pytest.raises(RegionMemoryError, match="nothing is overwritten"):
                recover_memory(memory, new)
            assert new.read_bytes() == before

    @pytest.mark.parametrize("content", [b"", b"text", b"text" * 10_000, b"SQLite format 3\0" + bytes(200)])
    def test_nothing_can_be_read(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "old").write_bytes(content)
        with pytest.raises(RegionMemoryError, match="estore a backup"):
            recover_memory(tmp_path / "old", tmp_path / "new")
        assert [path.name for path in tmp_path.iterdir()] == ["old"]

    def test_nothing_is_intact(self, memory: Path, tmp_path: Path) -> None:
        change(memory, "DELETE FROM claims WHERE position = 1")
        with pytest.raises(RegionMemoryError, match=r"nothing of .* is provably intact.*void"):
            recover_memory(memory, tmp_path / "new.sqlite")
        assert not (tmp_path / "new.sqlite").exists()

    def test_places(self, memory: Path, tmp_path: Path) -> None:
        with pytest.raises(RegionMemoryError, match="does not exist"):
            recover_memory(tmp_path / "nowhere.sqlite", tmp_path / "new.sqlite")
        with pytest.raises(RegionMemoryError, match="nothing can be written"):
            recover_memory(memory, tmp_path / "nowhere" / "new.sqlite")

    def test_something_else(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "songs.sqlite")) as connection:
            connection.execute("CREATE TABLE claims (name)")
        with pytest.raises(RegionMemoryError, match="no memory of promised regions"):
            recover_memory(tmp_path / "songs.sqlite", tmp_path / "new.sqlite")


class TestCommandLine:
    def test_it_says_what_a_loss_means(self, memory: Path, tmp_path: Path) -> None:
        change(memory, "DELETE FROM claims WHERE position = 6")
        result = smoothcert("memory", "recover", memory, tmp_path / "new.sqlite")
        assert result.returncode == 0
        said = " ".join(result.stdout.split())
        assert f"memory {KEY.digest[:12]}: 5 claims kept, 3 known to be lost (positions 6 to 8)" in said
        assert "New claims may contradict them" in said
        assert "Certificates that were issued from lost claims" in said
        assert "are void" in said
        again = smoothcert("memory", "recover", memory, tmp_path / "new.sqlite")
        assert again.returncode == 6
        assert "nothing is overwritten" in again.stderr

    def test_nothing_lost(self, memory: Path, tmp_path: Path) -> None:
        change(memory, "DELETE FROM memories")
        said = invoke(app, "memory", "recover", memory, tmp_path / "new.sqlite").stdout
        assert "8 claims kept, 0 known to be lost" in said
        assert "Nothing is lost" in said
        assert "void" not in said

    def test_json(self, memory: Path, tmp_path: Path) -> None:
        os.truncate(memory, memory.stat().st_size - 16384)
        (found,) = json.loads(invoke(app, "memory", "recover", memory, tmp_path / "new.sqlite", "--json").stdout)
        assert found.keys() == {"digest", "kept", "lost", "head_known"}

    def test_the_lost_place_is_free_again(self, memory: Path, tmp_path: Path) -> None:
        """A new claim may contradict a lost one, as the message warns."""
        change(memory, "DELETE FROM claims WHERE position = 6")
        invoke(app, "memory", "recover", memory, tmp_path / "new.sqlite")
        with open_memory(tmp_path / "new.sqlite", KEY) as recovered:
            assert recovered.claim(centre(7), 2, 1.0).settlement is Settlement.WHOLE
            assert recovered.claim(centre(5), 0, 1.0).settlement is Settlement.OVERRULED


class TestPostgres:
    @pytest.fixture
    def server_memory(self, new_database: Callable[[], str]) -> str:
        address = new_database()
        with open_memory(address, KEY) as memory:
            fill(memory)
        return address

    def change(self, address: str, statement: str) -> None:
        import psycopg

        with psycopg.connect(address) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(statement)

    @pytest.mark.parametrize(
        ("statement", "kept", "lost"),
        [
            ("DELETE FROM smoothcert_claims WHERE position = 8", 7, 1),
            ("UPDATE smoothcert_claims SET radius = 9 WHERE position = 4", 3, 5),
            ("DELETE FROM smoothcert_memories", 8, 0),
            ("DROP TABLE smoothcert_heads", 8, 0),
        ],
    )
    def test_to_a_file_and_to_a_server(
        self, server_memory: str, new_database: Callable[[], str], tmp_path: Path, statement: str, kept: int, lost: int
    ) -> None:
        whole = entries(server_memory)
        self.change(server_memory, statement)
        for new in (str(tmp_path / "new.sqlite"), new_database()):
            (found,) = recover_memory(server_memory, new)
            assert found == Recovered(KEY.digest, kept, lost, "heads" not in statement)
            assert entries(new) == whole[:kept]

    def test_from_a_file_to_a_server(self, memory: Path, new_database: Callable[[], str]) -> None:
        address, whole = new_database(), entries(memory)
        (found,) = recover_memory(memory, address)
        assert (found.kept, found.lost) == (8, 0)
        assert entries(address) == whole
        with pytest.raises(RegionMemoryError, match="holds a memory already"):
            recover_memory(memory, address)

    def test_a_server_that_cannot_be_reached_has_lost_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(RegionMemoryError, match="cannot be reached"):
            recover_memory("postgresql://ann@127.0.0.1:1/db", tmp_path / "new.sqlite")

    def test_a_missing_claims_table(self, server_memory: str, tmp_path: Path) -> None:
        self.change(server_memory, "DROP TABLE smoothcert_claims")
        with pytest.raises(RegionMemoryError, match="provably intact"):
            recover_memory(server_memory, tmp_path / "new.sqlite")
