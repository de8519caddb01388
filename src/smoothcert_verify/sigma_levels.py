"""The noise levels of several inputs of one smoothed classifier: whether the envelope that is claimed allows them.

A theorem about a σ that varies takes its envelope for granted. Two inputs whose levels differ by more than the envelope
allows at their distance show that it is none. Without the data a distance is not known, but it is at most the diameter
of the range of the inputs.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.manifests import smoothing_of
from smoothcert_verify.radii import Envelope, read_envelope
from smoothcert_verify.reading import Document, canonical_digest
from smoothcert_verify.samples import UnreadableError
from smoothcert_verify.sentences import MALFORMED, shown

ALL_PAIRS = 1500
"""Up to so many inputs all pairs are measured."""
RANDOM_PAIRS = 10**6
"""About so many pairs are measured where there are more inputs."""
UNMEASURED = (
    "distances between inputs were not measured, so the sigmas were only compared across the whole range of the "
    "inputs: give the data by --data"
)

_MOST_NUMBERS = 1 << 26
"""Of inputs held at once."""
_SAME = 1e-9
"""Relative: the level of one input by one rule, computed twice."""
_UNIT = 2.0**-53

Floats = NDArray[np.float64]
Inputs = Callable[[int], NDArray[np.float32]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Levels:
    """Inputs of one smoothed classifier. sigmas: by index of the input. diameter: no two inputs are farther apart."""

    described: Mapping[str, Any]
    envelope: Envelope
    sigmas: Mapping[tuple[str, int], float]
    diameter: float
    contradictions: tuple[str, ...]

    @property
    def varies(self) -> bool:
        """Whether a distance matters: σ may move, and farther the farther two inputs are apart."""
        return bool(self.envelope.rate or self.envelope.lipschitz)


def classifier_of(run: Mapping[str, Any]) -> str:
    """A digest of what makes the smoothed classifier of a run: model, noise, inputs, and σ. Raises on what is none."""
    parameters = run["parameters"]
    return canonical_digest(
        {
            "model": run["model"]["digest"],
            "input_shape": run["data"]["input_shape"],
            "noise": str(parameters.get("noise")),
            "sigma_rule": parameters.get("sigma_rule"),
            **smoothing_of(run),
        }
    )


def count_classifiers(documents: Sequence[Document]) -> int:
    """How many different smoothed classifiers these documents are about, as far as they are well formed."""
    found = set()
    for run in _distinct_runs(documents):
        try:
            found.add(classifier_of(run))
        except MALFORMED:
            continue
    return len(found)


def level_problems(documents: Sequence[Document]) -> list[str]:
    """What can be told of the levels without the data; one sentence for each classifier that has a problem."""
    problems: list[str] = []
    for levels in _by_classifier(documents):
        problems += levels.contradictions
        floor = levels.envelope.floor
        if floor is not None and levels.sigmas:
            name, least = min(levels.sigmas.items(), key=lambda item: item[1])
            if least < float(floor) * (1 - _SAME):
                problems.append(
                    f"input {name[1]} has sigma {least!r}, below the floor: impossible under the envelope "
                    f"{shown(levels.described)}"
                )
        if len(levels.sigmas) > 1:
            low, high = (chosen(levels.sigmas.items(), key=lambda item: item[1]) for chosen in (min, max))
            if high[1] > float(_highest(levels.envelope, np.array(low[1]), np.array(levels.diameter))):
                problems.append(_impossible(levels, low[0][1], high[0][1], f"at most {levels.diameter:.6g} apart"))
    return problems


def needs_distances(documents: Sequence[Document]) -> bool:
    """Whether more can be told of the levels with the data at hand."""
    return any(levels.varies and len(levels.sigmas) > 1 for levels in _by_classifier(documents))


def measured_problems(
    documents: Sequence[Document], inputs: Inputs, *, progress: Progress | None = None
) -> tuple[list[str], int]:
    """Pairs of inputs that the envelope excludes, and how many pairs were measured. All documents are of one data.

    All pairs, or where that takes too long about a million: a random partition, drawn by the operating system's
    randomness, so that every pair is as likely as any other; the inputs with the lowest and the highest level are
    compared with all others.
    """
    problems: list[str] = []
    measured = 0
    for levels in _by_classifier(documents):
        if not levels.varies or len(levels.sigmas) < 2:
            continue
        indices = np.array([index for _, index in levels.sigmas], dtype=np.int64)
        sigmas = np.array(list(levels.sigmas.values()))
        found: list[tuple[int, int, float]] = []
        groups = list(_groups(sigmas, dimension=inputs(int(indices[0])).size))
        for done, group in enumerate(groups, start=1):
            x = np.stack([inputs(int(index)) for index in indices[group]])
            found += [
                (int(indices[group[one]]), int(indices[group[other]]), distance)
                for one, other, distance in _excluded(levels.envelope, sigmas[group], x)
            ]
            measured += len(group) * (len(group) - 1) // 2
            if progress is not None:
                progress(done, len(groups))
        if found:
            one, other, distance = found[0]
            more = "" if len(found) == 1 else f", and so are {len(found) - 1} more pairs"
            problems.append(_impossible(levels, one, other, f"{distance:.6g} apart") + more)
    return problems, measured


def _impossible(levels: _Levels, one: int, other: int, apart: str) -> str:
    known = {index: sigma for (_, index), sigma in levels.sigmas.items()}
    return (
        f"inputs {one} and {other} have sigma {known[one]!r} and {known[other]!r}, {apart}: impossible under the "
        f"envelope {shown(levels.described)}"
    )


def _distinct_runs(documents: Sequence[Document]) -> list[Mapping[str, Any]]:
    """By identity first: the documents of a run share its manifest."""
    return list({id(document.get("run")): document["run"] for document in documents if "run" in document}.values())


def _by_classifier(documents: Sequence[Document]) -> list[_Levels]:
    """The inputs with a level and a known envelope, by classifier. What is malformed is said elsewhere."""
    names: dict[int, str | None] = {}
    grouped: dict[str, list[Document]] = {}
    for document in documents:
        run = document.get("run")
        if id(run) not in names:
            try:
                names[id(run)] = classifier_of(run)  # type: ignore[arg-type]
            except MALFORMED:
                names[id(run)] = None
        name = names[id(run)]
        if name is not None:
            grouped.setdefault(name, []).append(document)
    return [levels for group in grouped.values() if (levels := _levels(group)) is not None]


def _levels(documents: Sequence[Document]) -> _Levels | None:
    run = documents[0]["run"]
    described = smoothing_of(run)["envelope"]
    if described is None:
        return None  # nothing is supposed of σ: it is a prediction, or a memory keeps what is promised
    try:
        envelope = read_envelope(described, remembered=False)
        diameter = _diameter(run)
    except (UnreadableError, *MALFORMED):
        return None
    if not envelope.known:
        return None
    sigmas: dict[tuple[str, int], float] = {}
    contradictions: list[str] = []
    for document in documents:
        try:
            name = (str(document["run"]["data"]["digest"]), document["input"]["index"])
            sigma = document["smoothing"]["sigma"]
        except MALFORMED:
            continue
        if type(sigma) is not float or type(name[1]) is not int or not 0 < sigma < math.inf:
            continue
        known = sigmas.setdefault(name, sigma)
        if not abs(known - sigma) <= (0.0 if envelope.constant else _SAME * known):
            contradictions.append(f"input {name[1]} has sigma {known!r} here and {sigma!r} there, by the same rule")
    return _Levels(described, envelope, sigmas, diameter, tuple(contradictions))


def _diameter(run: Mapping[str, Any]) -> float:
    """In ℓ2, of the range that the manifest gives its inputs; data on a grid lies in [0, 1]."""
    data = run["data"]
    width = math.inf if data.get("levels") is None else 1.0
    stated = data.get("input_range")
    if isinstance(stated, list) and len(stated) == 2 and all(type(end) in (int, float) for end in stated):
        width = min(width, max(float(stated[1]) - float(stated[0]), 0.0))
    return width * math.sqrt(math.prod(data["input_shape"])) * (1 + 4 * _UNIT)


def _highest(envelope: Envelope, sigma: Floats, distance: Floats) -> Floats:
    """The largest level that an input may have at this distance from one with level σ.

    Rounding needs no room: all but a constant σ has the slack of every envelope, 2^-22, and levels are right to 1e-11.
    """
    high = sigma
    with np.errstate(over="ignore"):
        if envelope.rate:
            high = high * np.exp(float(envelope.rate) * distance)
        if envelope.lipschitz:
            high = high + float(envelope.lipschitz) * distance
    for slack in envelope.slacks:
        high = high * (1.0 + float(slack))
    return np.asarray(high, dtype=np.float64)


def _groups(sigmas: Floats, *, dimension: int) -> Iterator[NDArray[np.int64]]:
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


def _excluded(envelope: Envelope, sigmas: Floats, x: NDArray[np.float32]) -> Iterator[tuple[int, int, float]]:
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
