"""The last step of every radius formula: a certified radius is a positive finite number, rounded down."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.records import FloatArray

_RELATIVE_MARGIN = 1e-15


def only_positive(radius: FloatArray, *, where: NDArray[np.bool_] | bool = True) -> FloatArray:
    """`radius` lowered by the rounding errors of its last products; 0 where not positive, not finite or not `where`."""
    good = np.isfinite(radius) & (radius > 0) & where
    return np.where(good, np.where(good, radius, 0.0) * (1.0 - _RELATIVE_MARGIN), 0.0)
