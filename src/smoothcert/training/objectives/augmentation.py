"""Noise augmentation, the basic objective of randomized smoothing (Cohen et al. 2019, section 3.3, appendix F).

With a rule for the noise level it is the input-dependent augmentation of Súkeník et al. (2022, appendix E.4). With
uniform noise it trains for certificates in the ℓ1 norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.records import Noise
from smoothcert.training.noisy_inputs import add_batch_noise
from smoothcert.training.objective import Batch


@dataclass(frozen=True, slots=True)
class NoiseAugmentation:
    """Cross-entropy at x + sigma·noise, with fresh noise for every input and step. Sigma 0 is ordinary training."""

    name: ClassVar[str] = "augmentation"
    aliases: ClassVar[tuple[str, ...]] = ("gaussian",)
    noises_allowed: ClassVar[frozenset[Noise]] = frozenset(Noise)
    uses_targets: ClassVar[bool] = True

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        return {"cross_entropy": functional.cross_entropy(module(add_batch_noise(batch, generator)), batch.wanted)}
