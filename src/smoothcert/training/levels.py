"""The noise level of every input a training meets, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from smoothcert.data.base import Dataset
from smoothcert.records import FloatArray
from smoothcert.sigma.base import SigmaRule
from smoothcert.sigma.over_data import Done, dataset_sigmas


@dataclass(frozen=True, slots=True, eq=False)
class NoiseLevels:
    """σ of the inputs trained on and of those accuracy is measured on: one number, or one for every input."""

    training: float | FloatArray
    judging: float | FloatArray

    @classmethod
    def of(
        cls, sigma: float | SigmaRule, dataset: Dataset, held_out: Dataset | None, *, progress: Done | None = None
    ) -> Self:
        """held_out: where accuracy is measured; the dataset itself if None."""
        if not isinstance(sigma, SigmaRule):
            return cls(training=float(sigma), judging=float(sigma))
        training = dataset_sigmas(sigma, dataset, progress=progress)
        judging = training if held_out is None else dataset_sigmas(sigma, held_out, progress=progress)
        return cls(training=training, judging=judging)

    def summary(self) -> Mapping[str, Any]:
        """Plain JSON facts about levels that differ; nothing where they are one number."""
        if isinstance(self.training, float):
            return {}
        least, mean, largest = self.training.min(), self.training.mean(), self.training.max()
        return {"sigma_trained_with": {"min": float(least), "mean": float(mean), "max": float(largest)}}
