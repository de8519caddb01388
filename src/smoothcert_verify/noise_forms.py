"""The kinds of noise, and the noise of a run drawn again from its seed by code of its own, in numpy.

To add a kind of noise, add an entry to `NOISES`: nothing else in this package names one but the certificates that are
about it. A kind that is not added to inputs has a file of its own, like `split_inputs.py`.

Sample number `counter` of a stream is a pure function of (seed, input index, stage, counter).

Noise in floating point: Philox4x32-10 with the seed as its key; of a seed of more than 64 bits, the first 8 bytes of
the SHA-256 of its 16 bytes, little-endian. Its four counter words are the block, the low half of
the sample counter, the index, and the stage in 8 bits beside the high 24 bits of the sample counter. An input of d
numbers takes b = ⌈d/4⌉ blocks; number e is value ⌊e/b⌋ of block e mod b. Gaussian: words 0 and 1 make values 0 and 1 by
Box and Muller, words 2 and 3 the others, in float32 with the polynomials of Cephes. Uniform: the upper 24 bits of a
word.

Noise on a grid: ChaCha20 (RFC 8439) with the key SHA-256("smoothcert grid noise", seed in 16 bytes). Its position words
are the same four. Number e has as its first 16 bits half a word of block ⌊e/32⌋, and j is the number of thresholds
2^64·P(noise < i - ½) that are at most its 64 bits. Where 16 bits settle j no more are read; the i-th number of a sample
for which they do not has the i-th pair of words of the blocks from 2^31 on as further bits.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

from smoothcert_verify.noise_kinds import Floats, NoiseForm, NoisyInput, Whole, divide_places, read_places
from smoothcert_verify.noise_streams import Position, Stream, WideWords, Words, chacha, find_position, make_key
from smoothcert_verify.split_inputs import SplittingForm

_F = np.float32
_LOW = np.uint64(0xFFFFFFFF)
_LOG = (
    0.070376836292, -0.1151461031, 0.116769987400, -0.12420140846, 0.14249322787, -0.16668057665, 0.20000714765,
    -0.24999993993, 0.33333331174,
)  # fmt: skip
_SINE = (-0.00019515295891, 0.0083321608736, -0.16666654611)
_COSINE = (0.00002443315711809948, -0.001388731625493765, 0.04166664568298827)
_ROOT_HALF = np.int32(0x3F3504F3)
_FURTHER = 1 << 31
_MOST_STEP = 2**24 - 1
_BITS = 256
_FARTHEST = 2**23
"""The most steps of noise on a grid, and the size that a table of thresholds may have."""


# --- floating point -------------------------------------------------------------------------------------------------


def philox(words: Position, seed: int) -> list[WideWords]:
    """Ten rounds of Philox4x32 (Salmon et al. 2011); words of 32 bits in uint64."""
    a, b, c, d = words
    if seed >= 1 << 64:
        seed = int.from_bytes(hashlib.sha256(seed.to_bytes(16, "little")).digest()[:8], "little")
    key, other = seed & 0xFFFFFFFF, seed >> 32
    for step in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        first = np.uint64((key + step * 0x9E3779B9) & 0xFFFFFFFF)
        second = np.uint64((other + step * 0xBB67AE85) & 0xFFFFFFFF)
        a, b, c, d = (
            (right >> np.uint64(32)) ^ b ^ first,
            right & _LOW,
            (left >> np.uint64(32)) ^ d ^ second,
            left & _LOW,
        )
    return [a, b, c, d]


def _series(coefficients: tuple[float, ...], x: Floats) -> Floats:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + _F(coefficient)
    return value


def _lengths(word: WideWords) -> Floats:
    """√(-2 log u), u = (k+½)/2^31 for the upper 31 bits k."""
    x = (word >> np.uint64(1)).astype(np.int32).astype(_F) + _F(0.5)
    bits = x.view(np.int32)
    power = (bits - _ROOT_HALF) >> np.int32(23)
    t = (bits - (power << np.int32(23))).view(_F) - _F(1.0)
    square = t * t
    tail = _series(_LOG, t) * t * square - _F(0.5) * square
    logarithm = t + tail + (power - np.int32(31)).astype(_F) * _F(math.log(2.0))
    return np.sqrt(np.maximum(_F(-2.0) * logarithm, _F(0.0)))


def _directions(word: WideWords) -> tuple[Floats, Floats]:
    """Cosine and sine of 2π·word/2^32."""
    quarter = (word + np.uint64(1 << 29) & _LOW) >> np.uint64(30)
    rest = (word - (quarter << np.uint64(30)) & _LOW).astype(np.uint32).view(np.int32)
    t = rest.astype(_F) * _F(2.0 * math.pi / 2.0**32)
    square = t * t
    sine = _series(_SINE, square) * square * t + t
    cosine = _series(_COSINE, square) * square * square - _F(0.5) * square + _F(1.0)
    turned = [cosine, -sine, -cosine, sine], [sine, cosine, -sine, -cosine]
    chosen = quarter.astype(np.intp)
    return np.choose(chosen, turned[0]), np.choose(chosen, turned[1])


def _normal_values(words: list[WideWords]) -> list[Floats]:
    """Standard normals by Box and Muller, four of a block."""
    values = []
    for radius, angle in ((words[0], words[1]), (words[2], words[3])):
        length, (cosine, sine) = _lengths(radius), _directions(angle)
        values += [length * cosine, length * sine]
    return values


def _uniform_values(words: list[WideWords]) -> list[Floats]:
    """Odd multiples of 2^-24 in (-1, 1), four of a block."""
    odd = [(2 * (word >> np.uint64(8)).astype(np.int32) + np.int32(1 - (1 << 24))) for word in words]
    return [value.astype(_F) * _F(2.0**-24) for value in odd]


@dataclass(frozen=True, slots=True)
class AdditiveForm(NoiseForm):
    """A kind of noise that is added to inputs.

    quarters: no noise is larger than so many quarters of σ. table_reach: a table of its thresholds on a grid goes at
    most so many σ to either side. unit_values: float noise of level 1 from four random words. share_below: P(z < x) at
    level 1, for x ≥ 0.
    """

    quarters: int
    table_reach: Fraction
    unit_values: Callable[[list[WideWords]], list[Floats]]
    share_below: Callable[[fmpq], arb]

    def has_room(self, *, sigma: float, levels: int) -> bool:
        """Whether noise of this level on a grid stays within what float32 counts."""
        return Fraction(sigma) * (levels - 1) * self.quarters <= 4 * _FARTHEST

    def copies_on_grid(self, x: Floats, *, sigma: float, levels: int) -> NoisyInput:
        return GridNoise(self.name, x, sigma=sigma, levels=levels)


_REACH = Fraction(92, 10)
_ADDED = {
    form.name: form
    for form in (
        AdditiveForm("gaussian", "l2", 37, _REACH, _normal_values, lambda x: 1 - (arb(x) / arb(2).sqrt()).erfc() / 2),
        AdditiveForm("uniform", "l1", 4, _REACH, _uniform_values, lambda x: arb((x + 1) / 2) if x < 1 else arb(1)),
    )
}
NOISES: dict[str, NoiseForm] = {form.name: form for form in (*_ADDED.values(), SplittingForm("splitting", "l1"))}


def unit_noise(noise: str, stream: Stream, *, start: int, count: int, size: int) -> Floats:
    """Float noise of level 1: (count, size) float32."""
    blocks = -(-size // 4)
    counters = np.uint64(start) + np.arange(count, dtype=np.uint64)[:, None]
    words = philox(find_position(stream, counters, np.arange(blocks, dtype=np.uint64)[None, :]), stream.seed)
    return np.concatenate(_ADDED[noise].unit_values(words), axis=1)[:, :size]


class FloatNoise:
    """x + float32(σ·unit). colour: where the noise is drawn in a first layer, what makes it of standard normals."""

    def __init__(self, noise: str, x: Floats, *, sigma: float, colour: Any = None) -> None:
        self._noise, self._x, self._sigma, self._colour = noise, x, sigma, colour

    def _scale(self, stream: Stream, start: int, count: int) -> Floats:
        unit = unit_noise(self._noise, stream, start=start, count=count, size=self._x.size)
        if self._colour is not None:
            white, unit = np.ascontiguousarray(unit), np.empty_like(unit)
            self._colour(white, unit)
        return (unit.astype(np.float64) * self._sigma).astype(_F)

    def copies(self, stream: Stream, start: int, count: int) -> Floats:
        return self._x + self._scale(stream, start, count)

    def pairs(self, stream: Stream, start: int, count: int) -> tuple[Floats, Floats]:
        noise = self._scale(stream, start, count)
        return self._x + noise, self._x - noise

    def normals(self, stream: Stream, start: int, count: int) -> NDArray[np.float64]:
        unit = unit_noise(self._noise, stream, start=start, count=count, size=self._x.size)
        return unit.astype(np.float64)


# --- the grid -------------------------------------------------------------------------------------------------------


def _chacha_blocks(stream: Stream, counters: WideWords, blocks: WideWords) -> Words:
    """The 16 words of each block: (…, 16)."""
    key = make_key(b"smoothcert grid noise", stream.seed)
    words = [word.astype(np.uint32) for word in find_position(stream, counters, blocks)]
    return np.stack(chacha(words, key), axis=-1)


def _steps_per_unit(sigma: float, levels: int) -> fmpq:
    """(levels-1)·σ, exactly."""
    top, bottom = float(sigma).as_integer_ratio()
    return fmpq(top * (levels - 1), bottom)


@functools.lru_cache(maxsize=64)
def thresholds(noise: str, *, sigma: float, levels: int) -> tuple[WideWords, int]:
    """The 64-bit thresholds, increasing, and the least j: j is that plus how many thresholds are at most u.

    2^64·P((levels-1)·σ·z < i-½) to nearest, in ball arithmetic, for i = 1, 2, … as long as it is below 2^64; for i ≤ 0
    what is left of 2^64, because the noise is symmetric. A ValueError for a level whose table no run could have.
    """
    form = _ADDED[noise]
    if not form.has_room(sigma=sigma, levels=levels):
        raise ValueError(f"noise of level {sigma} on a grid of {levels} levels is more than 2^23 steps")
    scale = _steps_per_unit(sigma, levels)
    upper: list[int] = []
    with ctx.workprec(_BITS):
        while True:
            share = form.share_below(fmpq(2 * len(upper) + 1, 2) / scale)
            value = int((share * arb(2) ** 64 + arb(1) / 2).floor().unique_fmpz())
            if value >= 1 << 64:
                break
            upper.append(value)
    lower = [(1 << 64) - value for value in reversed(upper)]
    return np.array(lower + upper, dtype=np.uint64), -len(upper)


@functools.lru_cache(maxsize=64)
def _by_first_bits(noise: str, *, sigma: float, levels: int) -> tuple[Whole, NDArray[np.bool_]]:
    """For each value of the first 16 bits: how many thresholds are at most the least u that begins so, and whether j
    depends on the other bits.
    """
    limits, _ = thresholds(noise, sigma=sigma, levels=levels)
    first = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    below = np.searchsorted(limits, first, side="right")
    return below, below != np.searchsorted(limits, first | np.uint64((1 << 48) - 1), side="right")


def grid_steps(noise: str, stream: Stream, *, sigma: float, levels: int, start: int, count: int, size: int) -> Whole:
    """The whole numbers j of samples start … start+count-1: (count, size)."""
    limits, least = thresholds(noise, sigma=sigma, levels=levels)
    counters = np.uint64(start) + np.arange(count, dtype=np.uint64)
    words = _chacha_blocks(stream, counters[:, None], np.arange(-(-size // 32), dtype=np.uint64)[None, :])
    halves = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1)
    first = halves.reshape(count, -1)[:, :size]
    below, doubtful = _by_first_bits(noise, sigma=sigma, levels=levels)
    j = below[first]
    rows, places = np.nonzero(doubtful[first])
    if rows.size:
        rank = np.arange(rows.size) - np.searchsorted(rows, rows)
        further = _chacha_blocks(stream, counters[rows], (_FURTHER + rank // 8).astype(np.uint64)).astype(np.uint64)
        each, pair = np.arange(rows.size), 2 * (rank % 8)
        more = further[each, pair] << np.uint64(16) | further[each, pair + 1] >> np.uint64(16)
        u = first[rows, places].astype(np.uint64) << np.uint64(48) | more
        j[rows, places] = np.searchsorted(limits, u, side="right")
    return j + least


@functools.lru_cache(maxsize=64)
def cell_means(*, sigma: float, levels: int) -> NDArray[np.float64]:
    """E[z | j] of Gaussian noise for j = least, least+1, …: (φ(a)-φ(b))/(Φ(b)-Φ(a)) for the cell (a, b) of z."""
    _, least = thresholds("gaussian", sigma=sigma, levels=levels)
    scale = _steps_per_unit(sigma, levels)
    with ctx.workprec(_BITS):
        edges = [arb(fmpq(2 * i - 1, 2) / scale) for i in range(1, -least + 2)]
        density = [(-(edge**2) / 2).exp() for edge in edges]
        beyond = [(edge / arb(2).sqrt()).erfc() for edge in edges]
        factor = (2 / arb.pi()).sqrt()
        above = [
            float(factor * (density[k] - density[k + 1]) / (beyond[k] - beyond[k + 1])) for k in range(len(edges) - 1)
        ]
    return np.array([-mean for mean in reversed(above)] + [0.0] + above)


class GridNoise:
    """(k + j)/(L-1) for an input on a grid of L levels, k = (L-1)·x; the sum is clamped before it is divided."""

    def __init__(self, noise: str, x: Floats, *, sigma: float, levels: int) -> None:
        self._noise, self._sigma, self._levels = noise, sigma, levels
        self._k = read_places(x, levels)

    def _steps(self, stream: Stream, start: int, count: int) -> Whole:
        return grid_steps(
            self._noise,
            stream,
            sigma=self._sigma,
            levels=self._levels,
            start=start,
            count=count,
            size=self._k.size,
        )

    def _seen(self, sums: Whole) -> Floats:
        return divide_places(np.clip(sums, -_MOST_STEP, _MOST_STEP), self._levels - 1)

    def copies(self, stream: Stream, start: int, count: int) -> Floats:
        return self._seen(self._k + self._steps(stream, start, count))

    def pairs(self, stream: Stream, start: int, count: int) -> tuple[Floats, Floats]:
        steps = self._steps(stream, start, count)
        return self._seen(self._k + steps), self._seen(self._k - steps)

    def normals(self, stream: Stream, start: int, count: int) -> NDArray[np.float64]:
        _, least = thresholds(self._noise, sigma=self._sigma, levels=self._levels)
        means = cell_means(sigma=self._sigma, levels=self._levels)
        return means[self._steps(stream, start, count) - least]
