"""σ of many inputs of a dataset, with progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, IntArray
from smoothcert.sigma.base import SigmaRule

if TYPE_CHECKING:
    from smoothcert.data import Dataset

_CHUNK = 500

Done = Callable[[int, int], None]
"""Hears (inputs done, inputs in all)."""


def dataset_sigmas(
    rule: SigmaRule, dataset: Dataset, indices: IntArray | None = None, *, progress: Done | None = None
) -> FloatArray:
    """σ of the inputs at `indices`, or of all: (len(indices),) float64, positive and finite.

    An input for which the rule has no such σ is an InputError. What `progress` raises ends the work.
    """
    chosen = np.arange(len(dataset)) if indices is None else indices
    sigmas = np.empty(len(chosen))
    for start in range(0, len(chosen), _CHUNK):
        part = chosen[start : start + _CHUNK]
        sigmas[start : start + len(part)] = rule.sigmas(dataset.inputs(part))
        if progress is not None:
            progress(start + len(part), len(chosen))
    unusable = np.flatnonzero(~(np.isfinite(sigmas) & (sigmas > 0)))
    if len(unusable) > 0:
        index = int(unusable[0])
        raise InputError(
            f"{len(unusable)} of {len(chosen)} inputs of {dataset.name} ({dataset.split}) have no positive finite "
            f"sigma, the first is input {int(chosen[index])} with {sigmas[index]}: lower the rate of the rule, or give "
            "it a largest value"
        )
    return sigmas


def evenly_spread(size: int, *, most: int | None) -> IntArray:
    """At most this many of the numbers 0 … size-1, evenly spread."""
    count = size if most is None else min(most, size)
    return np.linspace(0, size - 1, count).astype(np.int64)
