"""Counting scores by cell, for noise on the host and on devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.records import FloatArray, IntArray, ScoreTally
from smoothcert.records.score_cells import SCORE_CELLS, SCORE_SLACK, score_cell
from smoothcert.sampling.requests import Request, Slice


class ScoreSums:
    """For each request the votes, and the number of scores in each cell: of the label and of the strongest other.

    Memory: 260 kB for each request, independent of the number of samples.
    """

    def __init__(self, requests: Sequence[Request], *, num_classes: int) -> None:
        self._labels = [request.label for request in requests]
        self._num_classes = num_classes
        self._votes: IntArray = np.zeros((len(requests), num_classes + 1), dtype=np.int64)
        self._cells: IntArray = np.zeros((len(requests), 2 * SCORE_CELLS), dtype=np.int64)

    def add(self, slices: Sequence[Slice], votes: IntArray, scores: FloatArray) -> None:
        """Count one batch. votes: (rows,) in 0 … num_classes; scores: (rows, num_classes)."""
        valid = votes < self._num_classes
        self._check(scores, valid)
        for piece in slices:
            rows = slice(piece.first_row, piece.last_row)
            self._votes[piece.request] += np.bincount(votes[rows], minlength=self._num_classes + 1)
            cells = _cells(scores[rows][valid[rows]], self._labels[piece.request])
            self._cells[piece.request] += np.bincount(cells, minlength=2 * SCORE_CELLS)

    def _check(self, scores: FloatArray, valid: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
        if scores.shape != (len(valid), self._num_classes):
            raise ModelError(
                f"the model returned scores of shape {scores.shape} for {len(valid)} inputs; "
                f"expected ({len(valid)}, {self._num_classes})"
            )
        some = scores[valid]
        # In this form the check fails for NaN too.
        if not ((some >= 0.0).all() and (some <= 1.0).all() and (some.sum(axis=1) <= 1.0 + SCORE_SLACK).all()):
            raise ModelError(
                "the model returned scores outside [0, 1], or that add up to more than 1; expected a softmax"
            )

    def sums(self) -> tuple[IntArray, ...]:
        return self._votes, self._cells


def _cells(scores: FloatArray, label: int) -> IntArray:
    """The cell numbers of all scores of the label, then of the largest other score of each sample."""
    others = scores.copy()
    others[:, label] = 0.0
    return np.concatenate([score_cell(scores[:, label]), SCORE_CELLS + score_cell(others.max(axis=1))])


def score_tally(request: Request, votes: IntArray, cells: IntArray) -> ScoreTally:
    """The tally of one request from its counts: (num_classes + 1,) and (2 * SCORE_CELLS,)."""
    filled = np.flatnonzero(cells)
    return ScoreTally(
        **request.tally_fields,
        counts=votes[:-1],
        invalid=int(votes[-1]),
        label=request.label,
        cells=filled,
        hits=cells[filled],
    )
