"""Steps of an experiment that are commands of smoothcert: each runs in a child process, and resumes what was begun."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_PROGRAM = (sys.executable, "-m", "smoothcert")
Step = tuple[str, list[str]]
"""The name of a step, and the arguments of smoothcert."""


def train_once(step: str, verb: Sequence[str], options: Mapping[str, Any], out: Path) -> list[Step]:
    """The training, unless it is finished; resumed if it was begun."""
    if out.exists():
        return []
    begun = ["--resume"] if out.with_name(out.name + ".partial").exists() else []
    return [(step, [*verb, *spell(options), "--out", str(out), *begun])]


def spell(options: Mapping[str, Any]) -> list[str]:
    return [str(word) for pair in options.items() for word in pair]


def archive_runs(runs: Iterable[Path], folder: Path) -> None:
    """Archive runs in a folder, under their names: all votes, small enough to be committed."""
    from smoothcert.runs.archives import write_archive

    for run in runs:
        write_archive(run, folder / run.name, overwrite=True)


def run_steps(steps: Iterable[Step], *, wanted: Sequence[str]) -> dict[str, float]:
    """Run the wanted ones; seconds by command."""
    seconds: dict[str, float] = {}
    for name, command in steps:
        if name in wanted:
            line = shlex.join(command)
            print(line, flush=True)
            began = time.monotonic()
            subprocess.run([*_PROGRAM, *command], check=True)
            seconds[line] = time.monotonic() - began
    return seconds
