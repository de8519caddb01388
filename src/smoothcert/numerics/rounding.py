"""Decimal text of a float, rounded in a stated direction.

`format(x, ".3f")` rounds to nearest, so 1.2367 prints as 1.237 and promises more than was proved. These
functions work on the exact value of the float (every float is a finite decimal), so the direction is kept for
every input.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from smoothcert.errors import InputError

MAX_DECIMALS = 400
# The longest float, 2^1023 or so, has 309 digits before the point: with that many decimals nothing is ever
# cut off.
_EXACT = Context(prec=MAX_DECIMALS + 400)


def format_down(value: float, *, decimals: int) -> str:
    """The largest decimal with `decimals` places <= value, for radii and lower bounds. 1.2367 -> "1.236"."""
    return _format(value, decimals=decimals, rounding=ROUND_FLOOR)


def format_up(value: float, *, decimals: int) -> str:
    """The smallest decimal with `decimals` places that is >= value: upper bounds. 1.2361 -> "1.237"."""
    return _format(value, decimals=decimals, rounding=ROUND_CEILING)


def format_nearest(value: float, *, decimals: int) -> str:
    """The nearest decimal with `decimals` places, exact ties to even, for plain statistics."""
    return _format(value, decimals=decimals, rounding=ROUND_HALF_EVEN)


def round_down_to_float(value: float, *, decimals: int) -> float:
    """The float read back from `format_down`; it is <= value.

    Reading a decimal as a float rounds to nearest, which is monotone and leaves floats alone: from text <=
    value follows float(text) <= float(value) = value.
    """
    return float(format_down(value, decimals=decimals))


def _format(value: float, *, decimals: int, rounding: str) -> str:
    if not math.isfinite(value):
        raise InputError(f"{value} has no decimal form: only finite numbers are printed")
    if not 0 <= decimals <= MAX_DECIMALS:
        raise InputError(f"{decimals} decimals were asked for: use 0 to {MAX_DECIMALS}")
    rounded = Decimal(value).quantize(Decimal((0, (1,), -decimals)), rounding=rounding, context=_EXACT)
    return f"{abs(rounded) if rounded.is_zero() else rounded:f}"
