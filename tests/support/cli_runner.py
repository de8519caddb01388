"""Running the command line: as a user does, in another process with real exit codes, or some verbs in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

SUPPORT = Path(__file__).resolve().parent


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "smoothcert.cli.main", *map(str, arguments)]


def environment() -> dict[str, str]:
    """The tests' own models can be named as sample_models:NAME; one thread inside each worker."""
    places = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def start(words: list[str]) -> subprocess.Popen[str]:
    """A process that heeds Ctrl-C (SIGINT), also where the tests run in the background of a shell, which ignores it."""
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def smoothcert(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, cwd=cwd, env=environment(), timeout=300, check=False
    )


def invoke(app: typer.Typer, *arguments: object) -> Result:
    """Some verbs in this process; what is not an exit is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
