"""The inputs of a call in Python in the form in which a run keeps them, and the digest they have there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import count_classes, digest_data
from smoothcert.noise import to_grid
from smoothcert.records import InputArray, IntArray

if TYPE_CHECKING:
    from smoothcert.sampling.inputs import InputSource
    from smoothcert.smoothed import SmoothedClassifier

_EIGHT_BITS = 256
_INPUTS_TOGETHER = 256


def to_kept_form(inputs: InputArray, smoothed: SmoothedClassifier) -> NDArray[Any]:
    """The inputs as they are certified; 8-bit images as bytes."""
    if not _keeps_bytes(smoothed):
        return inputs
    return to_grid(inputs, _EIGHT_BITS).astype(np.uint8).reshape(inputs.shape)


def list_labels(source: InputSource) -> IntArray:
    """-1 for an input without a label."""
    return np.array([-1 if label is None else label for label in source.labels], dtype=np.int64)


def digest_inputs(source: InputSource, smoothed: SmoothedClassifier) -> str:
    """The digest of the dataset that a run of these inputs would keep. They are read some at a time."""
    labels = list_labels(source)
    return digest_data(
        _read_parts(source, smoothed),
        labels,
        dtype=np.dtype(np.uint8 if _keeps_bytes(smoothed) else np.float32),
        levels=_EIGHT_BITS if _keeps_bytes(smoothed) else None,
        shape=(len(source), *(smoothed.known_shape or ())),
        num_classes=count_classes(labels, least=len(smoothed.class_names)),
    )


def _keeps_bytes(smoothed: SmoothedClassifier) -> bool:
    ends = smoothed.input_range
    return smoothed.grid == _EIGHT_BITS and ends is not None and tuple(ends) == (0, 1)


def _read_parts(source: InputSource, smoothed: SmoothedClassifier) -> Iterator[NDArray[Any]]:
    for at in range(0, len(source), _INPUTS_TOGETHER):
        part = source.load(range(at, min(at + _INPUTS_TOGETHER, len(source))))
        yield to_kept_form(part, smoothed)
