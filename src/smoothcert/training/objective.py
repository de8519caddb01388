"""What the training loop asks of an objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from smoothcert.records import Noise
from smoothcert.sigma.base import SigmaRule


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step learns from, on the device that computes.

    inputs: (B, *input_shape) float32, clean. labels: (B,) int64. sigma: the noise level of all of them, or (B,) float32
    with one for each.
    """

    inputs: Tensor
    labels: Tensor
    sigma: float | Tensor


class Objective(Protocol):
    """Turns one batch into a loss. The loop knows nothing else about how a network is made robust.

    noise: the kind of noise the network is meant for. sigma: its level, in the units of the input, or a rule that gives
    one to every input; the accuracy reported is under this noise.
    settings: everything the objective depends on, as plain JSON with a "name"; training is resumed only if equal.
    """

    @property
    def noise(self) -> Noise: ...

    @property
    def sigma(self) -> float | SigmaRule: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Tensor:
        """Scalar loss, a mean over the batch. All randomness comes from `generator`, on the device of the inputs."""
