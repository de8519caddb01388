"""What the training loop asks of an objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Objective(Protocol):
    """Turns one batch into a loss. The loop knows nothing else about how a network is made robust.

    sigma: noise level the network is meant for, in the units of the input; the accuracy reported is under this noise.
    settings: everything the objective depends on, as plain JSON with a "name"; training is resumed only if equal.
    """

    @property
    def sigma(self) -> float: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    def loss(self, module: nn.Module, inputs: Tensor, labels: Tensor, generator: torch.Generator, /) -> Tensor:
        """Scalar loss, a mean over the batch.

        inputs: (B, *input_shape) float32, clean. labels: (B,) int64. All randomness comes from `generator`, which lives
        on the device of the inputs.
        """
