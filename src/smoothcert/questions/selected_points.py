"""From the points of a selector and of the levels to the points of the classifier that they make together.

The selector, and the base classifier of each level, are certified by themselves, with noise of their own, each at its
share of α. What is combined here are statements that all hold at once, except with probability α. So the class and the
levels of which something is used may be chosen after looking at them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import assert_never

import numpy as np

from smoothcert.certificates.selected_sigma import exclusion_radii, published_radius, selected_radius
from smoothcert.errors import InputError
from smoothcert.records import (
    Bounds,
    CertifiedPoint,
    Outcome,
    Proof,
    Reason,
    ReasonCode,
    Stage,
    Tally,
    Verdict,
)
from smoothcert.records.selection import FORMS, PUBLISHED, Selection
from smoothcert.statistics import alpha_after_noise, plurality, price_of
from smoothcert.statistics.binomial import clopper_pearson_lower, clopper_pearson_upper, sign_test_p_value


def choose_levels(votes: Tally, *, sampled: int) -> tuple[int, ...]:
    """The levels to sample, in ascending order: those with most of these votes, which prove nothing.

    Ties are decided by the order of the levels. Empty if the selector gave no finite answer.
    """
    if plurality(votes) is None:
        return ()
    ranked = sorted(range(votes.num_classes), key=lambda level: (-int(votes.counts[level]), level))
    return tuple(sorted(ranked[:sampled]))


def combine_points(
    selector: CertifiedPoint, levels: Mapping[int, CertifiedPoint], selection: Selection, forms: Sequence[str]
) -> CertifiedPoint:
    """The point of the classifier that selector and levels make. levels: the sampled ones, by number.

    sigma of the point is the level that leads in the selector's selection votes. Its tallies stay with the parts.
    """
    first, *further = [_combine(selector, levels, selection, form) for form in forms]
    some = next(iter(levels.values()), selector)
    leading = _leading_level(selector)
    return CertifiedPoint(
        index=selector.index,
        label=some.label,
        verdict=first,
        sigma=math.nan if leading is None else selection.levels[leading],
        tallies=(),
        seconds=selector.seconds + math.fsum(point.seconds for point in levels.values()),
        further=tuple(further),
        grid=selector.grid,
    )


def _combine(
    selector: CertifiedPoint, levels: Mapping[int, CertifiedPoint], selection: Selection, form: str
) -> Verdict:
    leading = _leading_level(selector)
    if leading is None or selector.outcome is Outcome.FAILED:
        return _failed(selector, form)
    if leading not in levels:
        raise InputError(f"level {selection.levels[leading]:g} leads for input {selector.index} and was not sampled")
    match form:
        case "selected-published":
            own = levels[leading]
            label = own.prediction
            # The selector's certificate is about its own leading level, which estimation alone may not confirm.
            reach = selector.radius if selector.prediction == leading else 0.0
            radius = 0.0 if label is None else published_radius(reach, own.radius)
        case "selected":
            excluded = exclude_levels(selector, leading, selection)
            # Nothing excludes the leading level, so no other class can get a radius.
            label = levels[leading].prediction
            agreeing = {k: point.radius for k, point in levels.items() if point.prediction == label}
            radii = [agreeing.get(level, 0.0) for level in range(len(excluded))]
            radius = 0.0 if label is None else selected_radius(excluded, radii)
        case _:
            raise InputError(f"there is no certificate {form} for a selected sigma: use {' or '.join(FORMS)}")
    return _make_verdict(form, label, radius, levels[leading], selection)


def exclude_levels(selector: CertifiedPoint, leading: int, selection: Selection) -> list[float]:
    """(K,) distances below which each level is certainly not selected; 0 for the leading one.

    Error probability: at most `selection.selector_alpha`.
    """
    count = len(selection.levels)
    match selection.bounds:
        case "two-class":
            reach = selector.radius if selector.prediction == leading else 0.0
            return [0.0 if level == leading else reach for level in range(count)]
        case "multi-class":
            return _exclude_each(selector, leading, selection)
        case _:
            assert_never(selection.bounds)


def _exclude_each(selector: CertifiedPoint, leading: int, selection: Selection) -> list[float]:
    """One lower bound and K-1 upper ones, each at an equal share: together they are wrong at most with their sum.

    A sample without a finite answer is a vote for no level, and G is defined by the most frequent level.
    """
    found = selector.tally(Stage.ESTIMATION)
    if found is None or (selector.bounds is not None and any(proof.anytime for proof in selector.bounds.spent)):
        raise InputError("multi-class bounds need a fixed number of the selector's votes: use two-class bounds")
    votes = found.independent_votes()
    count = len(selection.levels)
    alpha = alpha_after_noise(selection.selector_alpha, price_of(found, selection.smoothing)) / count
    lower = float(clopper_pearson_lower(int(votes.counts[leading]), votes.n, alpha=alpha))
    uppers = np.asarray(clopper_pearson_upper(votes.counts, np.full(count, votes.n), alpha=alpha), dtype=np.float64)
    uppers[leading] = math.nan
    return [float(radius) for radius in exclusion_radii(lower, uppers.tolist(), sigma=selection.sigma)]


def _make_verdict(
    form: str, label: int | None, radius: float, leading: CertifiedPoint, selection: Selection
) -> Verdict:
    certified = label is not None and radius > 0
    bounds = None
    if label is not None:
        shares = {
            Proof.SELECTOR: selection.selector_alpha,
            Proof.LEVELS: selection.sampled * selection.level_alpha,
        }
        bounds = Bounds(label=label, quantities={}, spent=shares)
    return Verdict(
        certificate=form,
        prediction=label if certified else None,
        radius=radius if certified else 0.0,
        norm=leading.norm,
        outcome=Outcome.CERTIFIED if certified else Outcome.ABSTAINED,
        reason=None if certified else _explain(form, leading),
        bounds=bounds,
    )


def _explain(form: str, leading: CertifiedPoint) -> Reason:
    """Why nothing is certified: the leading level proves no class, is not proved itself, or another one may differ."""
    if leading.outcome is not Outcome.CERTIFIED or leading.prediction is None:
        return Reason(ReasonCode.LEVEL_PROVES_NOTHING, {"sigma": leading.sigma})
    if form == PUBLISHED:
        return Reason(ReasonCode.LEVEL_NOT_PROVED, {"sigma": leading.sigma})
    return Reason(ReasonCode.LEVELS_DISAGREE, {"label": leading.prediction, "sigma": leading.sigma})


def _failed(selector: CertifiedPoint, form: str) -> Verdict:
    return Verdict(form, None, 0.0, selector.norm, Outcome.FAILED, selector.reason, None)


def _leading_level(selector: CertifiedPoint) -> int | None:
    votes = selector.tally(Stage.SELECTION)
    return None if votes is None else plurality(votes.independent_votes())


# PREDICT.


def possible_levels(votes: Tally, *, alpha: float) -> tuple[int, ...]:
    """The levels that the smoothed selector may give, except with probability α; empty without a finite answer.

    The level t of largest true probability is wrongly left out only if the leading level j ≠ t wins the one-sided sign
    test against it, at level α/(K-1) for each of the K-1 levels that j may be.
    """
    leading = plurality(votes)
    if leading is None:
        return ()
    most, share = int(votes.counts[leading]), alpha / (votes.num_classes - 1)
    return tuple(
        level
        for level in range(votes.num_classes)
        # The two-sided p-value is twice the one-sided one.
        if level == leading or float(sign_test_p_value(most, int(votes.counts[level]))) / 2 > share
    )


def combine_predictions(
    selector: CertifiedPoint, levels: Mapping[int, CertifiedPoint], selection: Selection
) -> CertifiedPoint:
    """PREDICT: the class that every level which may be selected answers significantly; otherwise an abstention.

    levels: the predictions of exactly those levels, each at (α - α_s)/K.
    """
    answers = {point.prediction for point in levels.values()}
    some = next(iter(levels.values()), selector)
    agreed = answers.pop() if len(answers) == 1 else None
    if not levels:
        outcome, reason = Outcome.FAILED, selector.reason
    elif agreed is not None:
        outcome, reason = Outcome.PREDICTED, None
    else:
        silent = [point for point in levels.values() if point.prediction is None]
        sigma = (silent or list(levels.values()))[0].sigma
        code = ReasonCode.LEVEL_PROVES_NOTHING if silent else ReasonCode.POSSIBLE_LEVELS_DIFFER
        outcome, reason = Outcome.ABSTAINED, Reason(code, {"sigma": sigma} if silent else {"levels": len(levels)})
    votes = selector.tally(Stage.PREDICTION)
    leading = None if votes is None else plurality(votes.independent_votes())
    return CertifiedPoint(
        index=selector.index,
        label=some.label,
        verdict=Verdict("", agreed if levels else None, 0.0, selector.norm, outcome, reason, None),
        sigma=math.nan if leading is None else selection.levels[leading],
        tallies=(),
        seconds=selector.seconds + math.fsum(point.seconds for point in levels.values()),
        grid=selector.grid,
    )
