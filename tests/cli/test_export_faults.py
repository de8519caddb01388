"""`export --format certificate` cut short at every call: a part never verifies, and the same command continues it."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from failing_calls import FailingCommands
from smoothcert_verify.run_checks import verify_certificates
from verified_runs import make_run

pytestmark = pytest.mark.slow
MODULES = ("smoothcert.cli.main", "smoothcert.runs.certificate_documents", "smoothcert.cli.counting")
INPUTS = 4


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


def content(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in out.iterdir()}


def test_killed_at_every_call(commands: FailingCommands, run: Path, place: Path) -> None:
    """Fails where a part is taken for the whole, where the same command refuses, and where temporary files stay."""
    out = place / "out"
    words = ("export", run, "--format", "certificate", "-o", out)
    clean = commands.run(*words)
    assert clean.code == 0, clean.errors
    whole = content(out)
    assert len(whole) == INPUTS + 1
    shutil.rmtree(out)
    assert clean.calls > 6 * INPUTS
    for at in range(1, clean.calls + 1):
        killed = commands.run(*words, at=at)
        assert killed.code == -9, at
        index = out / "certificates.index"
        if index.exists() and json.loads(index.read_text())["digests"] is not None:
            assert verify_certificates(out).discrepancies == []  # whole: at most a temporary file is left
            shutil.rmtree(out)
            continue
        if index.exists():
            assert [finding.code for finding in verify_certificates(out).discrepancies] == ["unfinished-export"]
        assert not any(out.glob("*.json")) or index.exists()
        again = commands.run(*words)
        assert again.code == 0, (at, again.errors)
        assert content(out) == whole
        shutil.rmtree(out)


def test_a_full_disk_names_the_file_and_the_same_command_continues(
    commands: FailingCommands, run: Path, place: Path
) -> None:
    out = place / "out"
    words = ("export", run, "--format", "certificate", "-o", out)
    calls = commands.run(*words).calls
    whole = content(out)
    shutil.rmtree(out)
    failed = 0
    for at in range(1, calls + 1, 2):
        ended = commands.run(*words, at=at, code=errno.ENOSPC)
        if ended.code:
            failed += 1
            assert (ended.code, "Traceback" in ended.errors) == (5, False), ended.errors
            assert f"{out}" in ended.errors
            assert "No space left on device" in ended.errors
            assert not list(place.glob("**/.*.part"))
            assert commands.run(*words).code == 0
        assert content(out) == whole
        shutil.rmtree(out)
    assert failed > INPUTS
