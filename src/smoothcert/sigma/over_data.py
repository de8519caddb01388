"""σ of many inputs of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, IntArray
from smoothcert.sigma.rule import SigmaRule

if TYPE_CHECKING:
    from smoothcert.data import Dataset

_CHUNK = 500

Done = Callable[[int, int], None]
"""A progress callback: called with (inputs done, inputs in total)."""


def compute_sigmas(
    rule: SigmaRule, dataset: Dataset, indices: IntArray | None = None, *, progress: Done | None = None
) -> FloatArray:
    """Return σ of the inputs at `indices` (default: all), (len(indices),) float64, positive and finite.

    Raises InputError if the rule gives another value. An exception raised by `progress` stops the work.
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
            f"sigma, the first is input {int(chosen[index])} with {sigmas[index]}: lower the rate of the rule, or "
            "limit sigma with --most"
        )
    return sigmas


def spread_evenly(size: int, *, most: int | None) -> IntArray:
    """Return at most `most` of the indices 0 … size-1, evenly spread."""
    count = size if most is None else min(most, size)
    return np.linspace(0, size - 1, count).astype(np.int64)
