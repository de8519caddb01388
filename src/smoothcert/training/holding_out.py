"""Held-out inputs: part of the data that is not trained on, where the data has no test split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from smoothcert.data import Dataset, DatasetPart
from smoothcert.errors import DataError
from smoothcert.training.batches import seeded_generator

HELD_OUT_SHARE = 0.2
"""Held out of a file without a test split."""


def hold_out(dataset: Dataset, *, share: float, seed: int) -> tuple[DatasetPart, DatasetPart]:
    """(training part, held-out part) by a shuffle that depends only on the seed and on the size. Order is kept."""
    count = max(1, round(share * len(dataset)))
    if len(dataset) - count < 2:
        raise DataError(
            f"{dataset.name} has {len(dataset)} inputs and no test split: {count} held out leave too few to train on; "
            "training needs at least 2"
        )
    order = torch.randperm(len(dataset), generator=seeded_generator(seed, "held out")).numpy()
    trained_on, held_out = np.sort(order[count:]), np.sort(order[:count])
    return DatasetPart(dataset, trained_on, split="train"), DatasetPart(dataset, held_out, split="held-out")


def describe_hold_out(dataset: Dataset) -> str:
    return (
        f"{dataset.name} has no test split: {HELD_OUT_SHARE:.0%} of its {len(dataset)} inputs are held out by a seeded "
        "shuffle and not trained on"
    )


def held_out_path(out: Path) -> Path:
    """Path of the held-out inputs of the checkpoint `out`."""
    return out.with_suffix(".held-out.npz")
