"""Shared by verbs that fit to data: loading both splits, and checking the output file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smoothcert.data import Dataset

SUFFIX = ".safetensors"


def load_splits(
    data: str,
    *,
    data_root: Path | None,
    input_range: str | None,
    resize: str | None = None,
    label_column: str | None = None,
) -> tuple[Dataset, Dataset | None]:
    """Load the training split and the test split; the latter is None for a file without one."""
    from smoothcert import data as room
    from smoothcert.cli.progress import fetch_progress

    size, shorter_side = room.parse_resize(resize)
    with fetch_progress() as fetching:
        return room.load_splits(
            data,
            progress=fetching,
            root=data_root,
            input_range=room.parse_input_range(input_range),
            resize=size,
            shorter_side=shorter_side,
            label_column=label_column,
        )


def check_new_rule(out: Path) -> None:
    """Refuse an output file that cannot be written. Called before the work starts."""
    from smoothcert.errors import InputError

    if out.suffix != SUFFIX:
        raise InputError(f"--out {out} must end in {SUFFIX}, the format of rules for sigma")
    if out.exists():
        raise InputError(f"{out} exists and is never overwritten; choose another --out or move it away")
    if not out.absolute().parent.is_dir():
        raise InputError(f"the folder of --out {out} does not exist; create it first")
