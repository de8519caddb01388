"""Points of a selector and of its levels, made from votes, and the definition of the selected radius, word for word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.questions import Votes, predict_votes
from smoothcert.records import CertifiedPoint, Smoothing, Stage, StreamId, Tally
from smoothcert.records.selection import FORMS, Selection, choose_upper_alpha
from stored_answers import certify_votes


def radius_by_definition(excluded: Sequence[float], radii: Sequence[float]) -> float:
    """MATH 9: the largest r such that every level not excluded at r answers the class within r.

    Level k is excluded at r if E_k ≥ r. The condition gets harder as r grows and changes at the E_k and R_k alone, so
    one of these numbers, or 0, is the largest r.
    """

    def holds(r: float) -> bool:
        remaining = [k for k, reach in enumerate(excluded) if not reach >= r]
        return all(radii[k] >= r for k in remaining)

    return max((r for r in (*excluded, *radii) if holds(r)), default=0.0)


def tally_of(counts: ArrayLike, *, stage: Stage, sigma: float, invalid: int = 0, index: int = 0) -> Tally:
    numbers = np.asarray(counts, dtype=np.int64)
    n = int(numbers.sum()) + invalid
    return Tally(StreamId(1, index, stage), sigma, numbers, invalid, ((0, n),))


def votes_at(
    selection: ArrayLike, estimation: ArrayLike, *, sigma: float, invalid: int = 0, index: int = 0
) -> Votes:  # fmt: skip
    """invalid: estimation samples without a finite answer."""
    return Votes(
        index=index,
        label=0,
        selection=tally_of(selection, stage=Stage.SELECTION, sigma=sigma, index=index),
        estimation=(tally_of(estimation, stage=Stage.ESTIMATION, sigma=sigma, invalid=invalid, index=index),),
        seconds=0.0,
    )


def certify_part(votes: Sequence[Votes], *, alpha: float, smoothing: Smoothing | None = None) -> list[CertifiedPoint]:
    """What an ordinary run of a selector, or of a level, gives for these votes."""
    return certify_votes(votes, "gaussian", alpha=alpha, smoothing=smoothing or Smoothing())


def predict_part(counts: ArrayLike, *, sigma: float, alpha: float, invalid: int = 0, index: int = 0) -> CertifiedPoint:
    tally = tally_of(counts, stage=Stage.PREDICTION, sigma=sigma, invalid=invalid, index=index)
    return predict_votes(index=index, label=0, tally=tally, alpha=alpha, seconds=0.0)


def selection_of_levels(
    *levels: float, sigma: float = 1.0, alpha: float = 0.05, selector_alpha: float | None = None,
    sampled: int | None = None, bounds: str = "multi-class", smoothing: Smoothing | None = None,
    upper_alpha: float | str | None = "as usual",
) -> Selection:  # fmt: skip
    """upper_alpha: None for the rule of earlier versions."""
    share = alpha / 2 if selector_alpha is None else selector_alpha
    if isinstance(upper_alpha, str):
        upper_alpha = choose_upper_alpha(alpha, share, bounds=bounds, forms=FORMS)  # type: ignore[arg-type]
    return Selection(
        levels=levels,
        sigma=sigma,
        alpha=alpha,
        selector_alpha=share,
        sampled=len(levels) if sampled is None else sampled,
        bounds=bounds,  # type: ignore[arg-type]
        smoothing=smoothing or Smoothing(),
        upper_alpha=upper_alpha,
    )
