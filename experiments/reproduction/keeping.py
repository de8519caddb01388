"""Keeps finished rows: from the folder of a reproduction to `experiments/results/NAME`."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from experiments.reproduction.directory import Reproduction
from experiments.reproduction.kept import (
    CURVES,
    PAGE,
    RECORD,
    KeptResults,
    KeptStep,
    can_be_kept,
    dump_record,
    find_folder,
    list_results,
    read_record,
)
from experiments.reproduction.kept_tables import make_page
from experiments.reproduction.plan import PlannedRow, Step
from experiments.reproduction.provenance import compute_digest, read_header
from smoothcert.environment import name_processor
from smoothcert.files import write_atomically


def keep_rows(
    reproduction: Reproduction, rows: Sequence[PlannedRow], directory: Path | None = None
) -> list[PlannedRow]:
    """Copy what the finished ones of these rows need, and make the page again. Returns the rows that were kept.

    Files that hold the same already are not written. What is kept of other rows stays. directory: default
    `experiments/results/NAME`.
    """
    plan = reproduction.plan
    directory = find_folder(plan) if directory is None else directory
    kept = [row for row in rows if can_be_kept(row) and reproduction.is_finished(row)]
    before = read_record(directory, plan)
    steps = dict.fromkeys(step for row in kept for step in row.steps if step.command is not None)
    runs = dict.fromkeys(step for row in kept for step in list_results(row))
    made = [step for step in steps if reproduction.state(step).finished]
    after = dict(before)
    for step in made:
        after[step.product] = _keep_step(reproduction, step, directory, before.get(step.product), is_run=step in runs)
    if after:
        _write_changed(directory / RECORD, dump_record(plan, after))
        _write_changed(directory / PAGE, make_page(KeptResults(plan, directory)).encode())
    return kept


def _keep_step(
    reproduction: Reproduction, step: Step, directory: Path, before: KeptStep | None, *, is_run: bool
) -> KeptStep:
    from smoothcert.runs.archives import write_archive

    path = step.path(reproduction.directory, reproduction.logs)
    if is_run:
        write_archive(path, directory / step.product, overwrite=True)
    curves = path.with_suffix(CURVES)
    if path.is_file() and curves.is_file():
        _write_changed((directory / step.product).with_suffix(CURVES), curves.read_bytes())
    record = reproduction.record(step)
    begun = record is not None and record.begun > 0
    products = {other.product for row in reproduction.plan.rows for other in row.steps}
    kept = KeptStep(
        command=step.command_line,
        seconds=round(record.seconds, 1) if record is not None and begun else None,
        lost_attempt=record is not None and record.has_lost_attempt,
        machine=describe_machine(),
        # The manifest of an archive names files otherwise, so it has a digest of its own.
        product=compute_digest(directory / step.product if is_run else path) or "",
        used={} if record is None else {name: digest for name, digest in record.used.items() if name in products},
        header=None if path.is_dir() else strip_folders(read_header(path)),
    )
    # The same result was kept before, perhaps on another machine: that is where it was made.
    return before if before is not None and replace(kept, machine=before.machine) == before else kept


def describe_machine() -> dict[str, str | int]:
    """What results were computed on, without names or places."""
    return {"processor": name_processor(), "cores": os.cpu_count() or 1, "system": platform.system()}


def strip_folders(value: Any) -> Any:
    """JSON values with the last part of every absolute path."""
    if isinstance(value, Mapping):
        return {key: strip_folders(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [strip_folders(inner) for inner in value]
    return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value


def _write_changed(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, overwrite=True)
