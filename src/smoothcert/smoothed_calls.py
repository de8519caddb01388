"""What a `SmoothedClassifier` was made from, and what its calls hand on to other rooms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smoothcert.errors import InputError
from smoothcert.memory import RegionMemory
from smoothcert.records import InputArray
from smoothcert.sampling.drawing import Drawing
from smoothcert.sampling.sampler import Progress

if TYPE_CHECKING:
    from smoothcert.results.results import Results
    from smoothcert.smoothed import SmoothedClassifier


class Given(NamedTuple):
    """What a classifier was made from, None for what was not given. adapting: options of `as_classifier`."""

    model: Any
    memory: RegionMemory | str | Path | None
    seed: int | None
    batch: int | None
    adapting: dict[str, Any]


def draw_around(
    smoothed: SmoothedClassifier, progress: Progress | None, inputs: InputArray, indices: Sequence[int]
) -> Drawing:
    """What is needed to draw samples around these inputs."""
    return Drawing(
        tallier=smoothed.tallier(smoothed.classifier, batch=smoothed.known_batch(), workers=smoothed.workers),
        inputs=inputs,
        indices=indices,
        sigmas=smoothed.sigmas(inputs, indices),
        seed=smoothed.seed,
        noise=smoothed.noise,
        checks=smoothed.checks,
        shared_noise=smoothed.shared_noise,
        grid=smoothed.grid,
        progress=progress,
    )


def answer_in_memory(smoothed: SmoothedClassifier, *call: Any, **asked: Any) -> Results:
    """The answers of a call, with its progress.

    Results belong to a room above this one; they are imported here because this class is the front door of Python.
    """
    from smoothcert.results.calls import answer_call

    return answer_call(smoothed, *call, **asked)


def make_or_resume(smoothed: SmoothedClassifier, x: Any, *, indices: Sequence[int] | None, **asked: Any) -> Results:
    """As `answer_in_memory`, of a run that is made or resumed."""
    from smoothcert.results.calls import make_run

    if indices is not None:
        raise InputError("a run numbers its inputs from 0, so that it can be resumed: leave indices or out away")
    return make_run(smoothed, x, **asked)
