"""Decide whether the radius is at least R: one betting test per R, all at level α."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.certificates import Certificate
from smoothcert.questions.monitor import BoolArray
from smoothcert.records import FloatArray, IntArray, Quantity, Reason, ReasonCode, Smoothing
from smoothcert.statistics import log_threshold, log_wealth_above, log_wealth_below

_FARTHEST = 8.0
"""The largest probability that is searched is Φ(8) = 1 - 6e-16."""
_MOST_STEPS = 60
_CONVERGED = 1e-13
_FIRST_STEP = 1e-15


class DecideMonitor:
    """Tests p ≤ p₀(R) against p > p₀(R) for each R, where p₀(R) is the least probability that certifies R.

    "Yes" to R: the bet against p ≤ p₀(R) has reached 1/α at some time, and so have the bets of all smaller R. Rejecting
    p ≤ p₀(R) makes p₀(R) a lower bound on the true p, from which the certificate gives a radius of at least R.

    α is not split among the radii, because the hypotheses are nested. For a given true p, the true hypotheses are
    p ≤ p₀(R_k), …, p ≤ p₀(R_K) for some k, and the k-th is tested first. Any wrong "yes" requires a "yes" to R_k, which
    is also wrong, and whose bet ever reaches 1/α with probability at most α. So with probability at least 1 - α all
    "yes" answers for an input are right.

    "No" to R: the mirrored bet, against p ≥ p₀(R), has reached 1/α; or R is out of reach, because the bet would stay
    below 1/α even if all samples left until n were hits. A "no" also ends the tests of larger radii. A wrong "no" has
    probability at most α. It only leaves a radius uncertified, so it is not part of the α of the certificate. Radii
    that are undecided after n samples are not certified.

    probabilities: (m, K) p₀ for m inputs and K radii in increasing order; nan where no probability certifies R.
    alpha: (m,), or one for all.
    """

    def __init__(self, probabilities: FloatArray, radii: tuple[float, ...], *, n: int, alpha: ArrayLike) -> None:
        self._p0 = probabilities
        self._possible = np.isfinite(probabilities)
        self._radii = np.array(radii)
        self._n = n
        self._bar = np.broadcast_to(log_threshold(alpha), (len(probabilities),))[:, None]
        self._yes = np.zeros(probabilities.shape, dtype=np.bool_)
        self._refuted = np.zeros(probabilities.shape, dtype=np.bool_)
        self._hopeless = ~self._possible

    @property
    def _certified(self) -> IntArray:
        """(m,): the number of radii with a "yes", counted from the smallest up to the first without."""
        return np.asarray(np.cumprod(self._yes, axis=1).sum(axis=1), dtype=np.int64)

    @property
    def probability(self) -> FloatArray:
        return self._at_largest(self._p0)

    @property
    def radius(self) -> FloatArray:
        return self._at_largest(np.broadcast_to(self._radii, self._p0.shape))

    def _at_largest(self, values: FloatArray) -> FloatArray:
        count = self._certified
        found = np.take_along_axis(values, np.maximum(count - 1, 0)[:, None], axis=1)[:, 0]
        return np.where(count > 0, found, 0.0)

    @property
    def open(self) -> BoolArray:
        count = self._certified
        first_other = np.minimum(count, self._radii.size - 1)[:, None]
        closed = np.take_along_axis(self._refuted | self._hopeless, first_other, axis=1)[:, 0]
        return np.asarray((count < self._radii.size) & ~closed)

    def look(self, rows: IntArray, hits: IntArray, trials: IntArray) -> None:
        h, t = hits[:, None], trials[:, None]
        p0 = np.where(self._possible[rows], self._p0[rows], 0.5)
        possible, bar = self._possible[rows], self._bar[rows]
        self._yes[rows] |= possible & (log_wealth_above(h, t, p0=p0) >= bar)
        self._refuted[rows] |= possible & (log_wealth_below(h, t, p0=p0) >= bar)
        # A hit never lowers this bet, so hits only, until n, give the largest value it can reach.
        at_best = log_wealth_above(h + np.maximum(self._n - t, 0), np.maximum(t, self._n), p0=p0)
        self._hopeless[rows] |= at_best < bar

    def explain_abstention(self, row: int, *, hits: int, trials: int, label: int) -> Reason:
        radius = {"radius": float(self._radii[0])}
        if not self._possible[row, 0]:
            return Reason(ReasonCode.RADIUS_IMPOSSIBLE, radius)
        votes = {"votes": hits, "n": trials, "label": label}
        if self._refuted[row, 0]:
            return Reason(ReasonCode.RADIUS_REFUTED, radius | votes)
        return Reason(ReasonCode.RADIUS_UNDECIDED, radius | votes | {"limit": self._n})


def least_probabilities(
    certificate: Certificate, radii: tuple[float, ...], *, sigmas: FloatArray, smoothing: Smoothing
) -> FloatArray:
    """The least probability of the class at which the certificate gives a radius of at least R, rounded up.

    radii: K. sigmas: (m,). Returns (m, K); nan where not even Φ(8) = 1 - 6e-16 gives R. The radius is evaluated at the
    returned probability, so the result is valid even if the radius is not monotone in it; only its closeness to the
    least probability depends on that.
    """
    levels, place = np.unique(sigmas, return_inverse=True)
    found = [_least(certificate, radius, levels=levels, smoothing=smoothing) for radius in radii]
    return np.stack(found, axis=1)[place]


def _least(certificate: Certificate, radius: float, *, levels: FloatArray, smoothing: Smoothing) -> FloatArray:
    """Search by false position (Illinois) in z = Φ⁻¹(p), in which most radii are nearly linear; then round up.

    Converged elements are not changed any more, so no element depends on the others.
    """

    def excess(z: FloatArray) -> FloatArray:
        p = {Quantity.TOP_LOWER: _probability(z)}
        return certificate.radius(p, sigma=levels, smoothing=smoothing) - radius

    low, high = np.zeros(levels.shape), np.full(levels.shape, _FARTHEST)
    at_low, at_high = np.full(levels.shape, -radius), excess(high)
    possible = at_high >= 0
    z, found, side = high, at_high, np.zeros(levels.shape)
    searching = possible
    for _ in range(_MOST_STEPS):
        if not searching.any():
            break
        z = np.where(searching, _false_position(low, high, at_low, at_high), z)
        found = np.where(searching, excess(z), found)
        above = found >= 0
        # The value at an end that is kept twice in a row is halved, or it would be kept forever (Illinois).
        at_low = np.where(searching, np.where(above, np.where(side > 0, 0.5, 1.0) * at_low, found), at_low)
        at_high = np.where(searching, np.where(above, found, np.where(side < 0, 0.5, 1.0) * at_high), at_high)
        low, high = np.where(searching & ~above, z, low), np.where(searching & above, z, high)
        side = np.where(above, 1.0, -1.0)
        searching = searching & (np.abs(found) > _CONVERGED * radius) & (high - low > _CONVERGED * high)
    return np.where(possible, _probability(_up_until_reached(z, excess)), np.nan)


def _probability(z: FloatArray) -> FloatArray:
    return np.asarray(1.0 - special.ndtr(-z), dtype=np.float64)


def _false_position(low: FloatArray, high: FloatArray, at_low: FloatArray, at_high: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        point = (low * at_high - high * at_low) / (at_high - at_low)
    return np.where((point > low) & (point < high), point, 0.5 * (low + high))


def _up_until_reached(z: FloatArray, excess: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Raise z in growing steps until the radius is reached; the farthest z if it is not."""
    step = np.full(z.shape, _FIRST_STEP)
    raised = z
    for _ in range(_MOST_STEPS):
        short = excess(raised) < 0
        if not short.any():
            break
        raised = np.where(short, np.minimum(z * (1.0 + step), _FARTHEST), raised)
        step = np.where(short, 4.0 * step, step)
    return np.where(excess(raised) >= 0, raised, _FARTHEST)
