"""`votes_from_logits` compiled with numba: one pass over the logits, without branches that depend on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from smoothcert.noise.with_numba import compile_cached


def _write_votes(logits: Any, votes: Any) -> None:
    """votes[i] = the first class with the largest logit of row i, or the number of classes if that is not finite.

    logits: (B, K) float32 or float64, C-contiguous, K ≥ 1; votes: (B,) int64.
    """
    count, classes = logits.shape
    for i in range(count):
        row = logits[i]
        largest, first, numbers = row[0], 0, row[0] == row[0]
        for k in range(1, classes):
            value = row[k]
            numbers &= value == value
            first = k if value > largest else first
            largest = value if value > largest else largest
        votes[i] = first if numbers and abs(largest) < np.inf else classes


WRITE_VOTES = compile_cached(_write_votes)
