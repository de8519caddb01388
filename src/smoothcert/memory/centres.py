"""Centres of claims, from the database, the latest of them kept at hand."""

from __future__ import annotations

import numpy as np

from smoothcert.memory.log import Centre, ClaimLog, centre_of, damaged
from smoothcert.records import IntArray

_CACHE_BYTES = 64 * 2**20


class CentreShelf:
    """Reads centres by position; keeps a bounded number of them."""

    def __init__(self, log: ClaimLog, memory: int, *, dimension: int) -> None:
        self._log = log
        self._memory = memory
        self._dimension = dimension
        self._at_hand: dict[int, Centre] = {}
        self._most = max(1, _CACHE_BYTES // (4 * dimension))

    def get(self, positions: IntArray) -> Centre:
        """(n, d) float32, in the order of the positions."""
        wanted = [int(position) for position in positions]
        missing = [position for position in wanted if position not in self._at_hand]
        fresh = {
            row.position: centre_of(row, dimension=self._dimension) for row in self._log.fetch(self._memory, missing)
        }
        if len(fresh) < len(missing):
            lost = next(position for position in missing if position not in fresh)
            raise damaged(self._log.location, f"claim {lost} is missing")
        out = np.empty((len(wanted), self._dimension), dtype=np.float32)
        for place, position in enumerate(wanted):
            known = fresh.get(position)
            out[place] = self._at_hand[position] if known is None else known
        for position, centre in fresh.items():
            self.keep(position, centre)
        return out

    def keep(self, position: int, centre: Centre) -> None:
        """Put a centre at hand; the one that has been there longest makes room for it."""
        self._at_hand[position] = centre
        if len(self._at_hand) > self._most:
            del self._at_hand[next(iter(self._at_hand))]
