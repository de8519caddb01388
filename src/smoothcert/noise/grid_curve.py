"""The table of a law on a grid as 64 short parabolas, which processors with long vectors evaluate without memory.

The first 16 bits u of a draw and 65535-u give opposite steps, so the curve is that of the lower half, v = u for
u < 32768 and 65535-u for the others. Its step is -|j|. Segment v//512 of the curve holds five whole numbers of 16 bits:
the step at its left end, three coefficients, and a limit. With d = 128·(v mod 512),

    height = (offset + high(d · (slope - high(d · bend)))) mod 2¹⁶,   high(x) = ⌊x / 2¹⁶⌋
    step = left + ⌊height / 2^places⌋,   if height mod 2^places < limit.

Otherwise the curve does not tell the step, and the table does. The limits are found by comparing with every entry of
the table. So the curve tells no step but the table's, however well it fits.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.noise.grid_law import FIRST_BITS, GridLaw
from smoothcert.records import FloatArray

SEGMENTS = 64
_HALF = 1 << (FIRST_BITS - 1)
_LENGTH = _HALF // SEGMENTS
_WORD = 1 << 16
_PLACES = (5, 8, 11, 14)
LEFT, OFFSET, SLOPE, BEND, LIMIT = range(5)
"""The rows of a curve."""

Curve = tuple[NDArray[np.int16], int]
"""(5, SEGMENTS), the numbers of every segment; and the number of places. The coefficients are unsigned."""
_Whole = NDArray[np.int64]


@functools.lru_cache(maxsize=16)
def curve_of(law: GridLaw) -> Curve:
    """Of a few curves, the one that leaves the fewest entries to the table. The table must be of int16."""
    heights, steps = _real_heights(law), _steps_of_both_halves(law)
    numbers, places = max((_fit(heights, steps, places) for places in _PLACES), key=_count_told)
    numbers.setflags(write=False)
    return numbers, places


def evaluate(curve: Curve, first: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """(step j, whether the curve tells it) for the first 16 bits of draws, of any shape. The compiled code agrees."""
    numbers, places = curve
    u = np.asarray(first, dtype=np.int64)
    v = np.where(u < _HALF, u, 2 * _HALF - 1 - u)
    _, offset, slope, bend, limit = numbers.view(np.uint16).astype(np.int64)[:, v // _LENGTH]
    height = (offset + _rise(slope, bend, v % _LENGTH)) % _WORD
    step = numbers[LEFT].astype(np.int64)[v // _LENGTH] + (height >> places)
    return np.where(u < _HALF, step, -step).astype(np.int32), height % (1 << places) < limit


def _rise(slope: _Whole, bend: _Whole, within: _Whole) -> _Whole:
    """Heights above the offset. within: places in the segment, 0 … 511."""
    d = within * (_WORD // _LENGTH)
    rise: _Whole = d * ((slope - (d * bend >> 16)) % _WORD) >> 16
    return rise


def _count_told(curve: Curve) -> int:
    return int(evaluate(curve, np.arange(_HALF))[1].sum())


def _steps_of_both_halves(law: GridLaw) -> _Whole:
    """The step of each v, if the table has it for v and the opposite one for 65535-v; else 1, which no step is."""
    table = law.table.astype(np.int64)
    lower, upper = table[:_HALF], table[_HALF:][::-1]
    steps = lower + law.least
    known: _Whole = np.where((lower >= 0) & (upper >= 0) & (steps == -(upper + law.least)), steps, 1)
    return known.reshape(SEGMENTS, _LENGTH)


def _real_heights(law: GridLaw) -> FloatArray:
    """The least step, plus the thresholds up to v as a real number between the whole ones: (SEGMENTS, 512)."""
    thresholds = law.thresholds.astype(np.float64)
    count = np.interp(np.arange(_HALF) * 2.0**48, thresholds, 1.0 + np.arange(len(thresholds)), left=0.0)
    heights: FloatArray = count + law.least
    return heights.reshape(SEGMENTS, _LENGTH)


def _fit(heights: FloatArray, steps: _Whole, places: int) -> Curve:
    """The curve with this number of places, below the heights. Segments that do not fit into 16 bits tell nothing."""
    left = np.floor(heights[:, 0])
    scaled = (heights - left[:, None]) * 2.0**places
    slope, bend = _parabola(scaled)
    fits = (slope < _WORD) & (scaled[:, -1] < _WORD - 2)
    slope, bend = (np.where(fits, np.rint(x), 0.0) for x in (slope, bend))
    whole_slope, whole_bend = slope.astype(np.int64)[:, None], bend.astype(np.int64)[:, None]
    rise = _rise(whole_slope, whole_bend, np.arange(_LENGTH))
    offset = np.where(fits, np.maximum(np.floor((scaled - rise).min(axis=1)), 0.0), 0.0).astype(np.int64)
    height = (rise + offset[:, None]) % _WORD
    # The least fraction at which the curve has another step than the table.
    wrong = left.astype(np.int64)[:, None] + (height >> places) != steps
    limit = np.where(wrong, height % (1 << places), 1 << places).min(axis=1)
    rows = (left, offset, slope, bend, np.where(fits, limit, 0))
    return np.stack([row.astype(np.int64) for row in rows]).astype(np.int16), places


def _parabola(scaled: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(b, c ≥ 0) of a + (b - c·x)·x through the first, middle and last height of each segment; x = 1 is its end."""
    end = (_LENGTH - 1) / _LENGTH
    first = (scaled[:, _LENGTH // 2] - scaled[:, 0]) / 0.5
    whole = (scaled[:, -1] - scaled[:, 0]) / end
    bend = np.maximum((first - whole) / (end - 0.5), 0.0)
    return whole + bend * end, bend
