"""What an attack asks of the thing it attacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """How B points stand with a target; nothing in it is attached to a graph.

    losses: (B,), to be maximised. gradients: (B, *shape) of each loss in its own point; may hold non-finite values,
    which attacks take as 0. wrong: (B,) bool, whether the answer is, as far as can be told, not the label.
    """

    losses: Tensor
    gradients: Tensor
    wrong: Tensor


class Target(Protocol):
    """A loss for every input of a batch, with its gradient: exact or estimated, by whatever means.

    Gradients come with the loss, rather than from a graph, so that a target may add them up chunk by chunk, or may
    estimate them where there is nothing to differentiate.
    """

    def __call__(self, points: Tensor, /) -> Assessment:
        """points: (B, *shape), one for each input, in the order of the labels the target holds."""
