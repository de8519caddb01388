"""A noise level that is chosen by a smoothed selector: the levels, and how the error probability is shared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from smoothcert.errors import InputError
from smoothcert.records.smoothing import Smoothing

SELECTED, PUBLISHED = "selected", "selected-published"
"""The certificates for a noise level that is chosen by a smoothed selector."""
FORMS = (SELECTED, PUBLISHED)
SelectorBounds = Literal["two-class", "multi-class"]


@dataclass(frozen=True, slots=True)
class Selection:
    """levels: σ_1 < … < σ_K. sigma: noise level of the selector. alpha: of everything; selector_alpha: of the selector.

    sampled: how many levels are sampled, those with most of the selector's selection votes. bounds: "two-class" bounds
    the leading level against all others together, which any certificate of the selector can do; "multi-class" bounds
    each level by itself. smoothing: of the selector.
    """

    levels: tuple[float, ...]
    sigma: float
    alpha: float
    selector_alpha: float
    sampled: int
    bounds: SelectorBounds
    smoothing: Smoothing = field(default_factory=Smoothing)

    def __post_init__(self) -> None:
        check_levels(self.levels)
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise InputError(f"the noise level of the selector must be a positive finite number, not {self.sigma:g}")
        if not 0 < self.selector_alpha < self.alpha < 1:
            raise InputError(
                f"the selector's share of alpha, {self.selector_alpha:g}, must be positive and smaller than alpha, "
                f"{self.alpha:g}"
            )
        check_sampled(self.sampled, levels=len(self.levels))

    @property
    def level_alpha(self) -> float:
        """The share of α of each sampled level, rounded down."""
        share = (self.alpha - self.selector_alpha) / self.sampled
        while Fraction(self.selector_alpha) + self.sampled * Fraction(share) > Fraction(self.alpha):
            share = math.nextafter(share, 0.0)
        return share


def check_levels(levels: Sequence[float]) -> None:
    """Refuse what is not a list of at least two positive noise levels in ascending order."""
    if len(levels) < 2:
        raise InputError("a selector chooses among at least two noise levels, such as 0.25,0.5,1.0")
    for level in levels:
        if not (math.isfinite(level) and level > 0):
            raise InputError(f"{level:g} is not a noise level: a positive finite number was expected")
    if any(a >= b for a, b in itertools.pairwise(levels)):
        given = ", ".join(f"{level:g}" for level in levels)
        raise InputError(f"noise levels must be given in ascending order, each once, not {given}")


def check_sampled(sampled: int, *, levels: int) -> None:
    """Refuse a number of sampled levels that is not one of 1 … levels."""
    if not 1 <= sampled <= levels:
        raise InputError(f"{sampled} levels cannot be sampled: there are {levels}")


def check_model_count(models: int, *, levels: int) -> None:
    """Refuse a number of base classifiers that is neither one for each level nor one for all."""
    if models not in (1, levels):
        raise InputError(
            f"{models} models were given for {levels} noise levels: give one for each level, in the same order, or one "
            "for all"
        )
