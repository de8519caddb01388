"""`recertify --out` killed at every call, and on disks that fail at any: a whole run or none, and no leftovers."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from failing_calls import FailingCommands
from verified_runs import make_run

pytestmark = pytest.mark.slow
MODULES = (
    "smoothcert.cli.main", "smoothcert.runs.recertification", "smoothcert.analysis.summary",
    "smoothcert.analysis.tables", "smoothcert.results.verification",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run("votes", tmp_path_factory.mktemp("runs"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "failing"
    place.mkdir()
    return place


@pytest.fixture
def commands(place: Path) -> Iterator[FailingCommands]:
    with FailingCommands(place, *MODULES) as commands:
        yield commands


def radii(run: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(run / "results.sqlite")) as connection:
        return connection.execute("SELECT idx, prediction, radius FROM verdicts ORDER BY idx").fetchall()


def clear(out: Path) -> None:
    for file in out.iterdir():
        file.unlink()
    out.rmdir()


def test_killed_at_every_call(commands: FailingCommands, run: Path, place: Path) -> None:
    """Fails where the run has its name before it is whole: 50 of 90 kills left what the same command refused."""
    out = place / "out"
    words = ("recertify", run, "--alpha", 0.01, "--out", out)
    clean = commands.run(*words)
    assert (clean.code, clean.errors) == (0, "")
    whole = radii(out)
    clear(out)
    kills = range(1, clean.calls + 1)
    assert len(kills) > 30
    for at in kills:
        killed = commands.run(*words, at=at)
        assert killed.code == -9, at
        if out.exists():  # then it is whole
            assert radii(out) == whole
            assert commands.run("verify", out).code == 0
            clear(out)
    again = commands.run(*words)
    assert again.code == 0, again.errors
    assert radii(out) == whole
    assert [file.name for file in place.iterdir()] == ["out"]  # what the dead left is gone


@pytest.mark.parametrize(("code", "step"), [(errno.ENOSPC, 2), (errno.EIO, 7), (errno.EROFS, 7), (errno.EACCES, 7)])
def test_a_disk_that_fails(commands: FailingCommands, run: Path, place: Path, code: int, step: int) -> None:
    """Fails where half a run is left, where a traceback is printed, and where the message names no file."""
    out = place / "out"
    words = ("recertify", run, "--alpha", 0.01, "--out", out)
    calls = commands.run(*words).calls
    whole = radii(out)
    clear(out)
    failed = 0
    for at in range(1, calls + 1, step):
        ended = commands.run(*words, at=at, code=code)
        if ended.code == 0:  # only what is removed at the end was left to do
            assert radii(out) == whole
            clear(out)
            continue
        failed += 1
        assert (ended.code, "Traceback" in ended.errors) == (5, False), ended.errors
        assert str(place) in ended.errors
        assert list(place.iterdir()) == [], ended.errors
    assert failed > 3
    assert commands.run(*words).code == 0
    assert radii(out) == whole
