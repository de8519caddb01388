"""Estimates of how far each noise level reaches around an input, from a few samples. They train, and prove nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from smoothcert.records import FloatArray, IntArray, ScoreTally
from smoothcert.records.score_cells import SCORE_CEILING, SCORE_FLOOR

MOST_PROVED = 3.3
"""Φ⁻¹ of about the largest probability that a certification proves: with 15000 samples at α = .001."""
_LOGS = np.log(np.maximum((SCORE_FLOOR + SCORE_CEILING) / 2, 1e-9))
"""Logarithms of the scores in each cell."""


@dataclass(frozen=True, slots=True)
class DepthCurve:
    """What depths mean at one level: `quantiles` Φ⁻¹(p) at these `depths`, both ascending, and linear between them."""

    depths: FloatArray
    quantiles: FloatArray

    def read(self, depths: FloatArray) -> FloatArray:
        """Φ⁻¹(p) at any depths; beyond the ends, that of the end."""
        read: FloatArray = np.interp(depths, self.depths, self.quantiles)
        return read


@dataclass(frozen=True, slots=True)
class LevelVotes:
    """What `n` samples of N inputs at each of K levels say about the input's label.

    votes: (N, K) int64, how many were given the label. depths: (N, K) float64, an estimate of Φ⁻¹ of the probability of
    the label by `estimate_depth`. By a few samples it tells .99 and .9999 apart, which votes cannot; nan where the
    model gives no scores. curves: of each level, what a depth means; None to take it as it is.
    """

    votes: IntArray
    depths: FloatArray
    levels: tuple[float, ...]
    n: int
    curves: tuple[DepthCurve | None, ...] | None = None

    def take(self, rows: IntArray) -> LevelVotes:
        """Those of some inputs."""
        return replace(self, votes=self.votes[rows], depths=self.depths[rows])

    @property
    def radii(self) -> FloatArray:
        """(N, K): estimated radius within which a level alone answers the label, σ Φ⁻¹(p); 0 where p is at most ½.

        At most MOST_PROVED · σ. Without scores p = (votes + ½)/(n + 1).
        """
        return np.maximum(self._margins, 0.0)

    @property
    def best(self) -> IntArray:
        """(N,): the level of the largest radius; if none has any, that of largest probability, the first in a tie."""
        best: IntArray = self._scores.argmax(axis=1).astype(np.int64)
        return best

    def soften(self, softness: float) -> NDArray[np.float32]:
        """(N, K) float32: distributions over the levels, proportional to exp(radius / softness).

        A level whose radius is smaller than the best by much less than `softness` is nearly as probable as the best.
        """
        soft: NDArray[np.float32] = special.softmax(self._scores / softness, axis=1).astype(np.float32)
        return soft

    @property
    def _quantiles(self) -> FloatArray:
        quantiles = special.ndtri((self.votes + 0.5) / (self.n + 1))
        for number, curve in enumerate(self.curves or (None,) * len(self.levels)):
            depths, scored = self.depths[:, number], ~np.isnan(self.depths[:, number])
            quantiles[scored, number] = (depths if curve is None else curve.read(depths))[scored]
        limited: FloatArray = np.clip(quantiles, -MOST_PROVED, MOST_PROVED)
        return limited

    @property
    def _margins(self) -> FloatArray:
        margins: FloatArray = np.asarray(self.levels) * self._quantiles
        return margins

    @property
    def _scores(self) -> FloatArray:
        """The radii; for a probability p below ½ the negative number p - ½, so that the most probable level is best."""
        quantiles = self._quantiles
        return np.where(quantiles > 0, self._margins, special.ndtr(quantiles) - 0.5)


def estimate_depth(tally: ScoreTally) -> float:
    """About mean over deviation of log s - log s', of the label's score s and the largest other one s'.

    For a margin that is normal under noise that is Φ⁻¹ of the probability of the label; a `DepthCurve` says what it is
    for others. The sum of the deviations is taken for the deviation of the difference: never too small, and hardly too
    large, because s' falls as s rises. nan if not all samples have a finite answer.
    """
    if tally.invalid or tally.n < 2:
        return math.nan
    own, others = (_describe_logs(cells, hits) for cells, hits in (tally.top_scores(), tally.other_scores()))
    return (own[0] - others[0]) / max(own[1] + others[1], 1e-6)


def _describe_logs(cells: IntArray, hits: IntArray) -> tuple[float, float]:
    """Mean and deviation of the logarithms of scores."""
    logs, n = _LOGS[cells], int(hits.sum())
    mean = float(hits @ logs) / n
    return mean, math.sqrt(float(hits @ (logs - mean) ** 2) / (n - 1))


def choose_spread(depths: FloatArray, *, most: int) -> IntArray:
    """At most `most` inputs whose depths are spread evenly over the range of all, by index."""
    limited = np.clip(depths, -MOST_PROVED, MOST_PROVED)
    order = np.argsort(limited, kind="stable")
    wanted = np.linspace(limited.min(), limited.max(), min(most, len(depths)))
    places = np.minimum(np.searchsorted(limited[order], wanted), len(order) - 1)
    chosen: IntArray = np.unique(order[places]).astype(np.int64)
    return chosen


def fit_curve(depths: FloatArray, votes: IntArray, *, n: int) -> DepthCurve:
    """The ascending curve closest to the quantiles that `n` votes of inputs of these depths show (isotonic regression).

    The inputs may be chosen by their depths, not by their votes, which are other samples.
    """
    order = np.argsort(depths, kind="stable")
    seen = special.ndtri((votes[order] + 0.5) / (n + 1))
    fitted: FloatArray = np.asarray(optimize.isotonic_regression(seen).x, dtype=np.float64)
    return DepthCurve(np.asarray(depths[order], dtype=np.float64), fitted)
