"""The model as the user gave it, asked about one input alone, and how its answer compares with a counted vote.

A base classifier may compute the user's model by a faster form of it, for many rows at once. What is certified must be
the model itself. So some noisy copies are asked again from the original (`sampling.model_checks`): the same object, in
its own precision, one row at a time. numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from smoothcert.models.base import BaseClassifier
from smoothcert.models.scores import gives_scores
from smoothcert.records import FloatArray, InputArray

FLOAT32_ROUNDING = 1e-4
"""Relative difference of logits that rounding in float32 can make, in a deep network summed in another order."""

_PERTURBATIONS = 32
_PERTURBATION_SEED = 0
_LAST_PLACES = 16.0
"""Units in the last place by which two logits may miss each other."""
_SCORE_FACTOR, _LARGEST_SCORE_ERROR = 10.0, 0.02
"""Scores are compared this many times more loosely than logits, because a softmax multiplies errors by the size of
logits; but no difference larger than this is taken for rounding.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model says about one input.

    vote: 0 … K, where K stands for an answer that is not finite. logits, scores: (K,) float64, None where the model
    gives none. rounding: relative error of logits in the precision of the model. last_place: that of one number.
    """

    vote: int
    logits: FloatArray | None = None
    scores: FloatArray | None = None
    rounding: float = FLOAT32_ROUNDING
    last_place: float = 2.0**-23


class Original(Protocol):
    """The object the user gave."""

    def answer(self, row: InputArray, /) -> Answer:
        """The answer to one input, asked alone. row: (*input_shape) float32. Nothing is cached."""


@runtime_checkable
class HasOriginal(Protocol):
    """A base classifier that knows the object it was made from."""

    original: Original


@runtime_checkable
class Changeable(Protocol):
    """An original that somebody may change between two calls, and that notices it."""

    def check_unchanged(self) -> None:
        """ModelMismatchError where it is no longer the function that a classifier was made from. Quick if it is."""


def original_of(classifier: BaseClassifier) -> Original:
    """The object behind a base classifier; a base classifier of the user's own is its own original."""
    if isinstance(classifier, HasOriginal) and callable(getattr(classifier.original, "answer", None)):
        return classifier.original
    return OneRow(classifier)


class OneRow:
    """A base classifier that is asked about one row at a time."""

    def __init__(self, classifier: BaseClassifier) -> None:
        self._classifier = classifier
        # Asked once: looking whether an object has all methods of a protocol takes longer than a small model.
        self._scoring = classifier if gives_scores(classifier) else None

    def answer(self, row: InputArray, /) -> Answer:
        lone = row[None].copy()  # a model may change what it is given
        if self._scoring is not None:
            votes, scores = self._scoring.votes_and_scores(lone)
            return Answer(vote=int(votes[0]), scores=np.asarray(scores[0], dtype=np.float64))
        return Answer(vote=int(self._classifier.classify(lone)[0]))


def is_tie(original: Original, row: InputArray, answer: Answer, vote: int) -> bool:
    """Whether rounding explains that `vote` was counted where the original gives `answer`.

    It does where the two logits agree to the last places, or where the original itself gives that vote when the input
    is moved by a rounding error: then the input lies on a boundary between classes, to within rounding. Moving the
    input finds ties of logits that are differences of larger terms, and those of models without logits. That logits are
    close beside their size is not enough: a large constant in all of them would excuse everything.
    """
    if _agree_to_the_last_places(answer, vote):
        return True
    # About a hundred times below the error of logits: some last digits of the input, not a step away from it.
    size = answer.rounding / 100.0
    generator = np.random.default_rng(_PERTURBATION_SEED)
    for number in range(_PERTURBATIONS):
        # From one to several last digits, in random directions.
        step = size * 2.0 ** (number % 6 - 3)
        moved = row + np.float32(step) * generator.choice([-1.0, 1.0], row.shape) * np.maximum(np.abs(row), 1.0)
        if original.answer(moved.astype(np.float32)).vote == vote:
            return True
    return False


def same_scores(answer: Answer, scores: FloatArray) -> bool:
    """Whether scores that were counted are those of the original, to within rounding. Those of an answer that is not
    finite count for nothing.
    """
    if answer.scores is None or answer.vote >= len(scores):
        return True
    allowed = min(_SCORE_FACTOR * answer.rounding, _LARGEST_SCORE_ERROR)
    return bool(np.all(np.abs(answer.scores - scores) <= allowed))


def _agree_to_the_last_places(answer: Answer, vote: int) -> bool:
    logits = answer.logits
    if logits is None or max(vote, answer.vote) >= len(logits):
        return False
    ours, theirs = float(logits[answer.vote]), float(logits[vote])
    return ours - theirs <= _LAST_PLACES * answer.last_place * max(abs(ours), abs(theirs))
