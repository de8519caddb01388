"""How well a selector chooses, on inputs that it was not trained on. Estimates, not certificates."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import special

from smoothcert.data import Dataset
from smoothcert.models import BaseClassifier
from smoothcert.records import FloatArray, IntArray, Stage, StreamId
from smoothcert.sampling import Request, Sampler
from smoothcert.training.level_votes import LevelVotes

_BATCH = 256
_INPUTS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class SelectorReport:
    """What a selector does with some inputs, from `n` samples of it for each.

    right: share of inputs whose most frequent level is the best one. certainty: mean share of the samples that answer
    the most frequent level; certain: share of inputs where all do. chosen, best: share of inputs by most frequent and
    by best level. Mean estimated radii, an input's own class only: radii of each level alone; oracle, of the best level
    of each input; published and selected, of the two certificates of a selected level.
    """

    inputs: int
    n: int
    right: float
    certainty: float
    certain: float
    chosen: tuple[float, ...]
    best: tuple[float, ...]
    radii: tuple[float, ...]
    oracle: float
    published: float
    selected: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def report_choices(choices: IntArray, votes: LevelVotes, *, sigma: float) -> SelectorReport:
    """choices: (m, K), votes of the selector smoothed at `sigma`; votes: (m, K), of the levels for the same inputs."""
    samples, levels = int(choices[0].sum()), range(len(votes.levels))
    rows = np.arange(len(choices))
    leading = choices.argmax(axis=1)
    radii = votes.radii
    excluded = estimate_exclusions(choices, sigma=sigma)
    others = np.where(np.arange(len(votes.levels)) == leading[:, None], np.inf, excluded)
    return SelectorReport(
        inputs=len(choices),
        n=samples,
        right=float((leading == votes.best).mean()),
        certainty=float((choices.max(axis=1) / samples).mean()),
        certain=float((choices.max(axis=1) == samples).mean()),
        chosen=tuple(float((leading == level).mean()) for level in levels),
        best=tuple(float((votes.best == level).mean()) for level in levels),
        radii=tuple(float(mean) for mean in radii.mean(axis=0)),
        oracle=float(radii.max(axis=1).mean()),
        published=float(np.minimum(others.min(axis=1), radii[rows, leading]).mean()),
        selected=float(np.maximum(excluded, radii).min(axis=1).mean()),
    )


def estimate_exclusions(choices: IntArray, *, sigma: float) -> FloatArray:
    """(m, K): estimated distances below which each level is not selected: σ/2 (Φ⁻¹(p_j) - Φ⁻¹(p_k)).

    j is the leading level, whose own distance is 0. The shares are (votes + ½)/(n + 1).
    """
    scores = special.ndtri((choices + 0.5) / (choices.sum(axis=1, keepdims=True) + 1.0))
    exclusions: FloatArray = sigma / 2 * (scores.max(axis=1, keepdims=True) - scores)
    return exclusions


def sample_choices(
    selector: BaseClassifier, dataset: Dataset, *, sigma: float, n: int, seed: int, workers: int | None = None
) -> IntArray:
    """(len(dataset), K): votes of `n` samples of the selector around each input."""
    sampler = Sampler(selector, batch=_BATCH, workers=workers)
    found = []
    for start in range(0, len(dataset), _INPUTS_AT_ONCE):
        inputs = dataset.inputs(slice(start, start + _INPUTS_AT_ONCE))
        requests = [
            Request(row, StreamId(seed, start + row, Stage.PREDICTION), sigma, 0, n) for row in range(len(inputs))
        ]
        found += [tally.independent_votes().counts for tally in sampler.tally(inputs, requests)]
    return np.stack(found)
