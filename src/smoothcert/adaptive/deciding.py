"""Is the radius at least R? A betting test for each R, all of them at α, none of them paid for twice."""

from __future__ import annotations

import numpy as np

from smoothcert.adaptive.judge import BoolArray
from smoothcert.certificates import Certificate
from smoothcert.records import FloatArray, IntArray, Quantity, Smoothing
from smoothcert.statistics import log_threshold, log_wealth_above, log_wealth_below

_BISECTIONS = 64
_SMALLEST_REST = 2.0**-52


class DecidingJudge:
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
    """

    def __init__(self, probabilities: FloatArray, radii: tuple[float, ...], *, n: int, alpha: float) -> None:
        self._p0 = probabilities
        self._possible = np.isfinite(probabilities)
        self._radii = np.array(radii)
        self._n = n
        self._bar = log_threshold(alpha)
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
        possible = self._possible[rows]
        self._yes[rows] |= possible & (log_wealth_above(h, t, p0=p0) >= self._bar)
        self._refuted[rows] |= possible & (log_wealth_below(h, t, p0=p0) >= self._bar)
        # A hit never lowers this bet, so what all hits until n cannot reach cannot be reached.
        at_best = log_wealth_above(h + np.maximum(self._n - t, 0), np.maximum(t, self._n), p0=p0)
        self._hopeless[rows] |= at_best < self._bar

    def nothing_certified(self, row: int, *, hits: int, trials: int, label: int) -> str:
        smallest, votes = self._radii[0], f"{hits} of {trials} votes for class {label}"
        if not self._possible[row, 0]:
            return f"no probability below 1 gives a radius of {smallest:g} at this noise level"
        if self._refuted[row, 0]:
            return f"{votes} refute a radius of {smallest:g}"
        return f"a radius of {smallest:g} is undecided: with {votes} it cannot be proved within {self._n} samples"


def least_probabilities(
    certificate: Certificate, radii: tuple[float, ...], *, sigmas: FloatArray, smoothing: Smoothing
) -> FloatArray:
    """The least probability of the class, to the last digits, at which the certificate was seen to give at least R.

    radii: K. sigmas: (m,). Returns (m, K); nan where not even 1 - 2⁻⁵² gives R. The radius is computed forward at the
    value returned, so that nothing rests on its being monotone but how close to the least one it is. Rounded up.
    """
    levels, place = np.unique(sigmas, return_inverse=True)
    found = [_least(certificate, radius, levels=levels, smoothing=smoothing) for radius in radii]
    return np.stack(found, axis=1)[place]


def _least(certificate: Certificate, radius: float, *, levels: FloatArray, smoothing: Smoothing) -> FloatArray:
    """By bisection in log(1-p), in which probabilities near 1 keep their digits."""

    def reached(p: FloatArray) -> BoolArray:
        return certificate.radius({Quantity.TOP_LOWER: p}, sigma=levels, smoothing=smoothing) >= radius

    best = np.full(levels.shape, 1.0 - _SMALLEST_REST)
    possible = reached(best)
    enough, short = np.full(levels.shape, np.log(_SMALLEST_REST)), np.full(levels.shape, np.log(0.5))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (enough + short)
        p = 1.0 - np.exp(middle)
        good = reached(p)
        best = np.where(good, np.minimum(p, best), best)
        enough, short = np.where(good, middle, enough), np.where(good, short, middle)
    return np.where(possible, best, np.nan)
