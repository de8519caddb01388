"""A dataset whose classes are noise levels: what a selector is trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from smoothcert.data import Dataset, DatasetPart
from smoothcert.records import InputArray, IntArray
from smoothcert.training.level_votes import LevelVotes


@dataclass(frozen=True, slots=True, eq=False)
class LevelDataset:
    """The inputs of another dataset, labelled by the number of their best noise level.

    targets: (len, K) float32, how good each level is, as a distribution; None for the best level alone. radii: (len, K)
    float32, the estimated radius of each level.
    """

    base: Dataset
    levels_chosen: tuple[float, ...]
    labels: IntArray = field(repr=False)
    targets: NDArray[np.float32] | None = field(repr=False)
    radii: NDArray[np.float32] = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.base.name} by noise level"

    @property
    def split(self) -> str:
        return self.base.split

    @property
    def num_classes(self) -> int:
        return len(self.levels_chosen)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Outputs of a selector are numbered: its levels are in the header of its checkpoint."""
        return ()

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.base.input_shape

    @property
    def input_range(self) -> tuple[float, float] | None:
        return self.base.input_range

    @property
    def levels(self) -> int | None:
        """Of the grid of the inputs, not the noise levels."""
        return self.base.levels

    @property
    def digest(self) -> str:
        """SHA-256 of the digest of the inputs, the levels and what is learned about them."""
        sha = hashlib.sha256(f"smoothcert-levels-1 {self.base.digest} {self.levels_chosen}\n".encode())
        sha.update(self.labels.astype("<i8").tobytes())
        if self.targets is not None:
            sha.update(self.targets.astype("<f4").tobytes())
        sha.update(self.radii.astype("<f4").tobytes())
        return sha.hexdigest()

    def __len__(self) -> int:
        return len(self.base)

    def inputs(self, indices: Sequence[int] | IntArray | slice, /) -> InputArray:
        """Read inputs: (len(indices), *input_shape) float32."""
        return self.base.inputs(indices)


def label_by_level(
    dataset: Dataset, indices: IntArray, votes: LevelVotes, *, softness: float, split: str
) -> LevelDataset:
    """Some inputs of a dataset, labelled by level. softness: see `LevelVotes.soften`; 0 for the best level alone."""
    return LevelDataset(
        base=DatasetPart(dataset, indices, split=split),
        levels_chosen=votes.levels,
        labels=votes.best[indices],
        targets=votes.soften(softness)[indices] if softness > 0 else None,
        radii=votes.radii[indices].astype(np.float32),
    )
