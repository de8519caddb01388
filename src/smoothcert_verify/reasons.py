"""Why nothing is certified, in words: written again from the tallies, to be compared with what stands there.

Where there is nothing to explain, the reason is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from smoothcert_verify.samples import SCORE_CELLS, Samples

_SETTLED = {
    "WHOLE": "",
    "CUT": "the claimed region was cut, so that it touches no region of another class",
    "OVERRULED": (
        "the input lies in a region of another class: that class is the answer, in a region cut to stay inside"
    ),
    "INHERITED": "nothing was claimed: the input lies in a promised region, whose class is the answer",
}
_NO_ROOM = "the regions promised before leave no room around this input: only its own answer is kept"
_MEAN_ERROR = 1e-12
"""Relative, of a mean that was computed in floating point."""


def of_promise(settlement: str, *, radius: Fraction) -> str:
    """Of what a memory made of a claim."""
    return _SETTLED[settlement] if radius > 0 else _NO_ROOM


def of_answer_by_memory(position: int) -> str:
    """Of a prediction for which nothing was sampled."""
    return f"the input lies in the region promised at position {position} of the memory"


def of_prediction(outcome: str, samples: Samples) -> str:
    if outcome == "failed":
        return f"the model gave no finite answer for {samples.invalid} of {samples.draws} samples"
    return "the two leading classes are too close to call" if outcome == "abstained" else ""


def of_failure(selection: Samples) -> str:
    """Of an input whose selection votes settle on no class."""
    return f"the model gave no finite answer for {selection.invalid} of {selection.draws} selection samples"


def of_abstention(samples: Samples, label: int, *, soft: bool) -> tuple[str, ...]:
    """Of a fixed number of samples that prove nothing. soft: whether a theorem about scores was asked."""
    if soft and samples.scores is not None:
        mean = _mean_score(samples)
        near = (mean * (1 - _MEAN_ERROR), mean * (1 + _MEAN_ERROR))
        about = f"over {samples.draws} samples for class {label} proves nothing"
        return tuple(f"a mean score of {value:.4g} {about}" for value in near)
    # Of pairs the votes at x+ε are meant; older runs did not say so.
    wordings = ("", " at x+ε") if samples.kind == "pairs" else ("",)
    votes = f"{samples.votes[label]} of {samples.draws} votes"
    return tuple(f"{votes}{where} for class {label} prove nothing" for where in wordings)


def of_undecided(samples: Samples | None, label: int, *, radii: Sequence[Fraction], n: int) -> tuple[str, ...]:
    """Of votes that were looked at until it was settled whether the smallest radius can be proved."""
    hits, trials = _seen(samples, label)
    smallest, votes = f"{float(min(radii)):g}", f"{hits} of {trials} votes for class {label}"
    known = [
        f"no probability below 1 gives a radius of {smallest} at this noise level",
        f"a radius of {smallest} is undecided: with {votes} it cannot be proved within {n} samples",
    ]
    # Votes that are all for the class refute nothing.
    return (*known, *([f"{votes} refute a radius of {smallest}"] if hits < trials else []))


def of_unmeasured(samples: Samples | None, label: int, *, width: float, n: int) -> tuple[str, ...]:
    """Of votes that were looked at until the radius was known to this width."""
    hits, trials = _seen(samples, label)
    return (
        f"{hits} of {trials} votes for class {label} prove nothing, and within {n} samples no radius of {width:g} "
        "could be proved",
    )


def _seen(samples: Samples | None, label: int) -> tuple[int, int]:
    return (0, 0) if samples is None else (samples.votes[label], samples.draws)


def _mean_score(samples: Samples) -> float:
    """Each score is read as the lower end of its cell, sin² of equal steps; an answer that is not finite as 0."""
    assert samples.scores is not None
    steps = np.arange(SCORE_CELLS) - 1
    ends = np.sin(0.5 * np.pi * np.maximum(steps, 0) / (SCORE_CELLS - 2)) ** 2
    return math.fsum((ends * samples.scores.own).tolist()) / samples.draws
