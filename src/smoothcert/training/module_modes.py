"""A network held in evaluation mode while something is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, whatever it was after: batch statistics are neither used nor moved by questions."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
