"""The mean softmax over noisy copies: the soft vote of the smoothed classifier, as a loss can be made of it."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional


def mean_log_softmax(logits: Tensor, *, beta: float = 1.0) -> Tensor:
    """log of the mean over copies of softmax(beta · logits). logits: (m, B, classes). Returns (B, classes), ≤ 0."""
    return (beta * logits).log_softmax(dim=2).logsumexp(dim=0) - math.log(len(logits))


def cross_entropy_of_copies(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over copies and inputs of -log softmax at the label. logits: (m, B, classes), labels: (B,)."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)))
