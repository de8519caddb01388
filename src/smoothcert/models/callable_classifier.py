"""Any Python function as a base classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import ModelError
from smoothcert.models.digests import object_digest, text_digest
from smoothcert.models.failures import MODEL_FAILURES
from smoothcert.models.scores import decided_rule
from smoothcert.models.votes import check_batch, check_logits_shape, known_num_classes, votes_from_answer
from smoothcert.records import FloatArray, InputArray, IntArray


class CallableClassifier:
    """A function from a (B, *input_shape) float32 array to (B, K) logits or (B,) labels 0 … K-1.

    It must be deterministic and must not change what it was given. One thread calls it at a time. Scores are the
    softmax of the logits, or the answers themselves where they are probabilities (`scores_are`); a function that
    returns labels, or whose input_shape is not known, has none.

    The digest covers the function's name, its code, defaults, closure, the object it is a method of, and the global
    names that it and other functions of the user's own read, with all their content: arrays, estimators, torch
    modules. It does *not* see what the function reads elsewhere, such as a file, and of an object that cannot be read,
    such as an open onnxruntime session, it sees the type alone. Give `digest` (say, the SHA-256 of the weight file) so
    that a run resumed with other weights is refused.
    """

    def __init__(
        self,
        function: Callable[[InputArray], object],
        *,
        num_classes: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        digest: str | None = None,
    ) -> None:
        name = _qualified_name(function)
        # Before the function is called, which may change what it refers to.
        content = object_digest(function, lenient=True)
        self._function = function
        self.input_shape = input_shape
        found = self._tried_num_classes()
        self.num_classes = known_num_classes(found, num_classes)
        self.gives_scores = found is not None
        self.backend = "python callable"
        self.scores_are = decided_rule(self._logits, input_shape=input_shape if self.gives_scores else None)
        self.description = f"callable {name}{self.scores_are.note}"
        self.digest = text_digest(
            self.backend + self.scores_are.note, name, content, str(self.num_classes), digest or ""
        )
        self.concurrency = 1

    def classify(self, batch: InputArray, /) -> IntArray:
        check_batch(batch, self.input_shape)
        return votes_from_answer(self._answer(batch), batch_size=len(batch), num_classes=self.num_classes)

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        check_batch(batch, self.input_shape)
        return self.scores_are.votes_and_scores(self._logits(batch))

    def _logits(self, batch: InputArray) -> NDArray[np.floating[Any]]:
        logits = self._answer(batch)
        if logits.dtype.kind not in "fiu":
            raise ModelError(
                f"{_qualified_name(self._function)} answers with {logits.dtype} values; expected logits "
                "(batch, classes)"
            )
        check_logits_shape(logits.shape, batch_size=len(batch), num_classes=self.num_classes)
        return logits.astype(np.float64) if logits.dtype.kind != "f" else logits

    def prepare_thread(self) -> None:
        """Nothing to prepare: what the function does inside is its own business."""

    def release_threads(self) -> None:
        """Nothing to undo."""

    def _answer(self, batch: InputArray) -> NDArray[Any]:
        try:
            return np.asarray(self._function(batch))
        except MODEL_FAILURES as error:
            raise ModelError(
                f"{_qualified_name(self._function)} failed on a float32 batch of shape {batch.shape}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _tried_num_classes(self) -> int | None:
        """Columns of the logits for two zero inputs; None if the shape is not known or labels come back."""
        if self.input_shape is None:
            return None
        answer = self._answer(np.zeros((2, *self.input_shape), dtype=np.float32))
        return answer.shape[1] if answer.ndim == 2 else None


def _qualified_name(function: object) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '?')}.{getattr(named, '__qualname__', '?')}"
