"""From what a model returns to votes, and the checks every adapter shares. numpy only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, ModelError
from smoothcert.records import InputArray, IntArray


def votes_from_logits(logits: NDArray[np.floating[Any]]) -> IntArray:
    """One vote a row of (B, K) logits: (B,) int64 in {0, …, K}.

    The largest logit wins and a tie goes to the lowest class: numpy.argmax promises the first of equal
    maxima. A NaN counts as larger than any number there, so the winner's own value tells whether the row is
    valid: NaN, +inf, or -inf (then all are) give K, the invalid vote.
    """
    winners = logits.argmax(axis=1)
    largest = np.take_along_axis(logits, winners[:, None], axis=1)[:, 0]
    votes: IntArray = np.where(np.isfinite(largest), winners, logits.shape[1]).astype(np.int64, copy=False)
    return votes


def votes_from_answer(answer: object, *, batch_size: int, num_classes: int) -> IntArray:
    """Votes from what a foreign function returned: (B, K) float logits, or (B,) integer or boolean labels 0 …
    K-1.
    """
    values = np.asarray(answer)
    if values.ndim == 2 and values.dtype.kind in "fiu":
        check_logits_shape(values.shape, batch_size=batch_size, num_classes=num_classes)
        return votes_from_logits(values.astype(np.float64) if values.dtype.kind != "f" else values)
    if values.shape == (batch_size,) and values.dtype.kind in "iub":
        return _checked_labels(values.astype(np.int64, copy=False), num_classes)
    raise ModelError(
        f"the model answered with {values.dtype} values of shape {values.shape} for {batch_size} inputs; expected "
        f"logits of shape ({batch_size}, {num_classes}) or integer labels of shape ({batch_size},)"
    )


def _checked_labels(labels: IntArray, num_classes: int) -> IntArray:
    if labels.size and (int(labels.min()) < 0 or int(labels.max()) >= num_classes):
        raise ModelError(
            f"the model answered with labels from {labels.min()} to {labels.max()}; with num_classes={num_classes} "
            f"they must lie in 0 … {num_classes - 1}"
        )
    return labels


def check_logits_shape(shape: tuple[int, ...], *, batch_size: int, num_classes: int) -> None:
    """ModelError unless `shape` is (batch_size, num_classes)."""
    if tuple(shape) != (batch_size, num_classes):
        raise ModelError(
            f"the model answered {batch_size} inputs with values of shape {tuple(shape)}; expected logits of shape "
            f"({batch_size}, {num_classes})"
        )


def check_batch(batch: InputArray, input_shape: tuple[int, ...] | None) -> None:
    """InputError unless one input of `batch` has the shape the model takes."""
    if input_shape is not None and batch.shape[1:] != input_shape:
        raise InputError(f"inputs of shape {batch.shape[1:]} were given, but the model takes {input_shape}")


def known_num_classes(found: int | None, asked: int | None) -> int:
    """The number of classes: what the model shows, what the caller says, or both if they agree."""
    if found is not None and asked is not None and found != asked:
        raise ModelError(f"the model answers with {found} classes, but num_classes={asked} was given")
    count = asked if found is None else found
    if count is None:
        raise InputError(
            "the number of classes is not known: the model answers with classes, not logits, or was not tried yet; "
            "give num_classes (--num-classes)"
        )
    if count < 2:
        raise ModelError(f"the model answers with {count} class; certification needs at least 2, one logit for each")
    return count
