"""Levels of noise for points of the plane, importable by name from the command line too."""

from __future__ import annotations

import numpy as np


def wider_above(x: np.ndarray) -> float:
    return 0.3 + 0.05 * abs(float(x[1]))


def narrower_above(x: np.ndarray) -> float:
    return 0.5 - 0.05 * min(abs(float(x[1])), 4.0)
