"""From the values a model returns to scores: one in [0, 1] per class, summing to 1. numpy only."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeGuard

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.models.base import BaseClassifier, ScoringClassifier
from smoothcert.models.votes import FloatingArray, votes_from_logits
from smoothcert.records import FloatArray, InputArray, IntArray

_UNEVEN = 2.0**-8
"""Largest deviation of a sum of probabilities from 1. A softmax rounded to bfloat16 deviates by up to 2⁻⁹."""

_TRIAL_SIGMAS = (0.0, 0.1, 0.5, 2.0)
_TRIAL_ROWS = 16


def gives_scores(classifier: BaseClassifier) -> TypeGuard[ScoringClassifier]:
    """Whether the model gives a score for each class."""
    return isinstance(classifier, ScoringClassifier) and classifier.gives_scores


def require_scores(classifier: BaseClassifier) -> ScoringClassifier:
    """The classifier itself; ModelError if it gives no scores."""
    if gives_scores(classifier):
        return classifier
    raise ModelError(
        f"soft smoothing averages the scores of the classes, and {classifier.description} gives only votes; use a "
        "model that answers with logits (for scikit-learn: one with predict_proba), or a certificate over votes, such "
        "as gaussian"
    )


class ScoreRule(StrEnum):
    """How scores are computed from the outputs of a model. `decide_rule` chooses it once for each classifier."""

    SOFTMAX = "softmax of logits"
    PROBABILITIES = "probabilities as given"
    NOT_TRIED = "softmax of logits, not tried"

    @property
    def note(self) -> str:
        """Suffix for descriptions; empty for the softmax of logits."""
        return f"; scores are {self}" if self is ScoreRule.PROBABILITIES else ""

    def votes_and_scores(self, outputs: FloatingArray) -> tuple[IntArray, FloatArray]:
        """Votes (B,) as in `votes_from_logits`, and scores (B, K) float64, for outputs (B, K).

        The scores of a row without a valid vote are 0. ModelError if a model of probabilities returns other values,
        and if an untried model seems to return probabilities.
        """
        if self is ScoreRule.PROBABILITIES:
            return _votes_and_probabilities(outputs)
        if self is ScoreRule.NOT_TRIED and _are_probabilities(outputs):
            raise ModelError(
                "the model returns values that are not negative and sum to 1 for each input, so they seem to be "
                "probabilities, not logits; give input_shape, so that the model can be tried before it is used"
            )
        return votes_and_softmax(outputs)


def decide_rule(
    compute_outputs: Callable[[InputArray], FloatingArray], *, input_shape: tuple[int, ...] | None
) -> ScoreRule:
    """Try the model on inputs in [0, 1] with noise of several levels.

    It returns probabilities if all rows with a valid vote are non-negative and sum to 1. compute_outputs:
    (B, *input_shape) → (B, K); a model that returns logits is called once. Without input_shape nothing is tried.
    """
    if input_shape is None:
        return ScoreRule.NOT_TRIED
    random = np.random.default_rng(0)
    shape = (_TRIAL_ROWS, *input_shape)
    found = False
    for sigma in _TRIAL_SIGMAS:
        noisy = random.random(shape) + sigma * random.standard_normal(shape)
        try:
            outputs = compute_outputs(noisy.astype(np.float32))
        except ModelError:  # raised again when the model is used
            return ScoreRule.NOT_TRIED
        is_valid = votes_from_logits(outputs) < outputs.shape[1]
        if not is_valid.any():
            continue
        if not _are_probabilities(outputs[is_valid]):
            return ScoreRule.SOFTMAX
        found = True
    return ScoreRule.PROBABILITIES if found else ScoreRule.SOFTMAX


def _are_probabilities(rows: FloatingArray) -> bool:
    # Written so that NaN is refused too.
    totals = rows.sum(axis=1, dtype=np.float64)
    return bool((rows >= 0.0).all() and (np.abs(totals - 1.0) <= _UNEVEN).all())


def _votes_and_probabilities(outputs: FloatingArray) -> tuple[IntArray, FloatArray]:
    votes = votes_from_logits(outputs)
    is_valid = votes < outputs.shape[1]
    if not _are_probabilities(outputs[is_valid]):
        raise ModelError(
            "the model returned probabilities when it was tried, so its outputs are used as scores, but now it returns "
            "values that are negative or do not sum to 1; give a model that returns logits"
        )
    wide = np.where(is_valid[:, None], outputs, 0.0).astype(np.float64)
    wide /= np.where(is_valid, wide.sum(axis=1), 1.0)[:, None]
    return votes, wide


def votes_and_softmax(logits: FloatingArray) -> tuple[IntArray, FloatArray]:
    """Votes (B,) as in `votes_from_logits`, and the softmax (B, K) in float64, of (B, K) logits.

    The scores of a row without a valid vote are 0. A row is computed in the same order in every batch.
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


def normalise_probabilities(answer: object, *, votes: IntArray, num_classes: int, model: str) -> FloatArray:
    """Scores (B, num_classes) from what `predict_proba` returned. model: its name in messages."""
    values = np.asarray(answer)
    if values.shape != (len(votes), num_classes) or values.dtype.kind != "f":
        raise ModelError(
            f"{model} gives {values.dtype} probabilities of shape {values.shape} for {len(votes)} inputs; expected "
            f"floats of shape ({len(votes)}, {num_classes})"
        )
    wide = np.array(values, dtype=np.float64, order="C")
    totals = wide.sum(axis=1, keepdims=True)
    if not _are_probabilities(wide):
        raise ModelError(f"{model} gives probabilities that are negative, not finite, or do not add up to 1")
    wide /= totals
    return wide
