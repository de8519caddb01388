"""A dataset without its labels, for a model that answers another question than its classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.data.dataset import Dataset
from smoothcert.data.matching import get_feature_names
from smoothcert.records import InputArray, IntArray


@dataclass(frozen=True, slots=True)
class UnlabelledDataset:
    """The inputs of another dataset. The digest is that of the whole, so that both can be seen to be the same data."""

    labelled: Dataset

    @property
    def name(self) -> str:
        return self.labelled.name

    @property
    def split(self) -> str:
        return self.labelled.split

    @property
    def num_classes(self) -> int:
        return 0

    @property
    def class_names(self) -> tuple[str, ...]:
        return ()

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.labelled.input_shape

    @property
    def input_range(self) -> tuple[float, float] | None:
        return self.labelled.input_range

    @property
    def levels(self) -> int | None:
        return self.labelled.levels

    @property
    def feature_names(self) -> tuple[str, ...]:
        return get_feature_names(self.labelled)

    @property
    def labels(self) -> IntArray:
        return np.full(len(self.labelled), -1, dtype=np.int64)

    @property
    def digest(self) -> str:
        return self.labelled.digest

    def __len__(self) -> int:
        return len(self.labelled)

    def inputs(self, indices: Sequence[int] | IntArray | slice, /) -> InputArray:
        return self.labelled.inputs(indices)
