"""From what a model returns to scores in [0, 1], one for each class, that add up to 1. numpy only."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import ModelError
from smoothcert.models.base import BaseClassifier, ScoringClassifier
from smoothcert.models.votes import votes_from_logits
from smoothcert.records import FloatArray, InputArray, IntArray

_UNEVEN = 2.0**-8
"""Probabilities of a sample that miss a sum of 1 by more than this are no probabilities. Those of a softmax rounded to
bfloat16 miss it by up to 2⁻⁹.
"""

_TRIED_SIGMAS = (0.0, 0.1, 0.5, 2.0)
_TRIED_ROWS = 16


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


class ScoreRule(StrEnum):
    """How scores come from what a model answers. Decided once for each classifier, by `decided_rule`."""

    SOFTMAX = "softmax of logits"
    PROBABILITIES = "probabilities as given"
    NOT_TRIED = "softmax of logits, not tried"

    @property
    def note(self) -> str:
        """For the end of a description: nothing where scores are what one expects."""
        return f"; scores are {self}" if self is ScoreRule.PROBABILITIES else ""

    def votes_and_scores(self, outputs: NDArray[np.floating[Any]]) -> tuple[IntArray, FloatArray]:
        """Votes (B,) as `votes_from_logits`, and scores (B, K) in float64, for outputs (B, K).

        A row without a valid vote has scores 0. ModelError where a model that was found to answer with probabilities
        does not, and where one that could not be tried does.
        """
        if self is ScoreRule.PROBABILITIES:
            return _votes_and_probabilities(outputs)
        if self is ScoreRule.NOT_TRIED and _are_probabilities(outputs):
            raise ModelError(
                "the model answers with numbers that are not negative and add up to 1 for each input, so they seem to "
                "be probabilities, not logits; give input_shape, so that the model can be tried before it is used"
            )
        return votes_and_softmax(outputs)


def decided_rule(
    answer: Callable[[InputArray], NDArray[np.floating[Any]]], *, input_shape: tuple[int, ...] | None
) -> ScoreRule:
    """Whether a model answers with probabilities: all its rows, for inputs in [0, 1] with noise of several levels, are
    non-negative and add up to 1. Rows without a valid vote do not count.

    answer: from (B, *input_shape) to (B, K). A model that gives logits is asked for one batch only. Without input_shape
    it cannot be tried.
    """
    if input_shape is None:
        return ScoreRule.NOT_TRIED
    random = np.random.default_rng(0)
    shape = (_TRIED_ROWS, *input_shape)
    found = False
    for sigma in _TRIED_SIGMAS:
        noisy = random.random(shape) + sigma * random.standard_normal(shape)
        try:
            outputs = answer(noisy.astype(np.float32))
        except ModelError:  # it will be told where the model is used
            return ScoreRule.NOT_TRIED
        is_valid = votes_from_logits(outputs) < outputs.shape[1]
        if not is_valid.any():
            continue
        if not _are_probabilities(outputs[is_valid]):
            return ScoreRule.SOFTMAX
        found = True
    return ScoreRule.PROBABILITIES if found else ScoreRule.SOFTMAX


def _are_probabilities(rows: NDArray[np.floating[Any]]) -> bool:
    # Written so that NaN is refused too.
    totals = rows.sum(axis=1, dtype=np.float64)
    return bool((rows >= 0.0).all() and (np.abs(totals - 1.0) <= _UNEVEN).all())


def _votes_and_probabilities(outputs: NDArray[np.floating[Any]]) -> tuple[IntArray, FloatArray]:
    votes = votes_from_logits(outputs)
    is_valid = votes < outputs.shape[1]
    if not _are_probabilities(outputs[is_valid]):
        raise ModelError(
            "the model gave probabilities when it was tried, so its answers are used as scores, and now gives values "
            "that are none: negative, or not adding up to 1; give a model that answers with logits"
        )
    wide = np.where(is_valid[:, None], outputs, 0.0).astype(np.float64)
    wide /= np.where(is_valid, wide.sum(axis=1), 1.0)[:, None]
    return votes, wide


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
    if not _are_probabilities(wide):
        raise ModelError(f"{of} gives probabilities that are negative, not finite, or do not add up to 1")
    wide /= totals
    return wide
