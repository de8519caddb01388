"""A base classifier written by the user, checked against the protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.models.adapter import MODEL_FAILURES
from smoothcert.models.backends import get_backend_name
from smoothcert.records import FloatArray, InputArray, IntArray

_ATTRIBUTES: dict[str, tuple[type, ...]] = {
    "num_classes": (int,), "concurrency": (int,), "digest": (str,), "backend": (str,),
    "input_shape": (tuple, type(None)),
}  # fmt: skip
_METHODS = ("classify", "prepare_thread", "release_threads")


def is_base_classifier(model: object) -> bool:
    """Whether the model has all attributes and methods of a base classifier."""
    return not isinstance(model, type) and all(hasattr(model, name) for name in (*_METHODS, *_ATTRIBUTES))


class GuardedClassifier:
    """The same classifier. Whatever it raises becomes a ModelError, and votes must be one integer per input.

    The range of the votes is checked where votes are counted.
    """

    def __init__(self, classifier: Any, *, name: str) -> None:
        check_attributes(classifier, name=name)
        self._classifier = classifier
        self._name = name
        self.num_classes: int = classifier.num_classes
        self.input_shape: tuple[int, ...] | None = classifier.input_shape
        self.digest: str = classifier.digest
        self.description = str(getattr(classifier, "description", name))
        self.backend: str = classifier.backend
        self.backend_name = get_backend_name(classifier)
        self.concurrency: int = classifier.concurrency
        self.gives_scores = bool(getattr(classifier, "gives_scores", False))
        self.class_names = getattr(classifier, "class_names", ())
        self.feature_names = getattr(classifier, "feature_names", ())
        self.prepare_thread = classifier.prepare_thread
        self.release_threads = classifier.release_threads

    def classify(self, batch: InputArray, /) -> IntArray:
        votes = np.asarray(self._call("classify", batch))
        if votes.shape != (len(batch),) or votes.dtype.kind not in "iu":
            raise ModelError(
                f"{self._name} gives {votes.dtype} votes of shape {votes.shape} for {len(batch)} inputs; expected "
                f"whole numbers of shape ({len(batch)},)"
            )
        return votes.astype(np.int64, copy=False)

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        answer = self._call("votes_and_scores", batch)
        try:
            votes, scores = (np.asarray(part) for part in answer)
        except MODEL_FAILURES as error:
            raise ModelError(f"{self._name} gives no pair of votes and scores: {error}") from error
        return votes, scores

    def _call(self, method: str, batch: InputArray) -> Any:
        try:
            return getattr(self._classifier, method)(batch)
        except ModelError:
            raise
        except MODEL_FAILURES as error:
            raise ModelError(
                f"{self._name} failed on a float32 batch of shape {batch.shape}: {type(error).__name__}: {error}"
            ) from error


def check_attributes(classifier: Any, *, name: str) -> None:
    """ModelError unless the attributes of a base classifier have the types that the protocol names."""
    for attribute, kinds in _ATTRIBUTES.items():
        value = getattr(classifier, attribute)
        if not isinstance(value, kinds) or (isinstance(value, int) and value < 1):
            raise ModelError(f"{name} is a base classifier whose {attribute} is {value!r}: see BaseClassifier for it")
