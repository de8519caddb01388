"""Decimal text of a number, rounded in a stated direction.

`format(x, ".3f")` rounds to nearest, so 1.2367 prints as 1.237, which is more than was proved. These functions work on
the exact value (every float is a finite decimal), so the direction is right for every input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from smoothcert.errors import InputError

MAX_DECIMALS = 400
# The largest float has 309 digits before the point: with that many decimals behind it nothing is ever cut off.
_EXACT = Context(prec=MAX_DECIMALS + 400)


def format_down(value: float, *, decimals: int) -> str:
    """The largest decimal with `decimals` places <= value, for radii and lower bounds. 1.2367 -> "1.236"."""
    return _text(_quantize(value, decimals=decimals, rounding=ROUND_FLOOR))


def format_up(value: float, *, decimals: int) -> str:
    """The smallest decimal with `decimals` places >= value, for upper bounds. 1.2361 -> "1.237"."""
    return _text(_quantize(value, decimals=decimals, rounding=ROUND_CEILING))


def format_nearest(value: float, *, decimals: int) -> str:
    """The nearest decimal with `decimals` places, exact ties to even, for plain statistics."""
    return _text(_quantize(value, decimals=decimals, rounding=ROUND_HALF_EVEN))


def format_down_as_read(value: float, *, decimals: int) -> str:
    """The largest decimal with `decimals` places that reads as a float <= value, for files and tables.

    It differs from `format_down` only where a decimal reads as the float itself: the float 0.58 lies 4e-17 below 0.58,
    so strictly down it is "0.579". "0.580" reads as the same float, so repeated writing and reading does not lower the
    number. The error is at most half a unit in the last place of a float, less than the rounding of bounds and radii.
    """
    down = _quantize(value, decimals=decimals, rounding=ROUND_FLOOR)
    next_up = _EXACT.add(down, Decimal((0, (1,), -decimals)))
    return _text(next_up if float(next_up) <= value else down)


def round_step(least: float, *, factors: Sequence[float] = (1.0, 2.0, 5.0)) -> float:
    """The smallest of these factors times a power of ten that is at least `least` > 0: a step for scales and tables.

    factors: ascending, from 1 to less than 10.
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (*factors, 10.0) if factor * power >= least)


def _quantize(value: float, *, decimals: int, rounding: str) -> Decimal:
    if not math.isfinite(value):
        raise InputError(f"{value} has no decimal form: only finite numbers can be printed")
    if not 0 <= decimals <= MAX_DECIMALS:
        raise InputError(f"{decimals} decimals are not supported: use 0 to {MAX_DECIMALS}")
    return Decimal(value).quantize(Decimal((0, (1,), -decimals)), rounding=rounding, context=_EXACT)


def _text(rounded: Decimal) -> str:
    """Plain digits, without an exponent and without a minus sign for zero."""
    return f"{abs(rounded) if rounded.is_zero() else rounded:f}"
