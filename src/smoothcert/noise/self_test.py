"""Whether the noise of this machine is what it must be, now: known answers, tails, and fresh draws against the law.

A healthy generator fails with a probability below 1e-9. Known answers, symmetry and tails are certain. The six
statistical tests below have a false alarm of at most 1e-10 each, by inequalities that hold for every number of draws:
one by that of Dvoretzky, Kiefer, Wolfowitz and Massart, P(sup|F_n - F| > ε) ≤ 2 exp(-2nε²), five by Bernstein's. That
is 6e-10 in all. The draws come from a seed of the operating system, so this is a new test every time.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from smoothcert.errors import NoiseError
from smoothcert.noise import constants as c
from smoothcert.noise import grid, grid_with_numpy, host, with_numpy
from smoothcert.noise.grid_law import GridLaw, grid_law
from smoothcert.noise.thresholds import WORD_BITS
from smoothcert.records import FloatArray, Noise, Stage, StreamId

_ROWS, _SIZE = 256, 784
"""Fresh draws: 200704, made as noise for images is."""
_ALARM = 1e-10
_LOG = math.log(2 / _ALARM)
_POWERS = (1, 2, 3, 4)
_MOST_TAILS = 1000
"""No more thresholds of the tail are compared."""
_LIBRARY = 1e-12
"""What the C library may be wrong by, as a fraction: a hundred times more than it is."""
_FAR, _VERY_FAR = 5.7, 8.0
"""Standard deviations: Box–Muller on 24 bits ends at the first; noise on a grid must reach beyond the second."""


def check_noise(noise: Noise, *, sigma: float, levels: int | None) -> None:
    """Test the noise that a run would use, in host memory; a NoiseError says what is wrong.

    levels: of the grid, or None for noise in floating point. sigma: its level.
    """
    _check_known_answers()
    stream = StreamId(seed=secrets.randbits(128), index=0, stage=Stage.SELECTION)
    if levels is None:
        _check_reach_in_floating_point(noise)
        draws = host.unit_noise(noise, stream, start=0, count=_ROWS, size=_SIZE).astype(np.float64)
        _check_distribution(draws, _ideal(noise), what=f"{noise} noise in floating point")
        return
    law = grid_law(noise, sigma=sigma, levels=levels)
    _check_tables(law)
    steps = grid.grid_draws(law, stream, start=0, count=_ROWS, size=_SIZE)
    _check_distribution(steps / _scale(law), _exact(law), what=f"{noise} noise on a grid of {levels} levels")


def _fail(what: str) -> None:
    raise NoiseError(
        f"self-test of the noise: {what}. Nothing that is certified with it could be trusted, so nothing is. Try again "
        "without compiled code (uninstall numba); if the test fails again, the machine or the installation is at fault"
    )


def _check_known_answers() -> None:
    """The block function of ChaCha20 at RFC 8439, 2.3.2; Philox at an answer published with it."""
    key = grid_with_numpy.as_key(bytes(range(32)))
    position = (0x00000001, 0x09000000, 0x4A000000, 0x00000000)
    p0, p1, p2, p3 = (np.array([word], dtype=np.uint32) for word in position)
    words = tuple(int(word[0]) for word in grid_with_numpy.chacha((p0, p1, p2, p3), key))
    if words != (
        0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3, 0xC7F4D1C7, 0x0368C033, 0x9AAA2204, 0x4E6CD4C3,
        0x466482D2, 0x09AA9F07, 0x05D7C214, 0xA2028BD9, 0xD19C12B5, 0xB94E16DE, 0xE883D0CB, 0x4E3C50A2,
    ):  # fmt: skip
        _fail("ChaCha20 does not give the answer of RFC 8439")
    zero = np.zeros(1, dtype=np.uint64)
    found = tuple(int(word[0]) for word in with_numpy.philox((zero, zero, zero, zero), (0, 0)))
    if found != (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8):
        _fail("Philox4x32-10 does not give its published answer")


def _check_reach_in_floating_point(noise: Noise) -> None:
    """The word 0 must give noise of 6.66 standard deviations, or the least of uniform noise."""
    zero = np.zeros(1, dtype=np.uint64)
    reached = abs(float(with_numpy.from_words(noise, zero, zero, zero, zero)[0][0]))
    expected = math.sqrt(2 * (c.RADIUS_BITS + 1) * math.log(2)) if noise is Noise.GAUSSIAN else 1.0
    if not math.isclose(reached, expected, rel_tol=1e-5):
        _fail(f"{noise} noise in floating point reaches {reached:.3f} at most, not {expected:.3f}")


def _check_tables(law: GridLaw) -> None:
    """Symmetry; the tail beyond 5.7 standard deviations against the C library; how far the extreme words reach."""
    if (law.thresholds + law.thresholds[::-1]).any():
        _fail("the tables of the noise are not symmetric")
    scale = _scale(law)
    below = np.arange(law.least + 1, 1)  # thresholds of P(j < i) for i ≤ 0
    if law.noise is Noise.GAUSSIAN:
        below = below[(below - 0.5) / scale <= -_FAR]
    some = slice(None, None, 1 + len(below) // _MOST_TAILS)
    for i, threshold in zip(below[some].tolist(), law.thresholds[: len(below)][some].tolist(), strict=True):
        expected = _probability_below(law.noise, (i - 0.5) / scale) * 2.0**WORD_BITS
        if abs(threshold - expected) > 0.5 + _LIBRARY * expected:
            _fail(f"the tables of the noise are wrong {-(i - 0.5) / scale:.2f} from the middle")
    word = np.array([0, c.WORD], dtype=np.uint32)
    least, most = grid_with_numpy.settled(law, word >> np.uint32(16), word, word).tolist()
    reached = min(-(least + law.least), most + law.least) + 0.5
    if reached / scale < (_VERY_FAR if law.noise is Noise.GAUSSIAN else 1.0 - 0.5 / scale):
        _fail(f"the extreme words give noise of {reached / scale:.2f} at most")


@dataclass(frozen=True, slots=True, eq=False)
class _Expected:
    """What draws should be like. below: P(draw < edge) for the edges; moments: E z^p, p = 1 … 8; most: of |z|."""

    edges: FloatArray
    below: FloatArray
    moments: FloatArray
    most: float


def _check_distribution(draws: FloatArray, expected: _Expected, *, what: str) -> None:
    """draws: (rows, size), independent and all of this distribution."""
    flat, moments, most = draws.ravel(), expected.moments, expected.most
    n = flat.size
    counts, _ = np.histogram(flat, bins=np.concatenate([[-np.inf], expected.edges, [np.inf]]))
    distance = float(np.abs(np.cumsum(counts)[:-1] / n - expected.below).max())
    if distance > math.sqrt(_LOG / (2 * n)):
        _fail(f"the distribution of {n} fresh draws of {what} is {distance:.2g} away from what it should be")
    power = np.ones_like(flat)
    for p in _POWERS:
        power *= flat
        mean, variance = moments[p - 1], moments[2 * p - 1] - moments[p - 1] ** 2
        found = float(power.mean())
        if abs(found - mean) > _bernstein(n, variance=variance, most=2 * most**p):
            _fail(f"the mean of z^{p} over {n} fresh draws of {what} is {found:.6g} and should be {mean:.6g}")
    product = float((draws[:, 0::2] * draws[:, 1::2]).mean())
    if abs(product) > _bernstein(n // 2, variance=moments[1] ** 2, most=most**2):
        _fail(f"neighbouring draws of {what} depend on each other: the mean of their product is {product:.6g}")


def _bernstein(n: int, *, variance: float, most: float) -> float:
    """The mean of n independent variables within `most` of their mean is farther than this from it with probability at
    most _ALARM: for t, the sum's deviation, P ≤ 2 exp(-(t²/2) / (n·variance + most·t/3)).
    """
    linear = most * _LOG / 3
    return (linear + math.sqrt(linear**2 + 2 * n * variance * _LOG)) / n


def _scale(law: GridLaw) -> float:
    return float(Fraction(law.sigma) * (law.levels - 1))


def _probability_below(noise: Noise, z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2)) if noise is Noise.GAUSSIAN else min(max((1 + z) / 2, 0.0), 1.0)


def _ideal(noise: Noise) -> _Expected:
    """Of noise of level 1 in floating point. That it ends at 6.66 standard deviations changes these moments by less
    than a thousandth of what is allowed.
    """
    edges = np.linspace(-6.0, 6.0, 385) if noise is Noise.GAUSSIAN else np.linspace(-1.0, 1.0, 385)[1:-1]
    below = np.array([_probability_below(noise, z) for z in edges.tolist()])
    even = (1.0, 3.0, 15.0, 105.0) if noise is Noise.GAUSSIAN else (1 / 3, 1 / 5, 1 / 7, 1 / 9)
    moments = np.array([0.0, even[0], 0.0, even[1], 0.0, even[2], 0.0, even[3]])
    return _Expected(edges, below, moments, most=6.7 if noise is Noise.GAUSSIAN else 1.0)


def _exact(law: GridLaw) -> _Expected:
    """Of j/scale, from the tables; edges between the values, at most about a thousand of them."""
    below = law.thresholds / 2.0**WORD_BITS
    values = np.arange(law.least, law.most + 1) / _scale(law)
    mass = np.diff(below, prepend=0.0, append=1.0)
    moments = np.array([float(mass @ values**p) for p in range(1, 9)])
    some = slice(None, None, max(1, len(below) // 512))
    return _Expected(((values[1:] + values[:-1]) / 2)[some], below[some], moments, most=float(values[-1]))
