"""What the training loop asks of an objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from smoothcert.records import Noise


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step learns from, on the device that computes.

    inputs: (B, *input_shape) float32, clean. labels: (B,) int64. sigma: the noise level of all of them, or (B,) float32
    with one for each. noise: its kind. progress: the share of the training that is done, in [0, 1).
    """

    inputs: Tensor
    labels: Tensor
    sigma: float | Tensor
    noise: Noise = Noise.GAUSSIAN
    progress: float = 0.0


class Objective(Protocol):
    """Turns one batch into a loss. The loop knows nothing else about how a network is made robust.

    An objective is a frozen dataclass of plain numbers and words: they are its settings on the command line
    (`name:setting=value,…`), and a training is resumed only if all are equal. It holds no state.

    name: the word on the command line.
    noises_allowed: the kinds of noise its formula is made for.
    """

    name: ClassVar[str]
    noises_allowed: ClassVar[frozenset[Noise]]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        """The scalar terms of the loss by name, each a mean over the batch; their sum is minimised.

        All randomness comes from `generator`, on the device of the inputs. The module is in training mode when this is
        called, and is again when it returns.
        """
