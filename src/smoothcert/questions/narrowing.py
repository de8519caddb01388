"""Determine the radius up to a given width, by time-uniform confidence limits."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.certificates import Certificate
from smoothcert.questions.monitor import BoolArray
from smoothcert.records import FloatArray, IntArray, Quantity, Reason, ReasonCode, Smoothing
from smoothcert.statistics import one_sided_lower, time_uniform_upper


class PrecisionMonitor:
    """Certifies the radius at the largest time-uniform lower limit so far, which is wrong with probability at most α.

    Sampling of an input stops when the radius can grow by less than `width`. The largest radius it can reach is the
    smaller of two: the radius at the smallest upper limit so far, which the true p exceeds with probability at most α;
    and the radius at the lower limit after n samples, if all remaining samples were hits. The upper limit only decides
    when to stop; nothing is certified by it.

    sigmas: (m,). alpha: (m,), or one for all.
    """

    def __init__(
        self,
        certificate: Certificate,
        width: float,
        *,
        sigmas: FloatArray,
        smoothing: Smoothing,
        n: int,
        alpha: ArrayLike,
    ) -> None:
        self._certificate = certificate
        self._width = width
        self._sigmas = sigmas
        self._smoothing = smoothing
        self._n = n
        self._alpha = np.broadcast_to(np.asarray(alpha, dtype=np.float64), sigmas.shape)
        self._lower = np.zeros(sigmas.shape)
        self._upper = np.ones(sigmas.shape)
        self._radius = np.zeros(sigmas.shape)
        self._reachable = np.full(sigmas.shape, np.inf)

    @property
    def probability(self) -> FloatArray:
        return self._lower.copy()

    @property
    def radius(self) -> FloatArray:
        return self._radius.copy()

    @property
    def open(self) -> BoolArray:
        return np.asarray(self._reachable - self._radius >= self._width)

    def look(self, rows: IntArray, hits: IntArray, trials: IntArray) -> None:
        alpha = self._alpha[rows]
        lower = np.maximum(self._lower[rows], one_sided_lower(hits, trials, alpha=alpha))
        upper = np.minimum(self._upper[rows], time_uniform_upper(hits, trials, alpha=alpha))
        left = np.maximum(self._n - trials, 0)
        at_best = np.maximum(lower, one_sided_lower(hits + left, trials + left, alpha=alpha))
        self._lower[rows], self._upper[rows] = lower, upper
        self._radius[rows] = self._radius_at(lower, rows)
        ceiling = np.where(upper < 1.0, self._radius_at(np.where(upper < 1.0, upper, 0.5), rows), np.inf)
        self._reachable[rows] = np.minimum(ceiling, self._radius_at(at_best, rows))

    def _radius_at(self, p: FloatArray, rows: IntArray) -> FloatArray:
        return self._certificate.radius({Quantity.TOP_LOWER: p}, sigma=self._sigmas[rows], smoothing=self._smoothing)

    def explain_abstention(self, row: int, *, hits: int, trials: int, label: int) -> Reason:
        numbers = {"width": self._width, "votes": hits, "n": trials, "label": label, "limit": self._n}
        return Reason(ReasonCode.BELOW_PRECISION, numbers)
