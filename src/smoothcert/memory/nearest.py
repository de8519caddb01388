"""The balls with the smallest gap d - r, best first: bounds propose, float64 measures, what it cannot tell stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from smoothcert.memory.distances import measure, relative_error
from smoothcert.memory.log import Centre
from smoothcert.records import FloatArray, IntArray, Norm

_FIRST_MEASURED = 16
_CELLS_MEASURED = 1 << 20


def with_smallest_gap(
    point: Centre,
    *,
    gaps: FloatArray,
    radii: FloatArray,
    limit: float,
    centres: Callable[[IntArray], Centre],
    norm: Norm,
) -> list[tuple[int, Centre]]:
    """Balls among which are all those with the smallest true gap, if that is at most `limit`; each with its centre.

    gaps: (n,) not above the true ones; inf for balls that do not matter. radii: (n,). centres: from indices (m,) to
    (m, d). Usually few: only those that float64 cannot tell from the smallest.
    """
    order = np.flatnonzero(gaps <= limit)
    order = order[np.argsort(gaps[order], kind="stable")]
    best = limit
    kept: list[tuple[float, int, Centre]] = []
    start, size = 0, _FIRST_MEASURED
    while start < len(order) and gaps[order[start]] <= best:
        part = order[start : start + size]
        found = centres(part)
        low, high = _measured_gaps(point, found, radii[part], norm=norm)
        best = min(best, float(high.min()))
        kept = [entry for entry in kept if entry[0] <= best]
        kept += [(float(low[i]), int(part[i]), found[i]) for i in np.flatnonzero(low <= best)]
        start += size
        size = max(_FIRST_MEASURED, min(2 * size, _CELLS_MEASURED // len(point)))
    return [(index, centre) for _, index, centre in kept]


def _measured_gaps(point: Centre, centres: Centre, radii: FloatArray, *, norm: Norm) -> tuple[FloatArray, FloatArray]:
    """Numbers below and above the true d - r. A rounded difference is within one float of the true one."""
    distances = measure(point, centres, norm=norm)
    error = relative_error(len(point))
    low = np.nextafter(distances * (1.0 - error) - radii, -np.inf)
    high = np.nextafter(distances * (1.0 + error) - radii, np.inf)
    return low, high
