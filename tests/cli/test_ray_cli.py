"""`--engine ray` from the command line, where Ray is started on this machine and ended again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_runner import command, environment, smoothcert


def words(out: Path, *more: object) -> tuple[object, ...]:
    return (
        "certify", "--model", "sample_models:digits_by_brightness", "--data", "digits", "--sigma", 0.25, "--n0", 50,
        "--n", 2000, "--max", 10, "--seed", 3, "--num-classes", 10, "--out", out, "--json", *more,
    )  # fmt: skip


def computing_in(session: int) -> list[str]:
    """Commands of the processes in that session that hold or compute anything.

    Ray's two agents hold nothing; they notice only after a minute that the rest is gone, and end too.
    """
    found = subprocess.run(["ps", "-s", str(session), "-o", "args="], capture_output=True, text=True, check=False)
    return [line for line in found.stdout.splitlines() if not line.startswith("ray::") or "Agent" not in line]


def test_ray_on_this_machine_gives_the_local_result_and_says_nothing_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    remote = smoothcert(*words(tmp_path / "ray", "--batch", 64, "--engine", "ray", "--actors", 2))
    assert remote.returncode == 0, remote.stderr
    assert "batch 64, 2 actors on Ray" in remote.stderr
    local = smoothcert(*words(tmp_path / "local", "--batch", 64))
    (ours,), (theirs,) = json.loads(remote.stdout), json.loads(local.stdout)
    assert {**ours, "run": ""} == {**theirs, "run": ""}
    told = [line for line in remote.stderr.splitlines() if line]
    # On a busy machine the actors take long to start, and smoothcert says that it waits for a batch.
    ours_alone = ("callable sample_models", "next:", "no batch was finished")
    assert all(line.startswith(ours_alone) or "samples/s" in line for line in told), told


def test_without_ray_the_message_says_how_to_install_it(tmp_path: Path) -> None:
    without = "import sys; sys.modules['ray'] = None; from smoothcert.cli.main import run; run()"
    arguments = list(map(str, words(tmp_path / "run", "--engine", "ray")))
    found = subprocess.run(
        [sys.executable, "-c", without, *arguments], capture_output=True, text=True, env=environment(), check=False
    )
    assert found.returncode == 2
    assert "pip install 'smoothcert[ray]'" in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "run").exists()


def test_nothing_computes_on_when_the_driver_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    process = subprocess.Popen(
        command(*words(tmp_path / "run", "--n", 10_000_000, "--engine", "ray", "--actors", 1)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not any("raylet" in line for line in computing_in(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert any("raylet" in line for line in computing_in(process.pid))
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    deadline = time.monotonic() + 90
    while computing_in(process.pid) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert computing_in(process.pid) == []
