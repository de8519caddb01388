"""The probe: a model's answers to fixed noisy inputs, stored with a run to detect a different function later.

A digest covers the parts of a model, but not everything a function depends on, such as files it reads or libraries.
The probe is compared when a run is resumed, replayed or attacked, and when a memory is opened. A change of the inputs
below invalidates stored probes, so raise VERSION. numpy and scipy only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from smoothcert.errors import ModelError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.original import Answer, Original, is_tie, original_of
from smoothcert.records import InputArray

VERSION = 1
_ROWS = 32
_LEVELS = tuple(2.0**power for power in range(-4, 4))
"""Noise levels around mid-grey, from little noise to values far outside [0, 1]."""
_MOST_LOGITS = 16
"""Logits stored per answer. With more classes, evenly spaced ones are stored."""
_KEY = 0x70726F6265
_LOOSENESS = 10.0
"""How much larger rounding differences between machines may be than those between batches."""


def probe_inputs(input_shape: tuple[int, ...]) -> InputArray:
    """(32, *input_shape) float32, equal on every machine: 1/2 plus normal noise at eight levels, four inputs each."""
    count = _ROWS * math.prod(input_shape)
    bits = np.random.Philox(key=_KEY).random_raw(count)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    normals = ndtri(uniform).reshape(_ROWS, *input_shape)
    levels = np.array(_LEVELS * (_ROWS // len(_LEVELS))).reshape(_ROWS, *(1 for _ in input_shape))
    made: InputArray = (0.5 + levels * normals).astype(np.float32)
    return made


def probe(classifier: BaseClassifier, input_shape: tuple[int, ...]) -> dict[str, Any]:
    """The answers of the model as JSON. It is called with one input at a time."""
    answers = [original_of(classifier).answer(row) for row in probe_inputs(input_shape)]
    known = [answer.logits for answer in answers]
    logits = None if any(one is None for one in known) else [_some_logits(answer) for answer in answers]
    return {"version": VERSION, "votes": [answer.vote for answer in answers], "logits": logits}


def check_probe(stored: object, classifier: BaseClassifier, input_shape: tuple[int, ...], *, of: str) -> None:
    """ModelError if the answers of the model changed. of: what holds the stored probe, for the message.

    A missing probe, or one of another version, is not compared.
    """
    differing = probe_differences(stored, classifier, input_shape)
    if differing:
        raise ModelError(
            f"the model is not the one of {of}: it answers {len(differing)} of {_ROWS} fixed noisy inputs differently "
            f"(the first: {differing[0]}). Its digest is the same, so check what the digest does not cover: "
            "attributes, files, global variables, the versions of libraries"
        )


def probe_differences(stored: object, classifier: BaseClassifier, input_shape: tuple[int, ...]) -> list[str]:
    """A description of every fixed input whose answer changed by more than rounding explains."""
    if not isinstance(stored, Mapping) or stored.get("version") != VERSION:
        return []
    votes, logits = stored.get("votes"), stored.get("logits")
    if not isinstance(votes, Sequence) or len(votes) != _ROWS or not _are_rows(logits):
        return ["the stored answers are damaged"]
    original = original_of(classifier)
    found = []
    for number, row in enumerate(probe_inputs(input_shape)):
        kept = None if logits is None else logits[number]
        sentence = _difference(original, row, votes[number], kept)
        if sentence:
            found.append(f"input {number}, {sentence}")
    return found


def _difference(original: Original, row: InputArray, vote: object, logits: Sequence[float | None] | None) -> str:
    answer = original.answer(row)
    if answer.vote != vote and not (type(vote) is int and is_tie(original, row, answer, vote)):
        return f"class {answer.vote} instead of {vote}"
    if logits is None or answer.logits is None:
        return ""
    now = _some_logits(answer)
    if len(now) != len(logits):
        return "another number of classes"
    scale = max((abs(value) for value in now if value is not None), default=0.0)
    for old, new in zip(logits, now, strict=True):
        if (old is None) != (new is None):
            return "a logit that became finite or is no longer finite"
        if old is not None and new is not None and abs(old - new) > _LOOSENESS * answer.rounding * scale:
            return f"a logit {new:.6g} instead of {old:.6g}"
    return ""


def _are_rows(logits: object) -> bool:
    """Whether `logits` is None or has a list of numbers for each row."""
    if logits is None:
        return True
    return (
        isinstance(logits, Sequence)
        and len(logits) == _ROWS
        and all(isinstance(row, Sequence) and all(_is_number_or_none(value) for value in row) for row in logits)
    )


def _is_number_or_none(value: object) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value))  # type: ignore[arg-type]


def _some_logits(answer: Answer) -> list[float | None]:
    """Evenly spaced logits as JSON: None for those that are not finite."""
    assert answer.logits is not None
    places = np.unique(np.linspace(0, len(answer.logits) - 1, _MOST_LOGITS).round().astype(int))
    return [float(value) if math.isfinite(value) else None for value in answer.logits[places]]
