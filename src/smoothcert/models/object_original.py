"""An estimator or function as the user gave it, and whether it was changed since. numpy and scipy only."""

from __future__ import annotations

from smoothcert.errors import ModelMismatchError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.digests import contains, object_digest
from smoothcert.models.original import Answer, OneRow, is_tie, same_scores
from smoothcert.records import InputArray

_KEPT = 32


class ObjectOriginal(OneRow):
    """The base classifier, called with one row at a time, and the object it calls.

    The object must keep its digest. Some objects do not, because calling them changes them: they count calls, or keep
    answers. They must keep their answers to the first 32 rows they were asked. Which of the two holds is seen from the
    calls that are made anyway, before this object is made and before the first row is asked.

    value: the object. mark: its `object_digest` before it was called. lenient: as in `object_digest`.
    """

    def __init__(self, classifier: BaseClassifier, value: object, *, mark: str, lenient: bool) -> None:
        super().__init__(classifier)
        self._value = value
        self._mark = mark
        self._lenient = lenient
        self._known: list[tuple[InputArray, Answer]] = []
        self._keeps_digest = self._has_mark()

    def answer(self, row: InputArray, /) -> Answer:
        if not self._known and self._keeps_digest:
            self._keeps_digest = self._has_mark()
        answer = super().answer(row)
        if len(self._known) < _KEPT:
            self._known.append((row.copy(), answer))
        return answer

    def check_unchanged(self) -> None:
        """ModelMismatchError if the digest of the object changed, or its answers if calls change its digest."""
        if self._keeps_digest:
            if self._has_mark():
                return
            # An object that keeps the classifier made from it contains the state of that classifier.
            self._keeps_digest = not contains(self._value, self._classifier, lenient=self._lenient)
        if self._keeps_digest or not all(self._answers_as_before(*known) for known in tuple(self._known)):
            raise ModelMismatchError(
                f"the {type(self._value).__name__} that was given as the model was changed since: what is computed now "
                "is not what its digest names. Make a new SmoothedClassifier for it as it is now"
            )

    def _has_mark(self) -> bool:
        return object_digest(self._value, lenient=self._lenient) == self._mark

    def _answers_as_before(self, row: InputArray, before: Answer) -> bool:
        now = super().answer(row)
        if now.vote != before.vote:
            return is_tie(self, row, now, before.vote)
        return before.scores is None or same_scores(now, before.scores)
