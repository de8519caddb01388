"""The inputs of a call in Python in the form in which a run keeps them, and the digest they have there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import DataDigest, count_classes
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


class InputDigest:
    """The digest of the dataset that a run of these inputs would keep.

    Inputs that are read while they are sampled can be added then (`watch`); the others are read some at a time.
    """

    def __init__(self, source: InputSource, smoothed: SmoothedClassifier) -> None:
        self._source, self._smoothed = source, smoothed
        self._labels = list_labels(source)
        self._added = 0
        self._digest = DataDigest(
            dtype=np.dtype(np.uint8 if _keeps_bytes(smoothed) else np.float32),
            levels=_EIGHT_BITS if _keeps_bytes(smoothed) else None,
            shape=(len(source), *(smoothed.known_shape or ())),
            num_classes=count_classes(self._labels, least=len(smoothed.class_names)),
        )

    def watch(self) -> InputSource:
        """The same inputs, which are added as they are loaded, as long as they come in order and none is left out."""

        def load(positions: Sequence[int]) -> InputArray:
            inputs = self._source.load(positions)
            if list(positions) == list(range(self._added, self._added + len(positions))):
                self._add(inputs)
            return inputs

        return dataclasses.replace(self._source, load=load)

    def finish(self) -> str:
        """The digest. Inputs that were not added are read."""
        for at in range(self._added, len(self._source), _INPUTS_TOGETHER):
            self._add(self._source.load(range(at, min(at + _INPUTS_TOGETHER, len(self._source)))))
        return self._digest.finish(self._labels)

    def _add(self, inputs: InputArray) -> None:
        self._digest.add(to_kept_form(inputs, self._smoothed))
        self._added += len(inputs)


def _keeps_bytes(smoothed: SmoothedClassifier) -> bool:
    ends = smoothed.input_range
    return smoothed.grid == _EIGHT_BITS and ends is not None and tuple(ends) == (0, 1)
