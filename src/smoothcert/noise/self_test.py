"""Self-test of the noise on this machine: known answers, tails of the tables, and fresh draws against the law.

A correct generator fails with a probability below 1e-9. The checks of known answers, symmetry and tails are
deterministic. Each of the six statistical tests has a false-alarm probability of at most 1e-10, by inequalities that
hold for every number of draws: one by Dvoretzky, Kiefer, Wolfowitz and Massart, P(sup|F_n - F| > ε) ≤ 2 exp(-2nε²),
five by Bernstein. That is 6e-10 in total. Each test draws from a fresh seed of the operating system.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np

from smoothcert.errors import NoiseError
from smoothcert.noise import constants as c
from smoothcert.noise import grid_noise, grid_with_numpy, host, with_numpy
from smoothcert.noise.chacha import as_key, chacha
from smoothcert.noise.grid_law import GridLaw, grid_law
from smoothcert.noise.law import WORD_BITS
from smoothcert.noise.laws import additive_law_of
from smoothcert.noise.splitting import check_splitting, required_levels
from smoothcert.records import FloatArray, Noise, Stage, StreamId

_ROWS, _SIZE = 256, 784
"""Shape of the fresh draws: 200704 values, as for images."""
_ALARM = 1e-10
_LOG = math.log(2 / _ALARM)
_POWERS = (1, 2, 3, 4)
_MOST_TAILS = 1000
"""At most this many thresholds of the tail are compared."""
_LIBRARY = 1e-12
"""Allowed relative error of the C library: a hundred times its actual error."""
_ROUNDED = 2.0**-51
"""Allowed relative error of a place in units of the scale, which is rounded twice. It matters at the end of uniform
noise, where the probability is 0 and its slope is not."""


def check_noise(noise: Noise, *, sigma: float, levels: int | None) -> None:
    """Test the noise that a run would use, in host memory; raise a NoiseError that says what is wrong.

    levels: of the grid, or None for noise in floating point. sigma: the noise level.
    """
    _check_known_answers()
    if not noise.sampled:
        check_splitting(sigma, levels=required_levels(levels))
        return
    stream = StreamId(seed=secrets.randbits(128), index=0, stage=Stage.SELECTION)
    if levels is None:
        _check_reach_in_floating_point(noise)
        draws = host.unit_noise(noise, stream, start=0, count=_ROWS, size=_SIZE).astype(np.float64)
        _check_distribution(draws, _ideal_distribution(noise), what=f"{noise} noise in floating point")
        return
    law = grid_law(noise, sigma=sigma, levels=levels)
    _check_tables(law)
    steps = grid_noise.grid_draws(law, stream, start=0, count=_ROWS, size=_SIZE)
    _check_distribution(steps / law.scale, _table_distribution(law), what=f"{noise} noise on a grid of {levels} levels")


def _fail(what: str) -> None:
    raise NoiseError(
        f"self-test of the noise: {what}. Certificates made with this noise would be invalid, so none is made. Try "
        "again without compiled code (uninstall numba); if the test fails again, the machine or the installation is "
        "faulty"
    )


def _check_known_answers() -> None:
    """ChaCha20 against RFC 8439, 2.3.2; Philox against a published answer."""
    key = as_key(bytes(range(32)))
    position = (0x00000001, 0x09000000, 0x4A000000, 0x00000000)
    p0, p1, p2, p3 = (np.array([word], dtype=np.uint32) for word in position)
    words = tuple(int(word[0]) for word in chacha((p0, p1, p2, p3), key))
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
    """The random word 0 must give an extreme value of the noise."""
    zero, law = np.zeros(1, dtype=np.uint64), additive_law_of(noise)
    reached = abs(float(law.lanes_with_numpy((zero, zero, zero, zero))[0][0]))
    expected = law.self_test.float_reach
    if not math.isclose(reached, expected, rel_tol=1e-5):
        _fail(f"{noise} noise in floating point reaches {reached:.3f} at most, not {expected:.3f}")


def _check_tables(law: GridLaw) -> None:
    """Check symmetry, the tail against the C library, and the noise that the extreme words give."""
    if (law.thresholds + law.thresholds[::-1]).any():
        _fail("the tables of the noise are not symmetric")
    scale, ideal = law.scale, additive_law_of(law.noise)
    below = np.arange(law.least + 1, 1)  # thresholds of P(j < i) for i ≤ 0
    below = below[(below - 0.5) / scale <= -ideal.self_test.tail_from]
    some = slice(None, None, 1 + len(below) // _MOST_TAILS)
    for i, threshold in zip(below[some].tolist(), law.thresholds[: len(below)][some].tolist(), strict=True):
        place = (i - 0.5) / scale
        low, high = (ideal.probability_below(place * (1.0 + error)) * 2.0**WORD_BITS for error in (_ROUNDED, -_ROUNDED))
        if not (1.0 - _LIBRARY) * low - 0.5 <= threshold <= (1.0 + _LIBRARY) * high + 0.5:
            _fail(f"the tables of the noise are wrong {-place:.2f} from the middle")
    word = np.array([0, c.WORD], dtype=np.uint32)
    least, most = grid_with_numpy.settle(law, word >> np.uint32(16), word, word).tolist()
    reached = min(-(least + law.least), most + law.least) + 0.5
    if reached / scale < ideal.least_grid_reach(scale):
        _fail(f"the extreme words give noise of {reached / scale:.2f} at most")


@dataclass(frozen=True, slots=True, eq=False)
class _Distribution:
    """The expected distribution. below: P(draw < edge) for the edges; moments: E z^p, p = 1 … 8; most: bounds |z|."""

    edges: FloatArray
    below: FloatArray
    moments: FloatArray
    most: float


def _check_distribution(draws: FloatArray, expected: _Distribution, *, what: str) -> None:
    """Test draws: (rows, size), which must be independent and have this distribution."""
    flat, moments, most = draws.ravel(), expected.moments, expected.most
    n = flat.size
    counts, _ = np.histogram(flat, bins=np.concatenate([[-np.inf], expected.edges, [np.inf]]))
    distance = float(np.abs(np.cumsum(counts)[:-1] / n - expected.below).max())
    if distance > math.sqrt(_LOG / (2 * n)):
        _fail(f"the distribution of {n} fresh draws of {what} is {distance:.2g} away from the expected one")
    power = np.ones_like(flat)
    for p in _POWERS:
        power *= flat
        mean, variance = moments[p - 1], moments[2 * p - 1] - moments[p - 1] ** 2
        found = float(power.mean())
        if abs(found - mean) > _bernstein(n, variance=variance, most=2 * most**p):
            _fail(f"the mean of z^{p} over {n} fresh draws of {what} is {found:.6g}, expected {mean:.6g}")
    product = float((draws[:, 0::2] * draws[:, 1::2]).mean())
    if abs(product) > _bernstein(n // 2, variance=moments[1] ** 2, most=most**2):
        _fail(f"neighbouring draws of {what} depend on each other: the mean of their product is {product:.6g}")


def _bernstein(n: int, *, variance: float, most: float) -> float:
    """The deviation that the mean of n independent variables exceeds with probability at most _ALARM.

    most: bounds how far a variable is from its mean. For t, the deviation of the sum,
    P ≤ 2 exp(-(t²/2) / (n·variance + most·t/3)).
    """
    linear = most * _LOG / 3
    return (linear + math.sqrt(linear**2 + 2 * n * variance * _LOG)) / n


def _ideal_distribution(noise: Noise) -> _Distribution:
    """Of level-1 noise in floating point. The end of Gaussian noise at 6.66 standard deviations changes its moments by
    less than a thousandth of the allowed deviation.
    """
    law = additive_law_of(noise)
    facts = law.self_test
    below = np.array([law.probability_below(z) for z in facts.edges.tolist()])
    moments = np.zeros(8)
    moments[1::2] = facts.even_moments
    return _Distribution(facts.edges, below, moments, most=facts.float_most)


def _table_distribution(law: GridLaw) -> _Distribution:
    """Of j/scale, from the tables; the edges lie between the values, at most about a thousand."""
    below = law.thresholds / 2.0**WORD_BITS
    values = np.arange(law.least, law.most + 1) / law.scale
    mass = np.diff(below, prepend=0.0, append=1.0)
    moments = np.array([float(mass @ values**p) for p in range(1, 9)])
    some = slice(None, None, max(1, len(below) // 512))
    return _Distribution(((values[1:] + values[:-1]) / 2)[some], below[some], moments, most=float(values[-1]))
