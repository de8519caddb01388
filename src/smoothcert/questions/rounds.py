"""Rounds of drawing: the inputs that are still open draw the samples until the next look together."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from smoothcert.questions.answers import Inquiry
from smoothcert.questions.questions import looks
from smoothcert.records import Stage, Tally
from smoothcert.sampling.drawing import Drawing, Draws

INPUTS_AT_ONCE = 64
"""Inputs that share their rounds: a round is a few samples of each, and must fill some batches."""


def draw_until_answered(
    drawing: Drawing, labels: Mapping[int, int | None], inquiry: Inquiry
) -> dict[int, tuple[Tally, ...]]:
    """For each row its estimation votes until its question was answered, one tally for each look.

    labels: by row the class that was selected; nothing is drawn where there is none. What is in a round depends on the
    votes alone, so neither the number of workers nor an interruption changes it.
    """
    rows = [row for row, label in labels.items() if label is not None]
    drawn: dict[int, list[Tally]] = {row: [] for row in labels}
    if not rows:
        return dict.fromkeys(labels, ())
    judge = inquiry.judge(np.array([drawing.sigmas[row] for row in rows]))
    hits = np.zeros(len(rows), dtype=np.int64)
    for start, stop in itertools.pairwise((0, *looks(inquiry.n))):
        places = np.flatnonzero(judge.open)
        if not places.size:
            break
        found = _round(drawing, [rows[place] for place in places], start, stop)
        for place in places:
            row = rows[place]
            drawn[row].append(found[row])
            label = labels[row]
            assert label is not None
            hits[place] += int(found[row].counts[label])
        judge.look(places, hits[places], np.full(places.size, stop))
    return {row: tuple(tallies) for row, tallies in drawn.items()}


def _round(drawing: Drawing, rows: Sequence[int], start: int, stop: int) -> dict[int, Tally]:
    # One job at a time: what the next one asks for is not known before this one is counted.
    (found,) = drawing.each([Draws.alike(Stage.ESTIMATION, rows, [(start, stop)])])
    return {row: tallies[0].independent_votes() for row, tallies in found.items()}
