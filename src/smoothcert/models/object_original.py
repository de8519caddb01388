"""An estimator or function as the user gave it, and whether it was changed since. numpy and scipy only."""

from __future__ import annotations

import numpy as np

from smoothcert.errors import ModelError, ModelMismatchError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.digests import contains, object_digest
from smoothcert.models.original import Answer, OneRow, is_tie, same_scores
from smoothcert.models.probe import probe_inputs
from smoothcert.records import FloatArray, InputArray, IntArray

_FEWER = 7
"""Rows of the second batch of `_settle`: other inputs and another size, so that caches of both kinds are noticed."""

_Answers = tuple[IntArray, FloatArray | None]


class ObjectOriginal(OneRow):
    """The base classifier, called with one row at a time, and the object it calls.

    The object must keep its digest. Some objects do not, because calling them changes them: they count calls, or keep
    answers. They must keep their answers to the 32 fixed inputs of a probe. Which of the two holds is found by calling
    the object once the shape of an input is known.

    value: the object. mark: its `object_digest` before it was called. lenient: as in `object_digest`.
    """

    def __init__(self, classifier: BaseClassifier, value: object, *, mark: str, lenient: bool) -> None:
        super().__init__(classifier)
        self._value = value
        self._mark = mark
        self._lenient = lenient
        self._shape: tuple[int, ...] | None = None
        self._answers: _Answers | None = None
        self._keeps_digest = True
        if classifier.input_shape is not None:
            self._settle(classifier.input_shape)

    def answer(self, row: InputArray, /) -> Answer:
        if self._shape is None:
            self._settle(row.shape)
        return super().answer(row)

    def check_unchanged(self) -> None:
        """ModelMismatchError if the digest of the object changed, or its answers if calls change its digest."""
        if self._keeps_digest:
            if self._digest() == self._mark:
                return
            # An object that keeps the classifier made from it contains the state of that classifier.
            self._keeps_digest = not contains(self._value, self._classifier, lenient=self._lenient)
        if self._keeps_digest or not self._answers_as_before():
            raise ModelMismatchError(
                f"the {type(self._value).__name__} that was given as the model was changed since: what is computed now "
                "is not what its digest names. Make a new SmoothedClassifier for it as it is now"
            )

    def _settle(self, shape: tuple[int, ...]) -> None:
        """Store the answers, and find out whether the digest stays. The first call may load something."""
        self._shape = shape
        inputs = probe_inputs(shape)
        try:
            self._answers = self._ask(inputs)
            before, self._mark = self._mark, self._digest()
            if self._mark != before:
                self._ask(1.0 - inputs[:_FEWER])
                before, self._mark = self._mark, self._digest()
                self._keeps_digest = self._mark == before
        except ModelError:  # sampling will say so, if it needs such inputs
            self._mark = self._digest()

    def _digest(self) -> str:
        return object_digest(self._value, lenient=self._lenient)

    def _ask(self, inputs: InputArray) -> _Answers:
        if self._scoring is not None:
            return self._scoring.votes_and_scores(inputs.copy())
        return self._classifier.classify(inputs.copy()), None

    def _answers_as_before(self) -> bool:
        if self._answers is None or self._shape is None:
            return False
        votes, scores = self._answers
        inputs = probe_inputs(self._shape)
        votes_now, scores_now = self._ask(inputs)
        for number in np.flatnonzero(votes_now != votes):
            row = inputs[number]
            if not is_tie(self, row, self.answer(row), int(votes[number])):
                return False
        if scores is None or scores_now is None:
            return scores is scores_now
        asked = zip(votes_now, scores_now, scores, strict=True)
        return all(same_scores(Answer(vote=int(vote), scores=now), before) for vote, now, before in asked)
