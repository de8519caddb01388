"""The model as the user gave it, called with one input, and how its answer compares with a counted vote.

A base classifier may compute the user's model in a faster form, for many rows at once. What is certified must be the
model itself. So some noisy copies are checked against the original (`sampling.model_checks`): the same object, in its
own precision, one row at a time. numpy only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from smoothcert.models.base import BaseClassifier
from smoothcert.models.scores import gives_scores
from smoothcert.records import FloatArray, InputArray

FLOAT32_ROUNDING = 1e-4
"""Relative rounding error of float32 logits in a deep network that is summed in another order."""

_PERTURBATIONS = 32
_PERTURBATION_SEED = 0
_LAST_PLACES = 16.0
"""Units in the last place by which two tied logits may differ."""
_SCORE_FACTOR, _LARGEST_SCORE_ERROR = 10.0, 0.02
"""Scores may differ by this factor more than logits, because a softmax multiplies errors by the size of the logits. No
difference above the largest error counts as rounding.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a model to one input.

    vote: 0 … K, where K means "not finite". logits, scores: (K,) float64, None if the model gives none. rounding:
    relative error of logits in the precision of the model. last_place: relative spacing of numbers in it.
    """

    vote: int
    logits: FloatArray | None = None
    scores: FloatArray | None = None
    rounding: float = FLOAT32_ROUNDING
    last_place: float = 2.0**-23


Ask = Callable[[InputArray], Answer]


class Original(Protocol):
    """The object the user gave."""

    def answer(self, row: InputArray, /) -> Answer:
        """The answer to a single input. row: (*input_shape) float32. Nothing is cached."""


@runtime_checkable
class HasOriginal(Protocol):
    """A base classifier that keeps the object it was made from."""

    original: Original


@runtime_checkable
class Changeable(Protocol):
    """An original that the user may change between two calls, and that detects the change."""

    def check_unchanged(self) -> None:
        """ModelMismatchError if it is no longer the function the classifier was made from. Fast if it is."""


def asking(original: Original, *, scores: bool) -> AbstractContextManager[Ask]:
    """`original.answer` inside the block, for many rows, one at a time: what they have in common is prepared once.

    An original that has something to prepare has a method `asking(scores=…)`, which makes the block.

    scores: whether scores are needed; without, they may be missing in the answers.
    """
    prepare: Callable[..., AbstractContextManager[Ask]] | None = getattr(original, "asking", None)
    return nullcontext(original.answer) if prepare is None else prepare(scores=scores)


def original_of(classifier: BaseClassifier) -> Original:
    """The object behind a base classifier. A base classifier written by the user is its own original."""
    if isinstance(classifier, HasOriginal) and callable(getattr(classifier.original, "answer", None)):
        return classifier.original
    return OneRow(classifier)


class OneRow:
    """A base classifier that is called with one row at a time."""

    def __init__(self, classifier: BaseClassifier) -> None:
        self._classifier = classifier
        # Checked once: comparing an object with a protocol takes longer than a small model.
        self._scoring = classifier if gives_scores(classifier) else None

    def answer(self, row: InputArray, /) -> Answer:
        batch = row[None].copy()  # a model may change its argument
        if self._scoring is not None:
            votes, scores = self._scoring.votes_and_scores(batch)
            return Answer(vote=int(votes[0]), scores=np.asarray(scores[0], dtype=np.float64))
        return Answer(vote=int(self._classifier.classify(batch)[0]))


def is_tie(original: Original, row: InputArray, answer: Answer, vote: int) -> bool:
    """Whether rounding explains that `vote` was counted although the original gives `answer`.

    It does if the two logits agree to the last places, or if the original itself gives that vote when the input is
    moved by a rounding error: then the input lies on a boundary between classes, within rounding. Moving the input
    finds ties of logits that are differences of larger terms, and those of models without logits. Logits that are
    close relative to their size are not enough: a large constant in all of them would excuse everything.
    """
    if _agree_to_the_last_places(answer, vote):
        return True
    # A hundredth of the error of logits: some last digits of the input.
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
    """Whether counted scores are those of the original, within rounding. True if the original has no valid scores."""
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
