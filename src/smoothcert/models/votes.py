"""From the values a model returns to votes, and the checks that all adapters share. numpy only."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, ModelError
from smoothcert.records import InputArray, IntArray

if TYPE_CHECKING:
    import torch

FloatingArray = NDArray[np.floating[Any]]

_MANY_ROWS = 64
"""Fewer rows are not worth loading the compiled function."""


class LogitsWarning(UserWarning):
    """A model answers with more than logits; the message says which part is taken."""


def find_logits(answer: object) -> tuple[object, str]:
    """The logits in what a model returns, and where they are: "" if the answer has none, or is not divided.

    Known are the outputs of Hugging Face models (`.logits`), a mapping with an entry "logits", and a tuple whose first
    part is (batch, classes). `warn_of_logits` refuses a tuple with other parts like that.
    """
    if isinstance(answer, Mapping) and "logits" in answer:
        return answer["logits"], "its entry 'logits'"
    if (logits := getattr(answer, "logits", None)) is not None:
        return logits, "its attribute logits"
    if isinstance(answer, tuple) and answer and getattr(answer[0], "ndim", None) == 2:
        return answer[0], f"the first of its {len(answer)} parts"
    return answer, ""


def warn_of_logits(answer: object, place: str) -> None:
    """Say once which part of the answer is certified. ModelError if several parts of a tuple could be the logits."""
    if isinstance(answer, tuple) and getattr(answer, "logits", None) is None:
        _refuse_unclear(answer)
    name = type(answer).__name__
    warnings.warn(f"the model answers with a {name}; {place} is taken as its logits", LogitsWarning, stacklevel=2)


def _refuse_unclear(parts: tuple[Any, ...]) -> None:
    shapes = [tuple(getattr(part, "shape", ())) for part in parts]
    alike = [shape for shape in shapes if len(shape) == 2 and shape[0] == shapes[0][0]]
    if len(alike) > 1:
        raise ModelError(
            f"the model answers {alike[0][0]} inputs with a tuple, and {len(alike)} of its parts could be the logits, "
            f"of shapes {' and '.join(map(str, alike))}; give a wrapper that returns the logits alone"
        )


def votes_from_logits(logits: FloatingArray) -> IntArray:
    """One vote per row of (B, K) logits: (B,) int64 in {0, …, K}.

    The largest logit wins, and ties go to the lowest class: numpy.argmax returns the first of equal maxima. It treats
    NaN as the largest value, so the winning value shows whether a row is valid: NaN, +inf, or -inf (then all logits
    are -inf) give K, the invalid vote.
    """
    is_plain = logits.dtype in (np.float32, np.float64) and logits.flags.c_contiguous
    compiled = _find_compiled() if is_plain and len(logits) >= _MANY_ROWS else None
    if compiled is None:
        return _votes_with_numpy(logits)
    votes = np.empty(len(logits), dtype=np.int64)
    compiled(logits, votes)
    return votes


def _votes_with_numpy(logits: FloatingArray) -> IntArray:
    """The reference for the compiled function, and the fallback. Its branches depend on the logits, which is slow."""
    votes: IntArray = logits.argmax(axis=1).astype(np.int64, copy=False)
    is_valid = np.isfinite(logits[np.arange(len(logits)), votes])
    if not is_valid.all():
        votes[~is_valid] = logits.shape[1]
    return votes


@functools.cache
def _find_compiled() -> Callable[[FloatingArray, IntArray], None] | None:
    """The compiled function, if numba is installed and it agrees with plain numpy."""
    try:
        from smoothcert.models.votes_with_numba import WRITE_VOTES
    except ImportError:
        return None
    values = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan, 1.0])
    for dtype in (np.float32, np.float64):
        logits: FloatingArray = np.stack(np.meshgrid(values, values, values), axis=-1).reshape(-1, 3).astype(dtype)
        votes = np.empty(len(logits), dtype=np.int64)
        WRITE_VOTES(logits, votes)
        if not np.array_equal(votes, _votes_with_numpy(logits)):
            warnings.warn("compiled votes are not exact on this machine; plain numpy is used", stacklevel=3)
            return None
    found: Callable[[FloatingArray, IntArray], None] = WRITE_VOTES
    return found


def votes_from_answer(answer: object, *, batch_size: int, num_classes: int) -> IntArray:
    """Votes from (B, K) numeric logits or from (B,) integer or boolean labels 0 … K-1."""
    values = np.asarray(answer)
    if values.ndim == 2 and values.dtype.kind in "fiu":
        check_logits_shape(values.shape, batch_size=batch_size, num_classes=num_classes)
        return votes_from_logits(values.astype(np.float64) if values.dtype.kind != "f" else values)
    if values.shape != (batch_size,) or values.dtype.kind not in "iub":
        raise ModelError(
            f"the model answered with {values.dtype} values of shape {values.shape} for {batch_size} inputs; expected "
            f"logits of shape ({batch_size}, {num_classes}) or integer labels of shape ({batch_size},)"
        )
    labels = values.astype(np.int64, copy=False)
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


def check_batch(batch: InputArray | torch.Tensor, input_shape: tuple[int, ...] | None) -> None:
    """InputError unless the inputs in `batch` have the shape that the model takes."""
    if input_shape is not None and tuple(batch.shape[1:]) != input_shape:
        raise InputError(f"inputs of shape {tuple(batch.shape[1:])} were given, but the model takes {input_shape}")


def resolve_num_classes(found: int | None, asked: int | None) -> int:
    """The number of classes. found: from the model; asked: from the caller. Both may be None, but must agree."""
    if found is not None and asked is not None and found != asked:
        raise ModelError(f"the model answers with {found} classes, but num_classes={asked} was given")
    count = asked if found is None else found
    if count is None:
        raise InputError(
            "the number of classes is not known: the model returns labels, not logits, or its input shape is unknown; "
            "give num_classes (--num-classes)"
        )
    if count < 2:
        raise ModelError(f"the model answers with {count} class; certification needs at least 2, one logit for each")
    return count
