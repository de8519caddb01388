"""A certify run killed with -9 again and again, and Ctrl-C: the results are those of a run never stopped."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cli_runner import command, environment, smoothcert

KILLS = 10


def arguments(model: Path, out: Path) -> tuple[object, ...]:
    return (
        "certify", "--model", model, "--data", "digits", "--sigma", 0.25, "--n0", 50, "--n", 100_000, "--max", 60,
        "--seed", 3, "--batch", 128, "--out", out, "--device", "cpu",
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("model") / "digits.safetensors"
    trained = smoothcert(
        "train", "--data", "digits", "--arch", "mlp", "--sigma", 0.25, "--epochs", 3, "--seed", 1, "--out", path
    )
    assert trained.returncode == 0, trained.stderr
    return path


def stored(out: Path) -> int:
    import sqlite3

    if not (out / "manifest.json").exists():
        return 0
    connection = sqlite3.connect(out / "results.sqlite", timeout=30)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM points").fetchone()[0])
    finally:
        connection.close()


def start(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def wait_for_progress(process: subprocess.Popen[str], out: Path, beyond: int) -> None:
    """Until some result beyond `beyond` is stored, or the process ends."""
    deadline = time.monotonic() + 120
    while process.poll() is None and stored(out) <= beyond and time.monotonic() < deadline:
        time.sleep(0.02)


def test_kill_nine_ten_times(model: Path, tmp_path: Path) -> None:
    clean, killed = tmp_path / "a" / "run", tmp_path / "b" / "run"
    done = smoothcert(*arguments(model, clean))
    assert done.returncode == 0, done.stderr
    moments = random.Random(20)
    for kill in range(KILLS):
        process = start(*arguments(model, killed))
        if kill == 0:
            time.sleep(moments.uniform(0.0, 4.0))  # anywhere, also before the run exists
        else:
            wait_for_progress(process, killed, stored(killed))
            time.sleep(moments.uniform(0.0, 0.3))
        process.kill()
        process.communicate(timeout=60)
    assert stored(killed) < 60  # otherwise the kills came too late to prove anything
    resumed = smoothcert(*arguments(model, killed))
    assert resumed.returncode == 0, resumed.stderr
    for extra in ((), ("--radii", "0,0.25,0.5", "--json"), ("--format", "csv"), ("--classes",)):
        ours, theirs = smoothcert("table", killed, *extra), smoothcert("table", clean, *extra)
        assert ours.returncode == theirs.returncode == 0, ours.stderr
        assert ours.stdout == theirs.stdout
    assert _votes(killed) == _votes(clean)


def _votes(out: Path) -> list[tuple[object, ...]]:
    import sqlite3

    connection = sqlite3.connect(out / "results.sqlite")
    try:
        points = "SELECT idx, label, place, certificate, prediction, radius, outcome, bounds "
        points += "FROM points NATURAL JOIN verdicts ORDER BY idx, place"
        tallies = "SELECT * FROM tallies ORDER BY idx, stage, start"
        return [*connection.execute(points), *connection.execute(tallies)]
    finally:
        connection.close()


def test_interrupt_finishes_the_shard_and_says_how_to_go_on(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(*arguments(model, out))
    wait_for_progress(process, out, 0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert f"smoothcert certify --resume {out}" in errors
    assert "Traceback" not in errors
    finished = stored(out)
    assert 0 < finished < 60
    # Nobody should take half a run for a whole one.
    assert f"unfinished: {finished} of 60 inputs" in smoothcert("table", out).stdout
    (row,) = json.loads(smoothcert("table", out, "--json").stdout)
    assert (row["points"], row["expected_points"]) == (finished, 60)
    done = smoothcert("certify", "--resume", out)
    assert done.returncode == 0, done.stderr
    assert f"{finished} of 60 inputs are already" in done.stderr
    assert stored(out) == 60
    assert "unfinished" not in smoothcert("table", out).stdout


def test_a_second_interrupt_stops_at_once_and_cleanly(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(*arguments(model, out)[:-1], "cpu", "--workers", 2)
    wait_for_progress(process, out, 0)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "--resume" in errors


def test_a_second_process_on_the_same_run_is_refused(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = start(*arguments(model, out))
    try:
        wait_for_progress(first, out, 0)
        second = smoothcert(*arguments(model, out))
        assert second.returncode == 5, second.stderr
        assert "another process" in second.stderr
    finally:
        first.kill()
        first.communicate(timeout=60)
