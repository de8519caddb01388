"""Is the radius at least R? One betting test for each R, all at level α."""

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
"""Φ(8) = 1 - 6e-16: the largest probability that is asked for, in standard deviations."""
_MOST_STEPS = 60
_CONVERGED = 1e-13
_FIRST_STEP = 1e-15


class DecideMonitor:
    """Tests p ≤ p₀(R) against p > p₀(R) for every R, where p₀(R) is the least probability that certifies R.

    "Yes" to R: the bet against p ≤ p₀(R) has ever reached 1/α, and so has that for every smaller R. Rejecting p ≤ p₀(R)
    makes p₀(R) a lower bound on the true p, from which the certificate gives a radius of at least R.

    Why α is not split among the radii: let the true p be given. The hypotheses are nested, so those that are true are
    p ≤ p₀(R_k), …, p ≤ p₀(R_K) for some k, and the first of them in the order of testing is the k-th. Any wrong "yes"
    needs a "yes" to R_k first, which is wrong too, and whose bet ever reaches 1/α with probability at most α. So all
    answers of an input together are wrong with probability at most α.

    "No" to R: the mirrored bet, against p ≥ p₀(R), has reached 1/α, or R can no longer be reached: with every sample
    left until n a hit the bet would stay below 1/α. A wrong "no" promises nothing to anybody; it only leaves a radius
    uncertified, with probability at most α, and so is no part of the α of the certificate. A "no" ends the questions
    about larger radii. What is undecided after n samples counts as not certified.

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
        """(m,): to how many radii, from the smallest on, the answer is yes."""
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
        # A hit never lowers this bet, so what all hits until n cannot reach cannot be reached.
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
    """The least probability of the class, to the last digits, at which the certificate was seen to give at least R.

    radii: K. sigmas: (m,). Returns (m, K); nan where not even Φ(8) = 1 - 6e-16 gives R. The radius is computed forward
    at the value returned, so that nothing rests on its being monotone but how close to the least one it is. Rounded up.
    """
    levels, place = np.unique(sigmas, return_inverse=True)
    found = [_least(certificate, radius, levels=levels, smoothing=smoothing) for radius in radii]
    return np.stack(found, axis=1)[place]


def _least(certificate: Certificate, radius: float, *, levels: FloatArray, smoothing: Smoothing) -> FloatArray:
    """By false position (Illinois) in z = Φ⁻¹(p), in which most radii are nearly straight lines; then up until seen.

    An element stands still once it has converged, so that none depends on which others are looked for.
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
        # The end that stays for a second time counts half, or it would stay for good.
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
    """z raised, by steps that grow, until the radius was seen to be reached; the farthest z where it is not."""
    step = np.full(z.shape, _FIRST_STEP)
    raised = z
    for _ in range(_MOST_STEPS):
        short = excess(raised) < 0
        if not short.any():
            break
        raised = np.where(short, np.minimum(z * (1.0 + step), _FARTHEST), raised)
        step = np.where(short, 4.0 * step, step)
    return np.where(excess(raised) >= 0, raised, _FARTHEST)
