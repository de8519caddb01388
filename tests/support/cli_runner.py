"""Running the command line as a user does: another process, real exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "smoothcert.cli.main", *map(str, arguments)]


def environment() -> dict[str, str]:
    """The tests' own models can be named as sample_models:NAME; one thread inside each worker."""
    return {**os.environ, "PYTHONPATH": str(SUPPORT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def smoothcert(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, cwd=cwd, env=environment(), timeout=300, check=False
    )
