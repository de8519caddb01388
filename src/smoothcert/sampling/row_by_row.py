"""Whether a model answers each row of a batch by itself, as a base classifier must: tried all the time, on a few rows.

The copies in a batch are mostly those of one input, so their mean gives that input away, and a model that looks across
the rows (batch statistics, or worse) is not a function of the noisy input that the theorems speak of.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from smoothcert.errors import ModelError

_SAMPLES_BETWEEN = 256
"""About one row in so many is asked alone: a hundredth of the cost, or less."""
_REPETITIONS = 5
_LEAST_DIFFERENT = 3
_LARGEST_SHARE = 0.005
"""A vote that is a tie to the last digits may fall otherwise alone; so many do not."""


class RowByRow:
    """Asks rows again, alone, and raises a ModelError when the answers show that the batch matters.

    This finds accidents, and a model that changes a good share of its votes; it proves nothing about the rest. A model
    whose answers are random is none of its business: what is not answered alike when asked again says nothing.
    """

    def __init__(self) -> None:
        self._until_next = 0
        self._asked = 0
        self._different = 0

    def look(self, count: int, *, vote: Callable[[int], int], ask: Callable[[int, slice], int]) -> None:
        """After a batch of so many rows. vote: of a row in it; ask: that of a place among rows asked together."""
        self._until_next -= count
        if self._until_next > 0 or count < 2:
            return
        self._until_next = _SAMPLES_BETWEEN
        row = secrets.randbelow(count)  # which one, no model can know
        alone, together = slice(row, row + 1), slice(0, count)
        self._asked += 1
        answer = ask(0, alone)
        if answer == vote(row):
            return
        for _ in range(_REPETITIONS):
            if ask(0, alone) != answer or ask(row, together) != vote(row):
                return
        self._different += 1
        if self._different >= _LEAST_DIFFERENT and self._different > _LARGEST_SHARE * self._asked:
            raise ModelError(
                f"the model answers {self._different} of {self._asked} noisy copies otherwise when they are asked one "
                "by one: its answer to one input depends on the others in the batch, and no certificate holds for "
                "such a model. Batch statistics must be frozen (`eval` mode); look for a mean or a norm over the batch"
            )
