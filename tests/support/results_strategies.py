"""Results for tests: random ones for properties, and simple ones to count by hand."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from smoothcert.records import Outcome
from smoothcert.runs.result_columns import NO_CLASS, ResultColumns, outcome_code

_KINDS = st.sampled_from([Outcome.CERTIFIED, Outcome.CERTIFIED, Outcome.ABSTAINED, Outcome.FAILED])
_RADII = st.one_of(st.floats(min_value=5e-324, max_value=10.0), st.sampled_from([0.25, 0.5, 1.0]))


@st.composite
def runs(draw: st.DrawFn, *, num_classes: int = 3, max_points: int = 30) -> ResultColumns:
    """A certified run over inputs 0, 1, … in random order."""
    m = draw(st.integers(1, max_points))
    kinds = draw(st.lists(_KINDS, min_size=m, max_size=m))
    classes = st.lists(st.integers(0, num_classes - 1), min_size=m, max_size=m)
    certified = np.array([kind is Outcome.CERTIFIED for kind in kinds])
    radius = np.array(draw(st.lists(_RADII, min_size=m, max_size=m)))
    return ResultColumns(
        name="run",
        index=np.array(draw(st.permutations(range(m)))),
        label=np.array(draw(classes)),
        prediction=np.where(certified, np.array(draw(classes)), NO_CLASS),
        outcome=np.array([outcome_code(kind) for kind in kinds], dtype=np.int8),
        radius=np.where(certified, radius, 0.0),
        has_radius=True,
        sigma=np.full(m, 0.25),
        seconds=np.full(m, 0.125),
        p_a=np.array(draw(st.lists(st.floats(0, 1), min_size=m, max_size=m))),
        alpha=0.001,
    )


def simple_run(
    *, right: int, wrong: int = 0, abstained: int = 0, failed: int = 0, radius: float = 1.0
) -> ResultColumns:
    m = right + wrong + abstained + failed
    decided = np.arange(m) < right + wrong
    outcome = np.where(decided, outcome_code(Outcome.CERTIFIED), outcome_code(Outcome.ABSTAINED))
    outcome[m - failed :] = outcome_code(Outcome.FAILED)
    return ResultColumns(
        name="run",
        index=np.arange(m),
        label=np.zeros(m, dtype=np.int64),
        prediction=np.where(decided, np.arange(m) >= right, NO_CLASS),
        outcome=outcome,
        radius=np.where(decided, radius, 0.0),
        has_radius=True,
        sigma=np.full(m, 0.25),
        seconds=np.full(m, 2.0),
        p_a=np.full(m, math.nan),
        alpha=0.001,
    )
