"""Gaussian augmentation: the plain objective of randomized smoothing (Cohen et al. 2019, section 3.3).

With a rule for the noise level it is the input-dependent augmentation of Súkeník et al. (2022, appendix E.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.errors import InputError
from smoothcert.records import Noise
from smoothcert.sigma.base import SigmaRule
from smoothcert.training.noisy_inputs import with_noise
from smoothcert.training.objective import Batch


@dataclass(frozen=True, slots=True)
class GaussianAugmentation:
    """Cross-entropy on x + sigma·noise, one fresh noise an input and step; sigma 0 is ordinary training.

    sigma: one number, or a rule for every input. The rule is used as it stands, also where training inputs are among
    the points it was fitted on: a nearest-neighbour rule then counts the input itself, at distance 0, among its k
    nearest. So the network is trained for the very function it will be smoothed with. Leaving the input out would raise
    its mean distance by a k-th, and sigma by the factor exp(rate·distance/k): a quarter of a percent at the paper's
    settings on MNIST. Training needs no proof, so either is allowed.
    """

    sigma: float | SigmaRule

    def __post_init__(self) -> None:
        if isinstance(self.sigma, SigmaRule):
            return
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise InputError(f"sigma {self.sigma} cannot be trained with: give a finite number that is not negative")

    @property
    def noise(self) -> Noise:
        return Noise.GAUSSIAN

    @property
    def settings(self) -> Mapping[str, Any]:
        if isinstance(self.sigma, SigmaRule):
            return {"name": "gaussian", "sigma_rule": {**self.sigma.to_json(), "digest": self.sigma.digest}}
        return {"name": "gaussian", "sigma": self.sigma}

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Tensor:
        noisy = with_noise(self.noise, batch.inputs, sigma=batch.sigma, generator=generator)
        return functional.cross_entropy(module(noisy), batch.labels)
