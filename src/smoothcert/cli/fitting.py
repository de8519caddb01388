"""What verbs that learn from data share: both splits of it, and a file that is not there yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smoothcert.data import Dataset

SUFFIX = ".safetensors"


def both_splits(data: str, *, data_root: Path | None, input_range: str | None) -> tuple[Dataset, Dataset | None]:
    """The training and the held-out inputs; a file of the user's may hold the former only."""
    from smoothcert.cli.progress import fetch_progress
    from smoothcert.data import load_dataset, parse_input_range
    from smoothcert.errors import DataError

    wanted = parse_input_range(input_range)
    with fetch_progress() as fetching:
        dataset = load_dataset(data, split="train", root=data_root, input_range=wanted, progress=fetching)
    try:
        return dataset, load_dataset(data, split="test", root=data_root, input_range=wanted)
    except DataError:
        return dataset, None


def check_new_rule(out: Path) -> None:
    """Refuse a place where no rule for sigma can be written: before the work, not after it."""
    from smoothcert.errors import InputError

    if out.suffix != SUFFIX:
        raise InputError(f"--out {out} must end in {SUFFIX}: that is the format rules for sigma are written in")
    if out.exists():
        raise InputError(f"{out} exists and is never overwritten; choose another --out or move it away")
    if not out.absolute().parent.is_dir():
        raise InputError(f"the folder of --out {out} does not exist; make it first")
