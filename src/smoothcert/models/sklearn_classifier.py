"""A fitted scikit-learn classifier, or any object with `predict` and `classes_`, as a base classifier."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.models.adapter import MODEL_FAILURES
from smoothcert.models.digests import object_digest, text_digest
from smoothcert.models.object_original import ObjectOriginal
from smoothcert.models.scores import ScoreRule, normalise_probabilities
from smoothcert.models.tabular_names import get_feature_names
from smoothcert.models.votes import check_batch, resolve_num_classes
from smoothcert.pandas_extra import import_pandas
from smoothcert.records import FloatArray, InputArray, IntArray
from smoothcert.records.class_names import name_classes


class SklearnClassifier:
    """Votes are `estimator.predict`, numbered by position in `estimator.classes_`; scores are `predict_proba`.

    Inputs are flattened to (B, features). An estimator that was fitted on a frame gets frames with its columns.

    class_names: of `classes_`, empty if they are 0, 1, 2, … feature_names: of the frame it was fitted on. One thread
    calls it at a time, because estimators need not be thread-safe; it may use every core. The digest covers every
    fitted parameter, and `original` detects that it changed.
    """

    def __init__(
        self, estimator: Any, *, num_classes: int | None = None, input_shape: tuple[int, ...] | None = None
    ) -> None:
        name = type(estimator).__name__
        classes = getattr(estimator, "classes_", None)
        if classes is None:
            raise ModelError(
                f"the scikit-learn estimator {name} has no classes_: it is not a fitted classifier; fit it first"
            )
        if not isinstance(classes, np.ndarray) or classes.ndim != 1:
            raise ModelError(
                f"the scikit-learn estimator {name} predicts several outputs at once; give one with a single output"
            )
        features = getattr(estimator, "n_features_in_", None)
        if input_shape is not None and features is not None and math.prod(input_shape) != features:
            raise ModelError(
                f"inputs of shape {input_shape} have {math.prod(input_shape)} values, "
                f"but the estimator was fitted on {features}"
            )
        self._estimator = estimator
        self.gives_scores = callable(getattr(estimator, "predict_proba", None))
        self.scores_are = ScoreRule.PROBABILITIES
        self._order = np.argsort(classes)
        self._sorted_classes = classes[self._order]
        self.num_classes = resolve_num_classes(int(classes.size), num_classes)
        self.class_names = name_classes(classes.tolist())
        self.feature_names = get_feature_names(estimator)
        self._columns = _make_index(self.feature_names) if self.feature_names else None
        self.input_shape = input_shape
        self.backend = "scikit-learn"
        self.description = f"scikit-learn {name}, {self.num_classes} classes"
        content = object_digest(estimator)
        self.digest = text_digest(self.backend, content)
        self.concurrency = 1
        self.original = ObjectOriginal(self, estimator, mark=content, lenient=False)

    def classify(self, batch: InputArray, /) -> IntArray:
        check_batch(batch, self.input_shape)
        predicted = self._call("predict", batch)
        try:
            found = np.searchsorted(self._sorted_classes, predicted).clip(max=self.num_classes - 1)
            known = predicted.ndim == 1 and np.array_equal(self._sorted_classes[found], predicted)
        except TypeError:  # the predictions cannot be compared with the classes
            known = False
        if not known:
            raise ModelError(f"{self.description} predicted something that is not in its classes_")
        positions: IntArray = self._order[found].astype(np.int64, copy=False)
        return positions

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        votes = self.classify(batch)
        answer = self._call("predict_proba", batch)
        return votes, normalise_probabilities(answer, votes=votes, num_classes=self.num_classes, model=self.description)

    def prepare_thread(self) -> None:
        """Nothing to prepare."""

    def release_threads(self) -> None:
        """Nothing to undo."""

    def _call(self, method: str, batch: InputArray) -> np.ndarray[Any, Any]:
        try:
            # A copy: transformers with copy=False change their argument, which may be used again.
            rows: Any = batch.reshape(len(batch), -1).copy()
            if self._columns is not None:
                rows = _make_frame(rows, self._columns)
            return np.asarray(getattr(self._estimator, method)(rows))
        except MODEL_FAILURES as error:
            raise ModelError(
                f"{self.description} refused a batch of shape {batch.shape}: {type(error).__name__}: {error}"
            ) from error


def _make_index(names: tuple[str, ...]) -> Any:
    """The columns of a frame, made once."""
    return import_pandas("an estimator that was fitted on a frame").Index(names)


def _make_frame(rows: InputArray, columns: Any) -> Any:
    """A frame around these rows; nothing is copied."""
    import pandas as pd

    return pd.DataFrame(rows, columns=columns, copy=False)
