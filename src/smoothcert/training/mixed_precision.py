"""A network that computes with half the digits while it learns."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class InBfloat16(nn.Module):
    """The same parameters; matrix products and convolutions in bfloat16, logits given back in float32.

    bfloat16 has the range of float32, so gradients need no scaling. Losses and attacks see float32.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast(device_type=inputs.device.type, dtype=torch.bfloat16):
            logits: Tensor = self.inner(inputs)
        return logits.float()
