"""Tallies → bounds → certificate → CertifiedPoint: the part of the way that needs no model.

`smoothed` walks it after sampling, `recertify` walks it again from stored tallies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.certificates import Certificate
from smoothcert.errors import InputError
from smoothcert.records import (
    MOST_SAMPLES,
    Bounds,
    CertifiedPoint,
    IntArray,
    Norm,
    Outcome,
    Stage,
    StreamId,
    Tally,
    merge,
)
from smoothcert.statistics import (
    bound_votes,
    check_alpha,
    first_samples,
    plurality,
    sign_test_p_value,
    significant_plurality,
)

_USEFUL_N = 100_000
_SEARCH_LIMIT = 10**6


@dataclass(frozen=True, slots=True)
class Votes:
    """What was sampled for one input: the votes that chose the class, and the votes that prove, in segments."""

    index: int
    label: int | None
    selection: Tally
    estimation: tuple[Tally, ...]
    seconds: float


def certify_votes(votes: Sequence[Votes], certificate: Certificate, *, alpha: float) -> list[CertifiedPoint]:
    """CERTIFY (Cohen et al. 2019, C.2) for any certificate over votes, vectorised over the inputs.

    The class comes from the selection votes alone; every bound comes from the estimation votes alone, at a total error
    probability of α per input.
    """
    totals = [merge(item.estimation) for item in votes]
    chosen = [plurality(item.selection) for item in votes]
    usable = [i for i, label in enumerate(chosen) if label is not None]
    labels = [label for label in chosen if label is not None]
    bounds = bound_votes([totals[i] for i in usable], labels, certificate.needs, alpha=alpha)
    radii = _radii(certificate, bounds, [totals[i].sigma for i in usable])
    judged = {i: (bound, radius) for i, bound, radius in zip(usable, bounds, radii, strict=True)}
    return [
        _point(item, total, judged.get(i), certificate)
        for i, (item, total) in enumerate(zip(votes, totals, strict=True))
    ]


def _radii(certificate: Certificate, bounds: Sequence[Bounds], sigmas: Sequence[float]) -> list[float]:
    if not bounds:
        return []
    quantities = {q: np.array([b.quantities[q].value for b in bounds]) for q in certificate.needs}
    return [float(r) for r in certificate.radius(quantities, sigma=np.array(sigmas))]


def _point(item: Votes, total: Tally, judged: tuple[Bounds, float] | None, certificate: Certificate) -> CertifiedPoint:
    prediction: int | None = None
    if judged is None:
        outcome = Outcome.FAILED
        reason = f"the model gave no finite answer for {item.selection.invalid} of {item.selection.n} selection samples"
        bounds, radius = None, 0.0
    else:
        bounds, radius = judged
        if radius > 0:
            outcome, prediction, reason = Outcome.CERTIFIED, bounds.label, ""
        else:
            outcome = Outcome.ABSTAINED
            reason = f"{int(total.counts[bounds.label])} of {total.n} votes for class {bounds.label} prove nothing"
    return CertifiedPoint(
        index=item.index,
        label=item.label,
        prediction=prediction,
        radius=radius,
        norm=certificate.norm,
        outcome=outcome,
        reason=reason,
        sigma=total.sigma,
        bounds=bounds,
        tallies=(item.selection, *item.estimation),
        seconds=item.seconds,
    )


def predict_votes(*, index: int, label: int | None, tally: Tally, alpha: float, seconds: float) -> CertifiedPoint:
    """PREDICT (Cohen et al. 2019, C.1): the class with most votes if it is significant at level α."""
    winner = significant_plurality(tally, alpha=alpha)
    if winner is not None:
        outcome, reason = Outcome.PREDICTED, ""
    elif plurality(tally) is None:
        outcome, reason = (
            Outcome.FAILED,
            f"the model gave no finite answer for {tally.invalid} of {tally.n} samples",
        )
    else:
        outcome, reason = Outcome.ABSTAINED, "the two leading classes are too close to call"
    return CertifiedPoint(
        index=index,
        label=label,
        prediction=winner,
        radius=0.0,
        norm=Norm.L2,
        outcome=outcome,
        reason=reason,
        sigma=tally.sigma,
        bounds=None,
        tallies=(tally,),
        seconds=seconds,
    )


def recertify_points(
    points: Sequence[CertifiedPoint], certificate: Certificate, *, alpha: float, n: int | None = None
) -> list[CertifiedPoint]:
    """The same inputs at another α, with the first n samples only, or by another certificate over the same votes."""
    return certify_votes([_stored_votes(point, n) for point in points], certificate, alpha=alpha)


def _stored_votes(point: CertifiedPoint, n: int | None) -> Votes:
    selection = point.tally(Stage.SELECTION)
    estimation = tuple(tally for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION)
    if selection is None or not estimation:
        raise InputError(f"input {point.index} has no stored votes to certify from: it comes from a prediction run")
    if n is not None:
        estimation = (first_samples(estimation, n),)
    return Votes(
        index=point.index,
        label=point.label,
        selection=selection,
        estimation=estimation,
        seconds=point.seconds,
    )


def check_samples(name: str, count: int, *, least: int = 1) -> None:
    """Refuse a number of samples that is no number of samples."""
    if not isinstance(count, int | np.integer) or not least <= count <= MOST_SAMPLES:
        raise InputError(
            f"{name}={count} is not a number of samples: a whole number from {least} to {MOST_SAMPLES} was expected"
        )


def check_can_certify(certificate: Certificate, *, n: int, alpha: float, n0: int | None = None) -> None:
    """Refuse an n at which even unanimous votes prove nothing, and say the smallest n that can.

    n0, where given, must be able to choose a class.
    """
    check_alpha(alpha)
    if n0 is not None:
        check_samples("n0", n0)
    check_samples("n", n)
    if _unanimous_radius(certificate, n, alpha) > 0:
        return
    smallest = next(m for m in range(n + 1, _SEARCH_LIMIT) if _unanimous_radius(certificate, m, alpha) > 0)
    share = alpha / len(certificate.needs)
    raise InputError(
        f"n={n} at alpha={alpha:g} can never certify: {n} votes of {n} prove only p > {share ** (1 / n):.3f}; "
        f"use n ≥ {smallest}, and {_USEFUL_N} for useful radii"
    )


def _unanimous_radius(certificate: Certificate, n: int, alpha: float) -> float:
    counts: IntArray = np.array([n, 0], dtype=np.int64)
    tally = Tally(StreamId(0, 0, Stage.ESTIMATION), sigma=1.0, counts=counts, invalid=0, ranges=((0, n),))
    return _radii(certificate, bound_votes([tally], [0], certificate.needs, alpha=alpha), [1.0])[0]


def check_can_predict(*, n: int, alpha: float) -> None:
    """Refuse an n at which even unanimous votes are not significant, and say the smallest n that is."""
    check_alpha(alpha)
    check_samples("n", n)
    if float(sign_test_p_value(n, 0)) <= alpha:
        return
    smallest = next(m for m in range(1, _SEARCH_LIMIT) if float(sign_test_p_value(m, 0)) <= alpha)
    raise InputError(
        f"n={n} at alpha={alpha:g} can never predict: even {n} votes of {n} are not significant; use n ≥ {smallest}"
    )
