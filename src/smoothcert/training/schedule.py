"""Learning rate schedules. The rate is a function of the step, so a resumed training needs no scheduler state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

from smoothcert.settings_text import NamedSettings, parse_settings
from smoothcert.training.settings import check_count, check_number


class Schedule(NamedSettings, Protocol):
    """A dataclass of settings that computes the rate of every step."""

    def rate(self, step: int, *, steps: int, peak: float) -> float:
        """Learning rate of a step, 0 ≤ step < steps; at most `peak`."""


@dataclass(frozen=True, slots=True)
class OneCycle:
    """A cosine from peak/25 to the peak over the fraction `rise` of the steps, then a cosine down to peak/250000.

    Smith and Topin 2018.
    """

    rise: float = 0.3

    name: ClassVar[str] = "one-cycle"
    _START_DIVISOR: ClassVar[float] = 25.0
    _END_DIVISOR: ClassVar[float] = 1e4

    def __post_init__(self) -> None:
        check_number("rise of one-cycle", self.rise, most=1.0)

    def rate(self, step: int, *, steps: int, peak: float) -> float:
        last_of_rise = max(self.rise * steps - 1, 0.0)
        start = peak / self._START_DIVISOR
        if step <= last_of_rise:
            return _cosine(start, peak, step / last_of_rise if last_of_rise > 0 else 1.0)
        return _cosine(peak, start / self._END_DIVISOR, (step - last_of_rise) / max(steps - 1 - last_of_rise, 1e-9))


@dataclass(frozen=True, slots=True)
class Steps:
    """The peak, multiplied by `factor` at `drops` equally spaced steps, such as ÷10 every 30 of 90 epochs."""

    drops: int = 2
    factor: float = 0.1

    name: ClassVar[str] = "step"

    def __post_init__(self) -> None:
        check_count("drops of step", self.drops, least=0)
        check_number("factor of step", self.factor, most=1.0)

    def rate(self, step: int, *, steps: int, peak: float) -> float:
        return peak * self.factor ** (step * (self.drops + 1) // steps)


SCHEDULES: dict[str, type[Schedule]] = {kind.name: kind for kind in (OneCycle, Steps)}


def parse_schedule(text: str) -> Schedule:
    """Parse a schedule: its name and settings, such as "one-cycle" or "step:drops=2,factor=0.1"."""
    return parse_settings(text, SCHEDULES, what="schedule")


def _cosine(begin: float, end: float, fraction: float) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * min(fraction, 1.0))) / 2
