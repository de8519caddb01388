"""The torch form of `scaled_classifier`, for attacks that differentiate the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.records.feature_scale import FeatureScale


class ScaledModule(nn.Module):
    """u ↦ network(u·s). Input (B, d)."""

    factors: Tensor

    def __init__(self, network: nn.Module, scale: FeatureScale) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("factors", torch.from_numpy(scale.factors))

    def forward(self, scaled: Tensor) -> Any:
        return self.network(scaled * self.factors)
