"""Decimal text of a number, rounded in a stated direction.

`format(x, ".3f")` rounds to nearest, so 1.2367 prints as 1.237 and promises more than was proved. These
functions work on the exact value (every float is a fraction), so the direction is kept for every input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from smoothcert.errors import InputError

MAX_DECIMALS = 400


def format_down(value: float | Fraction, *, decimals: int) -> str:
    """The largest decimal with `decimals` places <= value, for radii and lower bounds. 1.2367 -> "1.236"."""
    return _format(value, decimals=decimals, to_integer=math.floor)


def format_up(value: float | Fraction, *, decimals: int) -> str:
    """The smallest decimal with `decimals` places >= value, for upper bounds. 1.2361 -> "1.237"."""
    return _format(value, decimals=decimals, to_integer=math.ceil)


def format_nearest(value: float | Fraction, *, decimals: int) -> str:
    """The nearest decimal with `decimals` places, exact ties to even, for plain statistics."""
    return _format(value, decimals=decimals, to_integer=round)


def format_down_as_read(value: float, *, decimals: int) -> str:
    """The largest decimal with `decimals` places that reads as a float <= value, for files and tables.

    It differs from `format_down` only where a decimal names the float itself: the float called 0.58 lies
    4e-17 below 0.58, so strictly down it is "0.579". Kept as "0.580" it reads as the very same float, and
    writing, reading and writing again does not wear the number down. At most half a unit in the last place is
    given away, less than what every bound and radius is rounded down by when it is computed.
    """
    down = Fraction(format_down(value, decimals=decimals))
    next_up = down + Fraction(1, 10**decimals)
    return format_down(next_up if float(next_up) <= value else down, decimals=decimals)


def _format(value: float | Fraction, *, decimals: int, to_integer: Callable[[Fraction], int]) -> str:
    if not math.isfinite(value):
        raise InputError(f"{value} has no decimal form: only finite numbers are printed")
    if not 0 <= decimals <= MAX_DECIMALS:
        raise InputError(f"{decimals} decimals were asked for: use 0 to {MAX_DECIMALS}")
    units = to_integer(Fraction(value) * 10**decimals)
    whole, rest = divmod(abs(units), 10**decimals)
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{rest:0{decimals}d}" if decimals else f"{sign}{whole}"
