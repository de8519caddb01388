"""Noisy copies picked before sampling, with the votes that were counted for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.records import FloatArray, IntArray
from smoothcert.sampling.requests import Request, Slice, samples_per_draw


@dataclass(frozen=True, slots=True)
class PickedVote:
    """The counted vote of one noisy copy. request: index in the job; copy: number as in `Request.picks`.

    scores: (num_classes,) float64 if scores were counted.
    """

    request: int
    copy: int
    vote: int
    scores: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class PickedRow:
    """The row of a picked copy in a batch."""

    request: int
    copy: int
    row: int


class PickedVotes:
    """Records the votes of picked copies while a worker counts."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._picks: list[IntArray] = [np.array(request.picks, dtype=np.int64) for request in requests]
        self._per_draw = samples_per_draw(requests[0].kind)
        self._wanted = any(request.picks for request in requests)
        self.found: list[PickedVote] = []

    def rows(self, slices: Sequence[Slice], *, half: int = 0) -> list[PickedRow]:
        """The picked rows of a batch. half: 1 for the copies x-ε of pairs, which have the numbers 2·draw + 1."""
        if not self._wanted:
            return []
        found = []
        for piece in slices:
            picks = self._picks[piece.request]
            count = piece.last_row - piece.first_row
            first, last = np.searchsorted(picks, np.array([piece.counter, piece.counter + count]) * self._per_draw)
            for copy in picks[first:last].tolist():
                if copy % self._per_draw == half:
                    row = piece.first_row + copy // self._per_draw - piece.counter
                    found.append(PickedRow(request=piece.request, copy=copy, row=row))
        return found

    def note(
        self, slices: Sequence[Slice], votes: IntArray, *, scores: FloatArray | None = None, half: int = 0
    ) -> None:
        """Record the picked votes of a classified batch. votes: (rows,); scores: (rows, num_classes)."""
        rows = self.rows(slices, half=half)
        places = [pick.row for pick in rows]
        self.add(rows, votes[places], None if scores is None else scores[places])

    def add(self, rows: Sequence[PickedRow], votes: IntArray, scores: FloatArray | None = None) -> None:
        """Record the votes and scores of these rows, in the same order."""
        for place, pick in enumerate(rows):
            own = None if scores is None else np.array(scores[place], dtype=np.float64)
            self.found.append(PickedVote(pick.request, pick.copy, int(votes[place]), own))
