"""What a sequential question needs to follow the votes of several inputs."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.records import FloatArray, IntArray, Reason

BoolArray = NDArray[np.bool_]


class Monitor(Protocol):
    """Follows m inputs look by look. Its statements hold however often it is asked and whenever sampling stops.

    probability: (m,) lower bounds on the probability of the class, wrong at any time with probability at most α per
    input; 0 where nothing is proved. radius: (m,) what they certify; 0 where they certify nothing.
    """

    @property
    def probability(self) -> FloatArray: ...

    @property
    def radius(self) -> FloatArray: ...

    @property
    def open(self) -> BoolArray:
        """(m,): whether more samples may still change the answer."""

    def look(self, rows: IntArray, hits: IntArray, trials: IntArray) -> None:
        """Update these inputs with their hits among their trials so far. Trials only grow."""

    def explain_abstention(self, row: int, *, hits: int, trials: int, label: int) -> Reason:
        """Why the radius of that input is 0."""
