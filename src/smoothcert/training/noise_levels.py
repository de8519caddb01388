"""The noise level of every input a training meets: one number, or a rule's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.data import Dataset
from smoothcert.records import FloatArray
from smoothcert.sigma.base import SigmaRule
from smoothcert.sigma.over_data import Done, dataset_sigmas
from smoothcert.training.batches import Rows, as_levels


class NoiseLevels(Protocol):
    """σ of the inputs trained on and of those accuracy is measured on."""

    @property
    def judging(self) -> float | FloatArray:
        """σ of the inputs accuracy is measured on: one number, or one for every input."""

    @property
    def trained(self) -> float | FloatArray:
        """σ of the inputs trained on, likewise."""

    @property
    def mean(self) -> float:
        """σ of the inputs trained on, on average."""

    def of(self, rows: Rows, module: nn.Module, *, progress: float, generator: torch.Generator) -> float | Tensor:
        """σ of these training inputs: one number or (B,). What moves it is drawn from `generator`."""

    def summary(self) -> Mapping[str, Any]:
        """Plain JSON facts about levels that differ; nothing where they are one number."""

    def state(self) -> Tensor | None:
        """What a resumed training needs to know; None where levels do not move."""

    def restore(self, state: Tensor | None) -> None:
        """Goes on where `state` was asked for."""


class ConstantLevels:
    """One level for all inputs."""

    def __init__(self, sigma: float) -> None:
        self._sigma = sigma

    @property
    def judging(self) -> float:
        return self._sigma

    @property
    def trained(self) -> float:
        return self._sigma

    @property
    def mean(self) -> float:
        return self._sigma

    def of(self, rows: Rows, module: nn.Module, *, progress: float, generator: torch.Generator) -> float:
        return self._sigma

    def summary(self) -> Mapping[str, Any]:
        return {}

    def state(self) -> None:
        return None

    def restore(self, state: Tensor | None) -> None:
        """Nothing moves."""


class RuleLevels:
    """A level for every input by a rule, computed once.

    The rule is used as it stands, also where training inputs are among the points it was fitted on: a nearest-neighbour
    rule then counts the input itself, at distance 0, among its k nearest. So the network is trained for the very
    function it will be smoothed with. Leaving the input out would raise its mean distance by a k-th, and sigma by the
    factor exp(rate·distance/k): a quarter of a percent at the paper's settings on MNIST. Training needs no proof, so
    either is allowed.
    """

    def __init__(
        self, rule: SigmaRule, dataset: Dataset, judged_on: Dataset, *, device: torch.device, progress: Done | None
    ) -> None:
        self._trained = dataset_sigmas(rule, dataset, progress=progress)
        same = judged_on is dataset
        self._judging = self._trained if same else dataset_sigmas(rule, judged_on, progress=progress)
        self._on_device = as_levels(self._trained, device)

    @property
    def judging(self) -> FloatArray:
        return self._judging

    @property
    def trained(self) -> FloatArray:
        return self._trained

    @property
    def mean(self) -> float:
        return float(self._trained.mean())

    def of(self, rows: Rows, module: nn.Module, *, progress: float, generator: torch.Generator) -> Tensor:
        return self._on_device[rows.indices]

    def summary(self) -> Mapping[str, Any]:
        return {"sigma_trained_with": spread_of(self._trained)}

    def state(self) -> None:
        return None

    def restore(self, state: Tensor | None) -> None:
        """Nothing moves."""


def spread_of(sigmas: FloatArray) -> dict[str, float]:
    """Least, mean and largest, as plain JSON."""
    return {"min": float(np.min(sigmas)), "mean": float(np.mean(sigmas)), "max": float(np.max(sigmas))}
