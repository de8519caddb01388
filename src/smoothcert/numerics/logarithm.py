"""log(1+u) - u without cancellation for small u."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.records import FloatArray

_SERIES_BELOW = 0.4
_TERMS = 14
"""With |u| < 0.4 the series is in r² < 1/16, and the terms after the fourteenth are below float64 resolution."""


def log1p_minus(u: ArrayLike) -> FloatArray:
    """log(1+u) - u for u > -1, to a few units in the last place, also where it is as small as -u²/2.

    Any shape; -inf at -1, NaN below. With r = u/(2+u), log(1+u) = 2 artanh r, so that
    log(1+u) - u = -r u + 2 r³ (1/3 + r²/5 + r⁴/7 + …), in which nothing cancels for |u| < 0.4.
    """
    x = np.asarray(u, dtype=np.float64)
    near = np.abs(x) < _SERIES_BELOW
    small = np.where(near, x, 0.0)
    r = small / (2.0 + small)
    square = r * r
    tail = np.zeros_like(small)
    for k in range(_TERMS, 0, -1):
        tail = tail * square + 1.0 / (2 * k + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.log1p(np.where(near, 1.0, x)) - np.where(near, 1.0, x)
    return np.where(near, -r * small + 2.0 * r * square * tail, far)
