"""The learning rate, as a function of the step alone: a resumed training needs no scheduler state."""

from __future__ import annotations

import math

WARM_UP = 0.3
START_DIVISOR = 25.0
END_DIVISOR = 1e4


def one_cycle(step: int, *, steps: int, peak: float) -> float:
    """Learning rate of step 0 ≤ step < steps (Smith and Topin 2018).

    A cosine up from peak/25 to `peak` over the first 30% of the steps, then a cosine down to peak/25/10000.
    """
    last_of_rise = max(WARM_UP * steps - 1, 0.0)
    start, end = peak / START_DIVISOR, peak / START_DIVISOR / END_DIVISOR
    if step <= last_of_rise:
        return _cosine(start, peak, step / last_of_rise if last_of_rise > 0 else 1.0)
    return _cosine(peak, end, (step - last_of_rise) / max(steps - 1 - last_of_rise, 1e-9))


def _cosine(begin: float, end: float, fraction: float) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * min(fraction, 1.0))) / 2
