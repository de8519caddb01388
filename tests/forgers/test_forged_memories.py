"""A memory under another key, and promises that are not those of their own claim, are refused; chains are made anew."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")

from cli_runner import invoke
from forging import rechained
from smoothcert.cli.main import app
from verified_runs import MODEL, altered, copy_of, make_run, resealed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memories")
    make_run("predict-memory", folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return copy_of(made / "memory", tmp_path)


@pytest.fixture
def memory(made: Path, tmp_path: Path) -> Path:
    with closing(sqlite3.connect(made / "memory.sqlite")) as old, closing(sqlite3.connect(tmp_path / "m")) as new:
        old.backup(new)
    return tmp_path / "m"


def verified(run: Path, memory: Path, *more: object) -> tuple[int, str]:
    result = invoke(app, "verify", run, "--memory", memory, *more)
    return result.exit_code, result.stdout


def assert_refused(reason: str, run: Path, memory: Path, *more: object) -> None:
    code, told = verified(run, memory, *more)
    assert code == 1, told
    assert re.search(reason, told), told


def rekeyed(run: Path, memory: Path, **changes: Any) -> None:
    """Another key for the memory, named by the run, with new digests, entries and seals."""
    with closing(sqlite3.connect(memory)) as connection:
        key = json.loads(connection.execute("SELECT key FROM memories").fetchone()[0]) | changes
        text = json.dumps(key, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        connection.execute("UPDATE memories SET key = ?, digest = ?", (text, digest))
        connection.commit()
    rechained(memory)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["digests"]["memory"] = digest
    (run / "manifest.json").write_text(json.dumps(manifest))
    resealed(run)


def resettled(run: Path, memory: Path) -> None:
    """New entries over the claims as they are now, copied into the promises of the run, and new seals."""
    rechained(memory)
    with closing(sqlite3.connect(run / "results.sqlite")) as connection:
        connection.execute(f"ATTACH '{memory}' AS memory")
        connection.execute(
            "UPDATE promises SET entry = (SELECT entry FROM memory.claims AS c WHERE c.position = promises.position)"
        )
        connection.commit()
    resealed(run)


def preprocessing(shape: list[int], ends: list[float] | None) -> str:
    return hashlib.sha256(json.dumps({"input_shape": shape, "input_range": ends}).encode()).hexdigest()


def test_remade_as_it_was(run: Path, memory: Path) -> None:
    """The positive control: new keys, entries and seals over unchanged content."""
    rekeyed(run, memory)
    resettled(run, memory)
    assert verified(run, memory)[0] == 0
    assert verified(run, memory, "--data", "digits")[0] == 0
    assert verified(run, memory, "--replay", MODEL, 1)[0] == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("norm", "l1"),
        ("sigma_rule", hashlib.sha256(b"constant 0.5").hexdigest()),
        ("sigma_rule", "0" * 64),
        ("preprocessing", "0" * 64),
        ("preprocessing", preprocessing([1, 8, 8], None)),
        ("preprocessing", preprocessing([1, 8, 8], [0.0, 255.0])),
        ("preprocessing", preprocessing([64], [0.0, 1.0])),
        ("noise", "gaussian"),
        ("noise", "gaussian on 256 levels"),
        ("noise", "uniform on 17 levels"),
        ("model", "0" * 64),
        ("dimension", 65),
    ],
)
def test_the_key_of_another_classifier(run: Path, memory: Path, field: str, value: object) -> None:
    rekeyed(run, memory, **{field: value})
    assert_refused(f"the memory is that of another classifier: {field} is", run, memory)


@pytest.mark.parametrize(
    ("field", "value"), [("norm", "linf"), ("more", 1), ("dimension", -1), ("dimension", "64"), ("norm", None)]
)
def test_no_key_at_all(run: Path, memory: Path, field: str, value: object) -> None:
    rekeyed(run, memory, **{field: value})
    assert_refused(f"key.{field} (is|is not a field)", run, memory)


def test_a_run_that_does_not_state_the_range_of_its_inputs(run: Path, memory: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["data"]["input_range"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    resealed(run)
    assert_refused("run.data.input_range is missing", run, memory)


class TestOwnClaims:
    """Every promise is that of its own claim: label, radius, centre and position."""

    def of_one_claim(self, run: Path) -> None:
        """Every input has the votes, the verdict and the promise of the first."""
        for index in (60, 120, 180):
            for table in ("promises", "tallies", "verdicts"):
                altered(run / "results.sqlite", f"DELETE FROM {table} WHERE idx = {index}")
                self.copied(run, table, index)
        resealed(run)

    @staticmethod
    def copied(run: Path, table: str, index: int) -> None:
        with closing(sqlite3.connect(run / "results.sqlite")) as connection:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")][1:]
            names = ", ".join(columns)
            connection.execute(f"INSERT INTO {table} (idx, {names}) SELECT {index}, {names} FROM {table} WHERE idx = 0")
            connection.commit()

    def test_all_inputs_point_to_one_claim(self, run: Path, memory: Path) -> None:
        self.of_one_claim(run)
        assert_refused("inputs 0 and 60 both state claim 1 as their own", run, memory)
        assert_refused("input 60: claim 1 is around another input", run, memory, "--data", "digits")
        assert_refused("input 60: claim 1 is around another input", run, memory, "--replay", MODEL, 1)

    def test_one_input_in_two_runs_may_share_a_claim(self, run: Path, made: Path, memory: Path) -> None:
        """A claim that is repeated is not stored again."""
        result = invoke(app, "verify", run, made / "memory", "--memory", memory)
        assert result.exit_code == 0, result.stdout

    def test_equal_inputs_may_share_a_claim(self, made: Path, tmp_path: Path) -> None:
        """Where the data has an input twice, with the same votes: the data shows it, and without it nothing does."""
        import numpy as np

        from smoothcert.data import load_dataset

        digits = load_dataset("digits", split="test")
        one = np.concatenate([digits.inputs([0]), digits.inputs([0])])
        np.savez(tmp_path / "twice.npz", x=one, y=np.array([0, 0]))
        common = ("--n0", 20, "--n", 100, "--sigma", 0.05, "--seed", 1, "--batch", 64, "--workers", 1)
        data = ("--model", "sample_models:always_three", "--num-classes", 10, "--data", tmp_path / "twice.npz")
        place = tmp_path / "memory.sqlite"
        invoke(app, "certify", *data, *common, "--memory", place, "--out", tmp_path / "run")
        with closing(sqlite3.connect(place)) as connection:
            assert connection.execute("SELECT count(*) FROM claims").fetchone() == (1,)
        assert_refused("both state claim 1 as their own", tmp_path / "run", place)
        code, told = verified(tmp_path / "run", place, "--data", str(tmp_path / "twice.npz"))
        assert code == 0, told

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (
                "UPDATE promises SET position = 2 WHERE idx = 0",
                "the log up to position 2 is not the one|promise.radius is",
            ),
            ("UPDATE promises SET position = 99 WHERE idx = 0", "the log has no claim at position 99"),
            ("UPDATE promises SET memory = substr(memory, 2) || '0' WHERE idx = 0", "promise.memory is"),
            ("UPDATE promises SET entry = substr(entry, 2) || 'a' WHERE idx = 0", "the log up to position 1 is not"),
        ],
    )
    def test_another_claim(self, run: Path, memory: Path, change: str, reason: str) -> None:
        altered(run / "results.sqlite", change)
        resealed(run)
        assert_refused(f"input 0: .*({reason})", run, memory)

    def test_two_inputs_exchange_their_claims(self, run: Path, memory: Path) -> None:
        """Claims of the same radius and class, with entries that fit: only the centre tells, and that takes data."""
        altered(memory, "UPDATE claims SET radius = 0.1, asked_radius = 0.1, label = 3, asked_label = 3")
        altered(
            run / "results.sqlite",
            "UPDATE promises SET radius = 0.1, asked_radius = 0.1, label = 3, asked_label = 3",
            "UPDATE promises SET position = 3 - position WHERE position IN (1, 2)",
        )
        resettled(run, memory)
        assert_refused("claim [12] is around another input|verdicts.prediction is", run, memory, "--data", "digits")


@pytest.mark.parametrize("field", ["label", "radius", "asked_label", "asked_radius", "settlement"])
def test_the_log_and_the_run_do_not_agree(run: Path, memory: Path, field: str) -> None:
    """The claim was changed in a way that a claim may be, with a new chain and its entries in the run."""
    changes: dict[str, str] = {
        "label": "label = 7, asked_label = 7",
        "asked_label": "label = 7, asked_label = 7",
        "radius": "radius = radius / 2, settlement = 'CUT'",
        "settlement": "radius = radius / 2, settlement = 'CUT'",
        "asked_radius": "asked_radius = asked_radius * 2, settlement = 'CUT'",
    }
    altered(memory, f"UPDATE claims SET {changes[field]} WHERE position = 1")
    resettled(run, memory)
    assert_refused(f"input 0: promise.{field} is", run, memory)


def _halved(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE claims SET radius = radius / 2, asked_radius = asked_radius / 2 WHERE position = 2")


def _gone(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM claims WHERE position = (SELECT max(position) FROM claims)")


def _doubled(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE claims SET position = position + 1 WHERE position = 4")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_halved, "promise.radius is"),
        (_gone, "the log has no claim at position 4"),
        (_doubled, "after claim 3 comes claim 5"),
    ],
)
def test_a_log_that_was_made_anew(
    run: Path, memory: Path, change: Callable[[sqlite3.Connection], None], reason: str
) -> None:
    with closing(sqlite3.connect(memory)) as connection:
        change(connection)
        connection.commit()
    rechained(memory)
    assert_refused(reason, run, memory)
