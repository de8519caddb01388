"""Fully connected network for inputs of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


class MLP(nn.Module):
    """Flatten, then linear layers with ReLU between them.

    Input (B, *input_shape), output (B, num_classes). hidden: widths of the hidden layers; none gives a linear model.
    """

    def __init__(self, *, input_shape: Sequence[int], num_classes: int, hidden: Sequence[int] = (200,)) -> None:
        super().__init__()
        widths = (math.prod(input_shape), *hidden, num_classes)
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs.flatten(1)
        for layer in self.layers[:-1]:
            hidden = layer(hidden).relu()
        logits: Tensor = self.layers[-1](hidden)
        return logits
