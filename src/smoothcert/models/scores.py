"""From what a model returns to scores in [0, 1], one for each class, that add up to 1. numpy only."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import ModelError
from smoothcert.models.base import BaseClassifier, ScoringClassifier
from smoothcert.models.votes import votes_from_logits
from smoothcert.records import FloatArray, IntArray

_UNEVEN = 1e-3
"""Probabilities of a sample that miss a sum of 1 by more than this are no probabilities."""


def gives_scores(classifier: BaseClassifier) -> TypeGuard[ScoringClassifier]:
    """Whether the model says how strongly it holds for each class."""
    return isinstance(classifier, ScoringClassifier) and classifier.gives_scores


def scoring(classifier: BaseClassifier) -> ScoringClassifier:
    """The classifier, if it gives scores; else a ModelError that says what to do."""
    if gives_scores(classifier):
        return classifier
    raise ModelError(
        f"soft smoothing averages the scores of the classes, and {classifier.description} gives only votes; use a "
        "model that answers with logits (for scikit-learn: one with predict_proba), or a certificate over votes, such "
        "as gaussian"
    )


def votes_and_softmax(logits: NDArray[np.floating[Any]]) -> tuple[IntArray, FloatArray]:
    """Votes (B,) as `votes_from_logits`, and the softmax (B, K) in float64, for (B, K) logits.

    A row without a valid vote has scores 0. Each row is computed by itself, in the same order whatever its company.
    """
    votes = votes_from_logits(logits)
    wide = np.array(logits, dtype=np.float64, order="C")
    valid = votes < logits.shape[1]
    wide[~valid] = 0.0
    wide -= wide.max(axis=1, keepdims=True)
    np.exp(wide, out=wide)
    wide /= wide.sum(axis=1, keepdims=True)
    wide[~valid] = 0.0
    return votes, wide


def normalised_probabilities(answer: object, *, votes: IntArray, num_classes: int, of: str) -> FloatArray:
    """What `predict_proba` returned as scores (B, num_classes) that add up to 1. of: the model, for messages."""
    values = np.asarray(answer)
    if values.shape != (len(votes), num_classes) or values.dtype.kind != "f":
        raise ModelError(
            f"{of} gives {values.dtype} probabilities of shape {values.shape} for {len(votes)} inputs; expected floats "
            f"of shape ({len(votes)}, {num_classes})"
        )
    wide = np.array(values, dtype=np.float64, order="C")
    totals = wide.sum(axis=1, keepdims=True)
    # Written so that NaN is refused too.
    if not ((wide >= 0.0).all() and (np.abs(totals - 1.0) <= _UNEVEN).all()):
        raise ModelError(f"{of} gives probabilities that are negative, not finite, or do not add up to 1")
    wide /= totals
    return wide
