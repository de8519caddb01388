"""A base classifier of somebody else's making, held to what the protocol says."""

from __future__ import annotations

from typing import Any

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.models.failures import MODEL_FAILURES
from smoothcert.records import FloatArray, InputArray, IntArray


class GuardedClassifier:
    """The same classifier, where what it raises is a ModelError, and votes are whole numbers, one for each input.

    Which classes there are is checked where votes are counted.
    """

    def __init__(self, classifier: Any, *, name: str) -> None:
        check_announced(classifier, name=name)
        self._classifier = classifier
        self._name = name
        self.num_classes: int = classifier.num_classes
        self.input_shape: tuple[int, ...] | None = classifier.input_shape
        self.digest: str = classifier.digest
        self.description = str(getattr(classifier, "description", name))
        self.backend: str = classifier.backend
        self.concurrency: int = classifier.concurrency
        self.gives_scores = bool(getattr(classifier, "gives_scores", False))

    def classify(self, batch: InputArray, /) -> IntArray:
        votes = np.asarray(self._asked("classify", batch))
        if votes.shape != (len(batch),) or votes.dtype.kind not in "iu":
            raise ModelError(
                f"{self._name} gives {votes.dtype} votes of shape {votes.shape} for {len(batch)} inputs; expected "
                f"whole numbers of shape ({len(batch)},)"
            )
        return votes.astype(np.int64, copy=False)

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        answer = self._asked("votes_and_scores", batch)
        try:
            votes, scores = (np.asarray(part) for part in answer)
        except MODEL_FAILURES as error:
            raise ModelError(f"{self._name} gives no pair of votes and scores: {error}") from error
        return votes, scores

    def prepare_thread(self) -> None:
        self._classifier.prepare_thread()

    def release_threads(self) -> None:
        self._classifier.release_threads()

    def _asked(self, method: str, batch: InputArray) -> Any:
        try:
            return getattr(self._classifier, method)(batch)
        except ModelError:
            raise
        except MODEL_FAILURES as error:
            raise ModelError(
                f"{self._name} failed on a float32 batch of shape {batch.shape}: {type(error).__name__}: {error}"
            ) from error


def check_announced(classifier: Any, *, name: str) -> None:
    """ModelError unless what a base classifier says about itself is of the types the protocol names."""
    wanted: dict[str, tuple[type, ...]] = {
        "num_classes": (int,), "concurrency": (int,), "digest": (str,), "backend": (str,),
        "input_shape": (tuple, type(None)),
    }  # fmt: skip
    for attribute, kinds in wanted.items():
        value = getattr(classifier, attribute)
        if not isinstance(value, kinds) or (isinstance(value, int) and value < 1):
            raise ModelError(f"{name} is a base classifier whose {attribute} is {value!r}: see BaseClassifier for it")
