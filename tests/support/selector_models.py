"""Selectors among three noise levels for the bundled digits. They look at how bright a digit is on the whole."""

from __future__ import annotations

import numpy as np

_CENTRES = np.array([0.25, 0.3, 0.35])


def by_brightness(batch: np.ndarray) -> np.ndarray:
    """Three scores: dark, between, bright."""
    bright = batch.reshape(len(batch), -1).astype(np.float64).mean(axis=1)
    return -np.abs(bright[:, None] - _CENTRES)


def finite_where_dark(batch: np.ndarray) -> np.ndarray:
    """The same; not finite where a digit is bright."""
    scores = by_brightness(batch)
    return np.where(scores.argmax(axis=1)[:, None] == len(_CENTRES) - 1, np.nan, scores)


def never_finite(batch: np.ndarray) -> np.ndarray:
    return np.full((len(batch), len(_CENTRES)), np.nan)


def of_two_levels(batch: np.ndarray) -> np.ndarray:
    return by_brightness(batch)[:, :2]
