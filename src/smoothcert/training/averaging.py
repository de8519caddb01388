"""The exponential moving average of a network's weights."""

from __future__ import annotations

import copy

import torch
from torch import nn


class AveragedModule:
    """A copy of a network whose weights follow it slowly; buffers (batch statistics) are taken as they are.

    The decay grows from 0.1 to `decay` as (1+t)/(10+t) over the steps t, so that the first weights are soon forgotten.
    """

    def __init__(self, module: nn.Module, *, decay: float) -> None:
        self.module = copy.deepcopy(module).eval().requires_grad_(False)
        self._decay = decay

    @torch.no_grad()
    def follow(self, module: nn.Module, *, step: int) -> None:
        """step: how many were done before this one."""
        decay = min(self._decay, (1 + step) / (10 + step))
        for mine, theirs in zip(self.module.parameters(), module.parameters(), strict=True):
            mine.lerp_(theirs, 1.0 - decay)
        for own, other in zip(self.module.buffers(), module.buffers(), strict=True):
            own.copy_(other)
