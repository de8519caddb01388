"""A noise level that is chosen by a smoothed selector: the levels, and how the error probability is shared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from smoothcert.errors import InputError
from smoothcert.records.bounds import Proof
from smoothcert.records.smoothing import Smoothing

SELECTED, PUBLISHED = "selected", "selected-published"
"""The certificates for a noise level that is chosen by a smoothed selector."""
FORMS = (SELECTED, PUBLISHED)
SelectorBounds = Literal["two-class", "multi-class"]
_UPPER_PART = 8
"""The upper bound gets 1/8 of what the selector leaves of α, which costs the levels little.

With α = .001, half of it the selector's, and n = 30000, the radius of a level whose votes agree falls by .005 σ.
"""


@dataclass(frozen=True, slots=True)
class Selection:
    """levels: σ_1 < … < σ_K. sigma: noise level of the selector. alpha: of everything; selector_alpha: of the selector.

    sampled: how many levels are sampled, those with most of the selector's selection votes. bounds: "two-class" bounds
    the leading level against all others together, which any certificate of the selector can do; "multi-class" bounds
    each level by itself. smoothing: of the selector.

    upper_alpha: the part of α for the upper bound on the selector's probability of another level, in the sharper form
    with multi-class bounds. Neither it nor the share of a level is paid for more than once, however many levels there
    are: only the level at the nearest change of the answer can deceive (`questions/selected_points.py` has the proof).
    None: the rule of earlier versions, a union over everything. The sampled levels share what the selector leaves, and
    its lower and upper bounds share `selector_alpha`.
    """

    levels: tuple[float, ...]
    sigma: float
    alpha: float
    selector_alpha: float
    sampled: int
    bounds: SelectorBounds
    smoothing: Smoothing = field(default_factory=Smoothing)
    upper_alpha: float | None = 0.0

    def __post_init__(self) -> None:
        check_levels(self.levels)
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise InputError(f"the noise level of the selector must be a positive finite number, not {self.sigma:g}")
        if not 0 < self.selector_alpha < self.alpha < 1:
            raise InputError(
                f"the selector's share of alpha, {self.selector_alpha:g}, must be positive and smaller than alpha, "
                f"{self.alpha:g}"
            )
        if self.upper_alpha is not None and not 0 <= self.upper_alpha < self.alpha - self.selector_alpha:
            raise InputError(
                f"the share of alpha for upper bounds, {self.upper_alpha:g}, must be at least 0 and leave something of "
                f"alpha, {self.alpha:g}, to the levels: the selector has {self.selector_alpha:g} of it"
            )
        check_sampled(self.sampled, levels=len(self.levels))

    @property
    def level_alpha(self) -> float:
        """The share of α of each sampled level, rounded down."""
        times = self.sampled if self.upper_alpha is None else 1
        exact = Fraction(self.alpha) - Fraction(self.selector_alpha) - Fraction(self.upper_alpha or 0.0)
        share = float(exact / times)
        # What the selector spends is recorded as one number, which is rounded.
        exact = min(exact, Fraction(self.alpha) - Fraction(self.selector_alpha + (self.upper_alpha or 0.0)))
        while times * Fraction(share) > exact:
            share = math.nextafter(share, 0.0)
        return share

    def list_shares(self, form: str) -> Mapping[Proof, float]:
        """What a certificate of this form spends: on bounds of the selector, and on levels."""
        if self.upper_alpha is None:
            return {Proof.SELECTOR: self.selector_alpha, Proof.LEVELS: self.sampled * self.level_alpha}
        uppers = self.upper_alpha if form == SELECTED else 0.0
        return {Proof.SELECTOR: self.selector_alpha + uppers, Proof.LEVELS: self.level_alpha}


def choose_upper_alpha(alpha: float, selector_alpha: float, *, bounds: SelectorBounds, forms: Sequence[str]) -> float:
    """The part of α for upper bounds on single levels; 0 if none are used, so that the levels have it."""
    if bounds != "multi-class" or SELECTED not in forms:
        return 0.0
    return max(0.0, alpha - selector_alpha) / _UPPER_PART


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
