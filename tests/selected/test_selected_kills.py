"""A selected run killed with -9 in every part, and Ctrl-C: the claims are those of a run never stopped."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from cli_runner import command, environment, smoothcert
from selected_runs import read_claims

PARTS = ("selector", "level-0.05", "level-0.1", "level-0.2")
pytestmark = pytest.mark.slow


def arguments(out: Path) -> tuple[object, ...]:
    return (
        "certify", "--data", "digits", "--model", "sample_models:digits_by_brightness", "--levels", "0.05,0.1,0.2",
        "--selector", "selector_models:by_brightness", "--selector-sigma", 0.1, "--n", 300, "--n0", 10, "--skip", 20,
        "--batch", 64, "--seed", 3, "--workers", 1, "--out", out,
    )  # fmt: skip


def stored(part: Path) -> int:
    if not (part / "manifest.json").exists():
        return 0
    connection = sqlite3.connect(part / "results.sqlite", timeout=30)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM points").fetchone()[0])
    finally:
        connection.close()


def stop_in(part: Path, *words: object, by: signal.Signals) -> tuple[int, str]:
    """Start the command, and stop it when the part has a result. Its exit code and its messages."""
    process = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True, env=environment())
    deadline = time.monotonic() + 120
    while process.poll() is None and not stored(part) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(by)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def test_a_run_killed_in_every_part_is_resumed(tmp_path: Path) -> None:
    clean, killed = tmp_path / "clean", tmp_path / "killed"
    done = smoothcert(*arguments(clean))
    assert done.returncode == 0, done.stderr
    for part in PARTS[:-1]:
        code, _ = stop_in(killed / part, *arguments(killed), by=signal.SIGKILL)
        assert code == -signal.SIGKILL
    code, errors = stop_in(killed / PARTS[-1], "certify", "--resume", killed, by=signal.SIGINT)
    assert code == 130, errors
    assert f"smoothcert certify --resume {killed}" in errors
    assert "Traceback" not in errors
    table = smoothcert("table", killed)
    assert (table.returncode, "unfinished" in table.stderr) == (5, True), table.stderr
    resumed = smoothcert("certify", "--resume", killed)
    assert resumed.returncode == 0, resumed.stderr
    assert read_claims(killed) == read_claims(clean)
    assert len(read_claims(clean)) > 20
