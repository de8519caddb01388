"""The stored balls with the smallest gap d - r around a point, and the cache of their centres."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from smoothcert.memory.claim_log import LogReader
from smoothcert.memory.decision import Neighbour
from smoothcert.memory.distances import measure, relative_error
from smoothcert.memory.log import Centre, damage_error, decode_centre
from smoothcert.memory.search import BallIndex
from smoothcert.records import FloatArray, IntArray, Norm

_FIRST_MEASURED = 16
_CELLS_MEASURED = 1 << 20
_CACHE_BYTES = 64 * 2**20


class CentreCache:
    """Reads centres of claims by position and keeps a bounded number of them."""

    def __init__(self, reader: LogReader, *, dimension: int) -> None:
        self._reader = reader
        self._dimension = dimension
        self._cached: dict[int, Centre] = {}
        self._limit = max(1, _CACHE_BYTES // (4 * dimension))

    def get(self, positions: IntArray) -> Centre:
        """Return the centres, (n, d) float32, in the order of the positions."""
        wanted = [int(position) for position in positions]
        missing = [position for position in wanted if position not in self._cached]
        rows = self._reader.fetch(missing)
        fresh = {row.position: decode_centre(row, dimension=self._dimension) for row in rows}
        if len(fresh) < len(missing):
            lost = next(position for position in missing if position not in fresh)
            raise damage_error(self._reader.log.location, f"claim {lost} is missing")
        centres = np.empty((len(wanted), self._dimension), dtype=np.float32)
        for place, position in enumerate(wanted):
            centres[place] = fresh[position] if position in fresh else self._cached[position]
        for position, centre in fresh.items():
            self.add(position, centre)
        return centres

    def add(self, position: int, centre: Centre) -> None:
        """Cache a centre. If the cache is full, the oldest one is dropped."""
        self._cached[position] = centre
        if len(self._cached) > self._limit:
            del self._cached[next(iter(self._cached))]


def find_smallest_gaps(
    point: Centre,
    *,
    gaps: FloatArray,
    index: BallIndex,
    limit: float,
    centres: Callable[[IntArray], Centre],
    norm: Norm,
) -> list[Neighbour]:
    """Return balls that include all balls with the smallest true gap, if that is at most `limit`.

    gaps: (n,) lower bounds on the true gaps of the balls of `index`; inf excludes a ball. centres: from indices (m,) to
    (m, d). Usually few balls are returned: those that float64 cannot tell from the smallest. A ball's position is its
    index + 1.
    """
    order = np.flatnonzero(gaps <= limit)
    order = order[np.argsort(gaps[order], kind="stable")]
    best = limit
    kept: list[tuple[float, int, Centre]] = []
    start, size = 0, _FIRST_MEASURED
    while start < len(order) and gaps[order[start]] <= best:
        part = order[start : start + size]
        found = centres(part)
        low, high = _measure_gaps(point, found, index.radii[part], norm=norm)
        best = min(best, float(high.min()))
        kept = [entry for entry in kept if entry[0] <= best]
        kept += [(float(low[i]), int(part[i]), found[i]) for i in np.flatnonzero(low <= best)]
        start += size
        size = max(_FIRST_MEASURED, min(2 * size, _CELLS_MEASURED // len(point)))
    return [Neighbour(i + 1, int(index.labels[i]), float(index.radii[i]), centre) for _, i, centre in kept]


def _measure_gaps(point: Centre, centres: Centre, radii: FloatArray, *, norm: Norm) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds on the true d - r. A rounded difference is within one float of the true one."""
    distances = measure(point, centres, norm=norm)
    error = relative_error(len(point))
    low = np.nextafter(distances * (1.0 - error) - radii, -np.inf)
    high = np.nextafter(distances * (1.0 + error) - radii, np.inf)
    return low, high
