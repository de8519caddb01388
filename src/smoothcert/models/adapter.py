"""What the adapters of all kinds of models share. numpy only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import ModelError
from smoothcert.models.scores import ScoreRule
from smoothcert.models.votes import (
    FloatingArray,
    check_batch,
    check_logits_shape,
    votes_from_answer,
    votes_from_logits,
)
from smoothcert.records import FloatArray, InputArray, IntArray

MODEL_FAILURES = (Exception, SystemExit, GeneratorExit)
"""What model code may raise, except KeyboardInterrupt. A model that calls sys.exit(0) must not end a run silently."""


class Adapter(ABC):
    """Votes and scores from logits. Subclasses set the attributes of `BaseClassifier`.

    backend_name: the value of `backend=` that loads the same function again, None if there is only one back end.
    has_independent_rows: whether the logits of a row are the same bits in every batch.
    """

    backend_name: str | None = None
    has_independent_rows = False
    gives_scores = True
    input_shape: tuple[int, ...] | None
    num_classes: int
    scores_are: ScoreRule

    @abstractmethod
    def _logits(self, batch: InputArray, /) -> FloatingArray:
        """Logits (B, num_classes) of a checked batch."""

    def classify(self, batch: InputArray, /) -> IntArray:
        return votes_from_logits(self._logits(batch))

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        return self.scores_are.votes_and_scores(self._logits(batch))

    def prepare_thread(self) -> None:  # noqa: B027
        """Nothing to prepare."""

    def release_threads(self) -> None:  # noqa: B027
        """Nothing to undo."""

    def in_calling_thread(self) -> AbstractContextManager[None]:
        """A block in which the calling thread may call `classify` as a prepared one does; restored at its end."""
        return nullcontext()


class AnswerAdapter(Adapter):
    """A model that returns logits (B, K) or labels (B,). name: how messages call the model."""

    name: str

    @abstractmethod
    def _answer(self, batch: InputArray, /) -> NDArray[Any]:
        """What the model returns; ModelError if it fails."""

    def classify(self, batch: InputArray, /) -> IntArray:
        check_batch(batch, self.input_shape)
        return votes_from_answer(self._answer(batch), batch_size=len(batch), num_classes=self.num_classes)

    def _logits(self, batch: InputArray, /) -> FloatingArray:
        check_batch(batch, self.input_shape)
        logits = self._answer(batch)
        if logits.dtype.kind not in "fiu":
            raise ModelError(f"{self.name} answers with {logits.dtype} values; expected logits (batch, classes)")
        check_logits_shape(logits.shape, batch_size=len(batch), num_classes=self.num_classes)
        return logits.astype(np.float64) if logits.dtype.kind != "f" else logits

    def _count_classes(self) -> int | None:
        """Columns of the logits of two zero inputs. None if the input shape is unknown or labels are returned."""
        if self.input_shape is None:
            return None
        answer = self._answer(np.zeros((2, *self.input_shape), dtype=np.float32))
        return answer.shape[1] if answer.ndim == 2 else None
