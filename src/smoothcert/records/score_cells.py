"""The cells in which scores in [0, 1] are counted."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_SCORE_INTERVALS = 2**14
_SCORE_EDGES: FloatArray = np.sin(0.5 * math.pi * np.arange(_SCORE_INTERVALS + 1) / _SCORE_INTERVALS) ** 2
_SCORE_EDGES[0], _SCORE_EDGES[-1] = 0.0, 1.0

SCORE_CELLS = _SCORE_INTERVALS + 2
"""Cells of a score in [0, 1]: exactly 0; 2^14 intervals that are equal in θ for a score of sin²θ, so finest near 0 and
1; exactly 1."""
SCORE_FLOOR: FloatArray = np.concatenate([[0.0], _SCORE_EDGES[:-1], [1.0]])
SCORE_CEILING: FloatArray = np.concatenate([[0.0], _SCORE_EDGES[1:], [1.0]])
"""No score of cell i is below SCORE_FLOOR[i] or above SCORE_CEILING[i]."""
SCORE_SLACK = 1e-12
"""By how much the scores of a sample may add up to more than 1, because of rounding."""
for _values in (_SCORE_EDGES, SCORE_FLOOR, SCORE_CEILING):
    _values.setflags(write=False)


def score_cell(scores: FloatArray) -> NDArray[np.int64]:
    """The cell of each score in [0, 1], of any shape: a comparison with fixed numbers, so nothing is rounded."""
    return np.where(scores > 0.0, np.searchsorted(_SCORE_EDGES, scores, side="right"), 0)
