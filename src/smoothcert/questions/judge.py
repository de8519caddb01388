"""What follows the votes of several inputs and says which questions are still open."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.records import FloatArray, IntArray

BoolArray = NDArray[np.bool_]


class Judge(Protocol):
    """Follows m inputs look by look. Everything it says holds however often it is asked and whenever one stops.

    probability: (m,) lower bounds on the probability of the class, all together with the
    right to stop wrong with probability at most α per input; 0 where nothing is proved. radius: (m,) what is certified
    by them; 0 where nothing is.
    """

    @property
    def probability(self) -> FloatArray: ...

    @property
    def radius(self) -> FloatArray: ...

    @property
    def open(self) -> BoolArray:
        """(m,): for whom more samples may still change the answer."""

    def look(self, rows: IntArray, hits: IntArray, trials: IntArray) -> None:
        """These of the m inputs have so many hits in so many trials now. Trials only grow."""

    def nothing_certified(self, row: int, *, hits: int, trials: int, label: int) -> str:
        """The sentence a person reads where the radius of that input is 0."""
