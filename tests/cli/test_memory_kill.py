"""Runs that claim regions are killed repeatedly with -9: no promise is lost, duplicated or changed."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cli_runner import command, environment, smoothcert
from memory_models import plane_points

KILLS = 8
POINTS = {"one": 60, "many": 400}
SAMPLES = {"one": 50_000, "many": 2000}
"""By the inputs of a shard: one, or sixteen, whose claims are made one after the other before any is stored."""


def arguments(data: Path, memory: Path, out: Path, *, shard: str = "one") -> tuple[object, ...]:
    return (
        "certify", "--model", "memory_models:ball_and_doubt", "--num-classes", 2, "--data", data, "--memory", memory,
        "--input-range", "any", "--sigma-rule", "optimised", "--sigma", 0.25, "--sigma-range", "0.05,4",
        "--search", "grid:points=7,noises=16,check=16", "--n0", 30, "--n", SAMPLES[shard], "--seed", 5,
        "--batch", 2048, "--out", out,
    )  # fmt: skip


def rows(database: Path, query: str) -> list[tuple[object, ...]]:
    if not database.exists():
        return []
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:  # no table yet
            return []


def claims(memory: Path) -> list[tuple[object, ...]]:
    """Everything but the time."""
    return rows(
        memory,
        "SELECT digest, position, label, radius, asked_label, asked_radius, settlement, centre "
        "FROM claims JOIN memories ON memory = number ORDER BY digest, position",
    )


def results(out: Path) -> list[tuple[object, ...]]:
    database = out / "results.sqlite"
    return [
        *rows(database, "SELECT idx, label, sigma FROM points ORDER BY idx"),
        *rows(database, "SELECT * FROM verdicts ORDER BY idx, place"),
        *rows(database, "SELECT idx, label, radius, position, settlement FROM promises ORDER BY idx"),
        *rows(database, "SELECT * FROM tallies ORDER BY idx, stage, start"),
    ]


def stored(out: Path) -> int:
    return len(rows(out / "results.sqlite", "SELECT idx FROM points"))


@contextmanager
def started(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended with the block."""
    process = subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def wait_for_claims(process: subprocess.Popen[str], memory: Path, beyond: int) -> None:
    deadline = time.monotonic() + 120
    while process.poll() is None and len(claims(memory)) <= beyond and time.monotonic() < deadline:
        time.sleep(0.005)


def assert_consistent(memory: Path) -> None:
    audit = smoothcert("memory", "audit", memory, "--json")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert all(one["consistent"] for one in json.loads(audit.stdout))


@pytest.fixture(scope="module", params=list(POINTS))
def shard(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def clean(shard: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """points.npz, a run over them that was never stopped, and its memory."""
    folder = tmp_path_factory.mktemp("clean")
    data = plane_points(folder / "points.npz", count=POINTS[shard])
    done = smoothcert(*arguments(data, folder / "memory.sqlite", folder / "run", shard=shard))
    assert done.returncode == 0, done.stderr
    return folder


def test_kill_nine(clean: Path, shard: str, tmp_path: Path) -> None:
    """The moments of the kills differ from run to run; the assertions hold for all of them."""
    words = arguments(clean / "points.npz", tmp_path / "memory.sqlite", tmp_path / "run", shard=shard)
    memory, out = tmp_path / "memory.sqlite", tmp_path / "run"
    moments = random.Random(21)
    acknowledged: list[tuple[object, ...]] = []
    for kill in range(KILLS):
        if kill >= 2 and stored(out) > POINTS[shard] // 2:
            break  # leave something to resume
        with started(*words) as process:
            wait_for_claims(process, memory, len(acknowledged))
            time.sleep(moments.uniform(0.0, 0.05))
        found = claims(memory)
        assert found[: len(acknowledged)] == acknowledged  # nothing that was there is gone or changed
        acknowledged = found
    assert stored(out) < POINTS[shard]  # otherwise the kills came too late to prove anything
    assert acknowledged
    assert_consistent(memory)
    resumed = smoothcert(*words)
    assert resumed.returncode == 0, resumed.stderr
    assert claims(memory) == claims(clean / "memory.sqlite")
    assert results(out) == results(clean / "run")
    assert_consistent(memory)
    for extra in ((), ("--json",), ("--format", "csv")):
        ours, theirs = smoothcert("table", out, *extra), smoothcert("table", clean / "run", *extra)
        assert ours.returncode == theirs.returncode == 0, ours.stderr
        assert ours.stdout == theirs.stdout


def test_interrupted_and_resumed(clean: Path, shard: str, tmp_path: Path) -> None:
    memory, out = tmp_path / "memory.sqlite", tmp_path / "run"
    with started(*arguments(clean / "points.npz", memory, out, shard=shard)) as process:
        wait_for_claims(process, memory, 0)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 130, errors
    assert f"smoothcert certify --resume {out}" in errors
    resumed = smoothcert("certify", "--resume", out)
    assert resumed.returncode == 0, resumed.stderr
    assert claims(memory) == claims(clean / "memory.sqlite")
    assert results(out) == results(clean / "run")


def test_two_at_once_one_of_them_killed(tmp_path: Path) -> None:
    """Different data, one memory: one run continues, the other is resumed, and all promises are in the log."""
    memory = tmp_path / "memory.sqlite"
    data, others = (plane_points(tmp_path / f"{seed}.npz", count=POINTS["one"], seed=seed) for seed in (0, 3))
    one, two = tmp_path / "one", tmp_path / "two"
    with started(*arguments(data, memory, one)) as first, started(*arguments(others, memory, two)) as second:
        wait_for_claims(second, memory, 10)
        second.kill()
        _, errors = first.communicate(timeout=200)
        assert first.returncode == 0, errors
    again = smoothcert(*arguments(others, memory, two))
    assert again.returncode == 0, again.stderr
    assert_consistent(memory)
    log = {claim[1]: claim[2:4] for claim in claims(memory)}
    for out in (one, two):
        promises = rows(out / "results.sqlite", "SELECT position, label, radius FROM promises "
                        "WHERE asked_label IS NOT NULL ORDER BY idx")  # fmt: skip
        assert stored(out) == POINTS["one"]
        assert len(promises) > POINTS["one"] // 2
        assert [position for position, _, _ in promises] == sorted(position for position, _, _ in promises)
        assert all(log[position] == (label, radius) for position, label, radius in promises)
