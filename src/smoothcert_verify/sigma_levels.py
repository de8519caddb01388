"""The noise levels of several inputs of one smoothed classifier: whether the assumed envelope allows them.

A theorem about a σ that varies relies on its envelope. Two inputs whose levels differ by more than the envelope allows
at their distance refute it. Without the data the distance is at most the diameter of the range of the inputs.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.document_checks import CheckedInput
from smoothcert_verify.findings import Finding, MalformedError, note
from smoothcert_verify.json_values import canonical_digest
from smoothcert_verify.run_facts import RunFacts
from smoothcert_verify.varying_theorems import SigmaEnvelope, read_envelope

ALL_PAIRS = 1500
"""Up to so many inputs, all pairs are measured."""
RANDOM_PAIRS = 10**6
"""About so many pairs of more inputs are measured."""

_MOST_NUMBERS = 1 << 26
"""Numbers of inputs held at once."""
_SAME = 1e-9
"""Relative: the level of one input by one rule, computed twice."""
_UNIT = 2.0**-53

Floats = NDArray[np.float64]
Inputs = Callable[[int], NDArray[np.float32]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Levels:
    """Inputs of one smoothed classifier. sigmas: by data and index. diameter: no two inputs are farther apart."""

    assumed: Mapping[str, Any]
    envelope: SigmaEnvelope
    sigmas: Mapping[tuple[str, int], float]
    diameter: float
    contradictions: tuple[Finding, ...]

    @property
    def varies(self) -> bool:
        """Whether a distance matters: σ may move, and farther the farther two inputs are apart."""
        return bool(self.envelope.rate or self.envelope.lipschitz)

    def exclude(self, one: int, other: int, distance: float, *, more: int = 0) -> Finding:
        """The finding that two inputs, at most this far apart, refute the envelope. more: pairs that do so too."""
        known = {index: sigma for (_, index), sigma in self.sigmas.items()}
        values = {"first": one, "second": other, "sigma": known[one], "other": known[other], "distance": distance}
        return Finding("levels-excluded", {**values, "envelope": self.assumed, "more": more})


def identify_classifier(run: RunFacts) -> str:
    """A digest of what makes the smoothed classifier of a run: model, noise, shape of the inputs, and σ."""
    facts = run.manifest["sigma"]
    return canonical_digest(
        {
            "model": run.manifest["digests"]["model"],
            "input_shape": list(run.shape),
            "sigma_rule": None if facts is None else [facts["rule"], run.manifest["digests"]["sigma"]],
            **run.smoothing,
            # Shared noise and its generator change the samples, not the classifier.
            "noise": {name: value for name, value in run.noise.items() if name not in ("shared", "generator")},
        }
    )


def count_classifiers(inputs: Sequence[CheckedInput]) -> int:
    """How many different smoothed classifiers these inputs are about."""
    return len(_group_by_classifier(inputs))


def check_levels(inputs: Sequence[CheckedInput]) -> list[Finding]:
    """What the levels show without the data; one finding for each classifier that has a problem."""
    problems: list[Finding] = []
    for levels in _list_levels(inputs):
        problems += levels.contradictions
        floor = levels.envelope.floor
        if floor is not None and levels.sigmas:
            name, least = min(levels.sigmas.items(), key=lambda item: item[1])
            if least < float(floor) * (1 - _SAME):
                problems.append(note("below-the-floor", index=name[1], sigma=least, envelope=levels.assumed))
        if len(levels.sigmas) > 1:
            low, high = (pick(levels.sigmas.items(), key=lambda item: item[1]) for pick in (min, max))
            if high[1] > float(_highest(levels.envelope, np.array(low[1]), np.array(levels.diameter))):
                problems.append(levels.exclude(low[0][1], high[0][1], levels.diameter))
    return problems


def needs_distances(inputs: Sequence[CheckedInput]) -> bool:
    """Whether the data would show more about the levels."""
    return any(levels.varies and len(levels.sigmas) > 1 for levels in _list_levels(inputs))


def measure_levels(
    inputs: Sequence[CheckedInput], data: Inputs, *, progress: Progress | None = None
) -> tuple[list[Finding], int]:
    """Pairs of inputs that the envelope excludes, and how many pairs were measured. All inputs are of one dataset.

    All pairs, or about a million of many: a random partition by the operating system's randomness, in which every pair
    is equally likely; the inputs with the lowest and the highest level are compared with all others.
    """
    problems: list[Finding] = []
    measured = 0
    for levels in _list_levels(inputs):
        if not levels.varies or len(levels.sigmas) < 2:
            continue
        indices = np.array([index for _, index in levels.sigmas], dtype=np.int64)
        sigmas = np.array(list(levels.sigmas.values()))
        found: list[tuple[int, int, float]] = []
        groups = list(_make_groups(sigmas, dimension=data(int(indices[0])).size))
        for done, group in enumerate(groups, start=1):
            x = np.stack([data(int(index)) for index in indices[group]])
            found += [
                (int(indices[group[one]]), int(indices[group[other]]), distance)
                for one, other, distance in _list_excluded(levels.envelope, sigmas[group], x)
            ]
            measured += len(group) * (len(group) - 1) // 2
            if progress is not None:
                progress(done, len(groups))
        if found:
            problems.append(levels.exclude(*found[0], more=len(found) - 1))
    return problems, measured


def _group_by_classifier(inputs: Sequence[CheckedInput]) -> dict[str, list[CheckedInput]]:
    names: dict[int, str] = {}
    grouped: dict[str, list[CheckedInput]] = {}
    for one in inputs:
        # By identity first: the inputs of a run share its facts.
        name = names.get(id(one.run)) or names.setdefault(id(one.run), identify_classifier(one.run))
        grouped.setdefault(name, []).append(one)
    return grouped


def _list_levels(inputs: Sequence[CheckedInput]) -> list[_Levels]:
    """The inputs with a level and a known envelope, by classifier."""
    found = (_read_levels(group) for group in _group_by_classifier(inputs).values())
    return [levels for levels in found if levels is not None]


def _read_levels(inputs: Sequence[CheckedInput]) -> _Levels | None:
    run = inputs[0].run
    if run.envelope is None:
        return None  # nothing is assumed of σ: a prediction, or a memory keeps what is promised
    try:
        envelope = read_envelope(run.envelope, remembered=False)
    except MalformedError:
        return None  # reported with the documents
    if not envelope.known:
        return None
    sigmas: dict[tuple[str, int], float] = {}
    contradictions: list[Finding] = []
    for one in inputs:
        if one.sigma is None:
            continue
        name = (str(one.run.manifest["digests"]["data"]), one.index)
        known = sigmas.setdefault(name, one.sigma)
        if not abs(known - one.sigma) <= (0.0 if envelope.constant else _SAME * known):
            contradictions.append(note("two-levels", index=one.index, sigma=known, other=one.sigma))
    return _Levels(run.envelope, envelope, sigmas, _diameter(run), tuple(contradictions))


def _diameter(run: RunFacts) -> float:
    """In ℓ2, of the range of the inputs; data on a grid lies in [0, 1]."""
    data = run.manifest["data"]
    width = math.inf if data["levels"] is None else 1.0
    if data["input_range"] is not None:
        width = min(width, max(float(data["input_range"][1]) - float(data["input_range"][0]), 0.0))
    return width * math.sqrt(run.dimension) * (1 + 4 * _UNIT)


def _highest(envelope: SigmaEnvelope, sigma: Floats, distance: Floats) -> Floats:
    """The largest level that an input may have at this distance from one with level σ.

    Rounding needs no room: all but a constant σ has the slack of every envelope, 2^-22, and levels are right to 1e-11.
    """
    high, distance = sigma, distance + float(envelope.shift)
    with np.errstate(over="ignore"):
        if envelope.rate:
            high = high * np.exp(float(envelope.rate) * distance)
        if envelope.lipschitz:
            high = high + float(envelope.lipschitz) * distance
    for slack in envelope.slacks:
        high = high * (1.0 + float(slack))
    return np.asarray(high, dtype=np.float64)


def _make_groups(sigmas: Floats, *, dimension: int) -> Iterator[NDArray[np.int64]]:
    """Which inputs are compared with each other."""
    count, most = len(sigmas), max(3, _MOST_NUMBERS // dimension)
    if count <= min(ALL_PAIRS, most):
        yield np.arange(count)
        return
    order = np.random.default_rng(secrets.randbits(128)).permutation(count)
    size = min(max(2, -(-2 * RANDOM_PAIRS // count)), most - 2)
    extremes = np.array([int(sigmas.argmin()), int(sigmas.argmax())])
    for start in range(0, count, size):
        yield np.unique(np.concatenate([order[start : start + size], extremes]))


def _list_excluded(envelope: SigmaEnvelope, sigmas: Floats, x: NDArray[np.float32]) -> Iterator[tuple[int, int, float]]:
    """Pairs whose levels the envelope does not allow at their distance.

    x: (n, d). First with a distance from below: ‖x‖²+‖y‖²-2xy errs by less than 4(d+8)u(‖x‖²+‖y‖²). Pairs that are not
    allowed there are measured from their difference, whose error the slack of the envelope covers.
    """
    wide = x.astype(np.float64)
    squares = np.einsum("ij,ij->i", wide, wide)
    sums = squares[:, None] + squares[None, :]
    lowest = np.sqrt(np.maximum(sums * (1.0 - 4.0 * (wide.shape[1] + 8) * _UNIT) - 2.0 * (wide @ wide.T), 0.0))
    smaller, larger = np.minimum(sigmas[:, None], sigmas[None, :]), np.maximum(sigmas[:, None], sigmas[None, :])
    doubtful = np.triu(larger > _highest(envelope, smaller, lowest), k=1)
    for one, other in np.argwhere(doubtful).tolist():
        difference = wide[one] - wide[other]
        distance = math.sqrt(float(difference @ difference))
        low, high = sorted((float(sigmas[one]), float(sigmas[other])))
        if high > float(_highest(envelope, np.array(low), np.array(distance))):
            yield one, other, distance
