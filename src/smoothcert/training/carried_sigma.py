"""Noise levels of training inputs that are optimised during the training and kept from epoch to epoch.

Alfarra et al., "Data dependent randomized smoothing", Algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.attacks.geometry import per_row
from smoothcert.errors import InputError
from smoothcert.records import FloatArray, IntArray, Noise
from smoothcert.sigma.search_problem import check_clamp, check_count, estimate_radii
from smoothcert.sigma.searches import STEP_ASIDE
from smoothcert.training.batches import Rows, as_levels
from smoothcert.training.modules import evaluation_mode
from smoothcert.training.noise_levels import NoiseLevels, summarise_levels
from smoothcert.training.noisy_inputs import draw_unit_noises, logits_of_copies


@dataclass(frozen=True, slots=True)
class CarriedSigma:
    """Settings of the optimisation. All inputs start at the same level.

    After the fraction `after` of the training, each time an input occurs in a batch, its σ takes `steps` gradient steps
    on its estimated radius, each with `noises` fresh draws: σ ← σ + start · rate · dR̂/dσ, clipped to
    [start/within, start·within]. The derivative is a central difference with shared noise, for the class of largest
    mean score. clamp, two_class (0 or 1): see `estimate_radii`.
    """

    steps: int = 1
    noises: int = 4
    rate: float = 0.02
    within: float = 4.0
    after: float = 0.25
    clamp: float = 1e-4
    two_class: int = 0

    name: ClassVar[str] = "optimised"

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("noises", self.noises)
        check_clamp(self.clamp)
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise InputError(f"rate={self.rate} of the optimised sigma must be a positive number; 0.02 is usual")
        if not (math.isfinite(self.within) and self.within >= 1):
            raise InputError(f"within={self.within} of the optimised sigma must be a factor of at least 1; 4 is usual")
        if self.two_class not in (0, 1):
            raise InputError(f"two_class={self.two_class} of the optimised sigma must be 0 or 1")
        if not 0 <= self.after <= 1:
            raise InputError(f"after={self.after} of the optimised sigma must be a fraction between 0 and 1")


class CarriedLevels(NoiseLevels):
    """σ of every training input, (N,) float64, which changes during the training.

    Accuracy is evaluated at the mean over the inputs that are trained on. held_back: indices of the other inputs.
    """

    def __init__(
        self, plan: CarriedSigma, *, start: float, count: int, noise: Noise, held_back: IntArray | None = None
    ) -> None:
        self._plan = plan
        self._start = start
        self._noise = noise
        self._sigmas: FloatArray = np.full(count, start)
        self._trained_on = np.ones(count, dtype=np.bool_)
        if held_back is not None:
            self._trained_on[held_back] = False

    @property
    def training(self) -> float:
        return float(self._sigmas[self._trained_on].mean())

    def select(self, rows: Rows, module: nn.Module, *, progress: float, generator: torch.Generator) -> Tensor:
        indices = rows.indices.cpu().numpy()
        if progress >= self._plan.after:
            with evaluation_mode(module), torch.no_grad():
                for _ in range(self._plan.steps):
                    self._sigmas[indices] = self._step(self._sigmas[indices], rows.inputs, module, generator)
        return as_levels(self._sigmas[indices], rows.inputs.device)

    def summary(self) -> Mapping[str, Any]:
        return {"sigma_trained_with": summarise_levels(self._sigmas[self._trained_on])}

    def state(self) -> Tensor:
        return torch.from_numpy(self._sigmas.copy())

    def restore(self, state: Tensor | None) -> None:
        if state is not None:
            self._sigmas = state.numpy().copy()

    def _step(self, sigmas: FloatArray, inputs: Tensor, module: nn.Module, generator: torch.Generator) -> FloatArray:
        """The levels after one gradient step. sigmas: (B,), inputs: (B, *input_shape)."""
        noises = draw_unit_noises(self._noise, inputs, self._plan.noises, generator)
        beside = sigmas[:, np.newaxis] * [1.0 - STEP_ASIDE, 1.0 + STEP_ASIDE]
        scores = np.stack([_mean_scores(module, inputs, noises, level) for level in beside.T], axis=1)
        radii = estimate_radii(
            scores, scores.sum(axis=1).argmax(axis=1), beside,
            noise=self._noise, clamp=self._plan.clamp, two_class=bool(self._plan.two_class),
        )  # fmt: skip
        slope = (radii[:, 1] - radii[:, 0]) / (2.0 * STEP_ASIDE * sigmas)
        bounds = (self._start / self._plan.within, self._start * self._plan.within)
        stepped: FloatArray = np.clip(sigmas + self._start * self._plan.rate * slope, *bounds)
        return stepped


def _mean_scores(module: nn.Module, inputs: Tensor, noises: Tensor, sigmas: FloatArray) -> FloatArray:
    """Mean softmax over the noises at these levels: (B, classes)."""
    levels = as_levels(sigmas, inputs.device)
    scores = logits_of_copies(module, inputs + per_row(levels, inputs) * noises).float().softmax(dim=2).mean(dim=0)
    means: FloatArray = scores.cpu().numpy().astype(np.float64)
    return means
