"""Any Python function as a base classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import ModelError
from smoothcert.models.adapter import MODEL_FAILURES, AnswerAdapter
from smoothcert.models.digests import object_digest, text_digest
from smoothcert.models.object_original import ObjectOriginal
from smoothcert.models.scores import decide_rule
from smoothcert.models.votes import find_logits, resolve_num_classes, warn_of_logits
from smoothcert.records import InputArray


class CallableClassifier(AnswerAdapter):
    """A function from a (B, *input_shape) float32 array to (B, K) logits or (B,) labels 0 … K-1 (see `find_logits`).

    It must be deterministic and must not change its argument. One thread calls it at a time. Scores are the softmax of
    the logits, or the outputs themselves if they are probabilities (`scores_are`). A function that returns labels, or
    whose input_shape is unknown, has no scores.

    The digest covers the function's name, code, defaults, closure, the object it is a method of, and the global names
    that it and other functions of the user read, with their content: arrays, estimators, torch modules. It does *not*
    cover what the function reads elsewhere, such as a file. Objects that cannot be read, such as an open onnxruntime
    session, count by their type only. Give `digest` (for example the SHA-256 of the weight file) so that a run is not
    resumed with other weights.
    """

    def __init__(
        self,
        function: Callable[[InputArray], object],
        *,
        num_classes: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        digest: str | None = None,
    ) -> None:
        self.name = _qualified_name(function)
        # Before the function is called, which may change what it refers to.
        content = object_digest(function, lenient=True)
        self._function = function
        self.input_shape = input_shape
        self._logits_place: str | None = None
        found = self._count_classes()
        self.num_classes = resolve_num_classes(found, num_classes)
        self.gives_scores = found is not None
        self.backend = "python callable"
        self.scores_are = decide_rule(self._logits, input_shape=input_shape if self.gives_scores else None)
        self.description = f"callable {self.name}{self.scores_are.note}"
        backend = self.backend + self.scores_are.note
        self.digest = text_digest(backend, self.name, content, str(self.num_classes), digest or "")
        self.concurrency = 1
        self.original = ObjectOriginal(self, function, mark=content, lenient=True)

    def _answer(self, batch: InputArray, /) -> NDArray[Any]:
        try:
            answer = self._function(batch)
            found, place = find_logits(answer)
            logits = np.asarray(found)
        except MODEL_FAILURES as error:
            raise ModelError(
                f"{self.name} failed on a float32 batch of shape {batch.shape}: {type(error).__name__}: {error}"
            ) from error
        if callable(answer):
            raise ModelError(f"{self.name} answers a batch of inputs with a {type(answer).__name__}, not with logits")
        if place and self._logits_place is None:
            warn_of_logits(answer, place)
        self._logits_place = place
        return logits


def _qualified_name(function: object) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '?')}.{getattr(named, '__qualname__', '?')}"
