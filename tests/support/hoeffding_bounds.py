"""Hoeffding's bounds on a mean: the loosest of three proofs, for comparison with those that smoothcert uses."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.records import FloatArray
from smoothcert.statistics import check_alpha
from smoothcert.statistics.means import _check_mean, _mirror, _subtract_margin


def hoeffding_lower(mean: ArrayLike, n: ArrayLike, *, alpha: float) -> FloatArray:
    """Lower (1-α) confidence bound: mean - sqrt(ln(1/α)/(2n)) (Hoeffding 1963).

    mean: sample means in [0, 1]; n ≥ 1: numbers of values; shapes broadcast. Returns float64 in [0, 1], rounded down.
    """
    check_alpha(alpha)
    average, count = _check_mean(mean, n)
    return _subtract_margin(average, np.sqrt(math.log(1.0 / alpha) / (2.0 * count)))


def hoeffding_upper(mean: ArrayLike, n: ArrayLike, *, alpha: float) -> FloatArray:
    """Upper (1-α) confidence bound by Hoeffding's inequality. Arguments as `hoeffding_lower`; rounded up."""
    return _mirror(hoeffding_lower(1.0 - np.asarray(mean, dtype=np.float64), n, alpha=alpha))
