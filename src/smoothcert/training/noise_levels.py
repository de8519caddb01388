"""Noise levels of the inputs of a training: one number, or a rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.data import Dataset
from smoothcert.records import FloatArray
from smoothcert.sigma.over_data import Done, compute_sigmas
from smoothcert.sigma.rule import SigmaRule
from smoothcert.training.batches import Rows, as_levels


class NoiseLevels(ABC):
    """σ of the training inputs and of the evaluation inputs. Subclasses whose levels change have a state."""

    @property
    @abstractmethod
    def training(self) -> float | FloatArray:
        """σ of the training inputs: one number, or one per input."""

    @property
    def evaluation(self) -> float | FloatArray:
        """σ of the evaluation inputs, likewise."""
        return self.training

    @property
    def mean(self) -> float:
        """Mean σ of the training inputs."""
        return float(np.mean(self.training))

    @abstractmethod
    def select(self, rows: Rows, module: nn.Module, *, progress: float, generator: torch.Generator) -> float | Tensor:
        """σ of a batch: one number or (B,). Levels that change draw from `generator`."""

    def summary(self) -> Mapping[str, Any]:
        """JSON facts about levels that differ between inputs; empty for one number."""
        return {}

    def state(self) -> Tensor | None:
        """The state for resuming; None if the levels are constant."""
        return None

    def restore(self, state: Tensor | None) -> None:
        """Restore what `state` returned."""
        assert state is None


class ConstantLevels(NoiseLevels):
    """One level for all inputs."""

    def __init__(self, sigma: float) -> None:
        self._sigma = sigma

    @property
    def training(self) -> float:
        return self._sigma

    @property
    def mean(self) -> float:
        return self._sigma

    def select(self, rows: Rows, module: nn.Module, *, progress: float, generator: torch.Generator) -> float:
        return self._sigma


class RuleLevels(NoiseLevels):
    """Levels by a rule, computed once.

    The rule is applied as it is, even if training inputs are among the points it was fitted on: a nearest-neighbour
    rule then counts the input itself, at distance 0, among its k nearest. So the network is trained for the function
    that it will be smoothed with. Excluding the input would raise its mean distance by a k-th, and sigma by the factor
    exp(rate·distance/k): a quarter of a percent at the paper's settings on MNIST. Training needs no proof, so either
    is valid.
    """

    def __init__(
        self, rule: SigmaRule, dataset: Dataset, evaluated_on: Dataset, *, device: torch.device, progress: Done | None
    ) -> None:
        self._training = compute_sigmas(rule, dataset, progress=progress)
        same = evaluated_on is dataset
        self._evaluation = self._training if same else compute_sigmas(rule, evaluated_on, progress=progress)
        self._on_device = as_levels(self._training, device)

    @property
    def training(self) -> FloatArray:
        return self._training

    @property
    def evaluation(self) -> FloatArray:
        return self._evaluation

    def select(self, rows: Rows, module: nn.Module, *, progress: float, generator: torch.Generator) -> Tensor:
        return self._on_device[rows.indices]

    def summary(self) -> Mapping[str, Any]:
        return {"sigma_trained_with": summarise_levels(self._training)}


def summarise_levels(sigmas: FloatArray) -> dict[str, float]:
    return {"min": float(np.min(sigmas)), "mean": float(np.mean(sigmas)), "max": float(np.max(sigmas))}
