"""From the points of a selector and of the levels to the points of the classifier that they make together.

The selector, and the base classifier of each level, are certified by themselves, with noise of their own, each at its
share of α. What is used of them is decided by selection votes: the leading level j, the sampled levels, the class c_k
that level k can be certified for, and c = c_j. All probabilities below are conditional on these votes, on which the
votes that prove something do not depend.

Neither bounds on several levels nor certificates of several levels have to hold at once. Let d_k be the infimum of the
distances |δ| at which H(x+δ) = k and level k does not answer c at x+δ: a number without chance. That G is c at every
distance below R is wrong if and only if R > min d_k. Let k be the level of this minimum, which does not depend on
chance either. As R ≤ max(E_k, R_k), with E_j = 0, the certificate is wrong only if

- E_k > d_k, for which the lower bound on p_j or the upper bound on p_k must be wrong, for this one k ≠ j, or
- R_k > d_k, for which the certificate of this one level must be wrong.

So α_s (lower bound) + α_u (upper bound) + α_l (level) = α is enough, for any number of levels. Where R_k = 0 by the
selection votes, because level k is not sampled or c_k ≠ c, only the first can happen: the lower bound has α_l too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import assert_never

import numpy as np

from smoothcert.certificates.selected_sigma import exclusion_radii, published_radius, selected_radius
from smoothcert.errors import InputError
from smoothcert.records import (
    Bounds,
    CertifiedPoint,
    Outcome,
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
        dtype=selector.dtype,
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
            # Nothing excludes the leading level, so no other class can get a radius.
            label = levels[leading].prediction
            answering = [k for k, point in levels.items() if label is not None and _chosen_class(point) == label]
            excluded = exclude_levels(selector, leading, selection, answering=answering)
            agreeing = {k: levels[k].radius for k in answering if levels[k].prediction == label}
            radii = [agreeing.get(level, 0.0) for level in range(len(excluded))]
            radius = 0.0 if label is None else selected_radius(excluded, radii)
        case _:
            raise InputError(f"there is no certificate {form} for a selected sigma: use {' or '.join(FORMS)}")
    return _make_verdict(form, label, radius, levels[leading], selection)


def _chosen_class(level: CertifiedPoint) -> int | None:
    """The class that a level can be certified for, by its selection votes."""
    votes = level.tally(Stage.SELECTION)
    return None if votes is None else plurality(votes.independent_votes())


def exclude_levels(
    selector: CertifiedPoint, leading: int, selection: Selection, *, answering: Collection[int]
) -> list[float]:
    """(K,) distances below which each level is certainly not selected; 0 for the leading one.

    answering: the levels whose selection votes are for the claimed class, so that their radii may be used.
    Error probability of one entry, not of all of them together: for an answering level at most `selector_alpha` +
    `upper_alpha`, for others also `level_alpha`. Where `upper_alpha` is None, `selector_alpha` for all together.
    """
    count = len(selection.levels)
    reach = selector.radius if selector.prediction == leading else 0.0
    match selection.bounds:
        case "two-class":
            return [0.0 if level == leading else reach for level in range(count)]
        case "multi-class" if selection.upper_alpha is None:
            return _exclude_together(selector, leading, selection)
        case "multi-class":
            return _exclude_each(selector, leading, selection, answering=answering, reach=reach)
        case _:
            assert_never(selection.bounds)


def _exclude_each(
    selector: CertifiedPoint, leading: int, selection: Selection, *, answering: Collection[int], reach: float
) -> list[float]:
    """One lower and one upper bound for each level. reach: of the selector's own certificate, by the same lower bound.

    Never below reach, so that the sharper form is never below the published one.
    """
    votes, alpha = _count_proving(selector, selection)
    uppers = _bound_above(votes, leading, alpha=selection.upper_alpha or 0.0)

    def exclude(share: float) -> list[float]:
        lower = float(clopper_pearson_lower(int(votes.counts[leading]), votes.n, alpha=share))
        return [float(radius) for radius in exclusion_radii(lower, uppers, sigma=selection.sigma)]

    closer, farther = exclude(alpha), exclude(_add_down(alpha, selection.level_alpha))
    return [
        0.0 if level == leading else max(reach, closer[level] if level in answering else farther[level])
        for level in range(len(uppers))
    ]


def _exclude_together(selector: CertifiedPoint, leading: int, selection: Selection) -> list[float]:
    """The rule of earlier versions: one lower bound and K-1 upper ones, each at an equal share, all of them at once."""
    votes, alpha = _count_proving(selector, selection)
    share = alpha / len(selection.levels)
    lower = float(clopper_pearson_lower(int(votes.counts[leading]), votes.n, alpha=share))
    uppers = _bound_above(votes, leading, alpha=share)
    return [float(radius) for radius in exclusion_radii(lower, uppers, sigma=selection.sigma)]


def _count_proving(selector: CertifiedPoint, selection: Selection) -> tuple[Tally, float]:
    """The selector's votes that prove something, and what the noise leaves of its share of α.

    A sample without a finite answer is a vote for no level, and G is defined by the most frequent level.
    """
    found = selector.tally(Stage.ESTIMATION)
    if found is None or (selector.bounds is not None and any(proof.anytime for proof in selector.bounds.spent)):
        raise InputError("multi-class bounds need a fixed number of the selector's votes: use two-class bounds")
    alpha = alpha_after_noise(selection.selector_alpha, price_of(found, selection.smoothing))
    return found.independent_votes(), alpha


def _bound_above(votes: Tally, leading: int, *, alpha: float) -> list[float]:
    """(K,) upper bounds on the probability of each level, each at level α (at 0: 1); nan for the leading level."""
    count = votes.num_classes
    uppers = np.ones(count)
    if alpha > 0:
        uppers = np.array(clopper_pearson_upper(votes.counts, np.full(count, votes.n), alpha=alpha), dtype=np.float64)
    uppers[leading] = math.nan
    return [float(upper) for upper in uppers]


def _add_down(a: float, b: float) -> float:
    """a + b, rounded down."""
    total = a + b
    while Fraction(total) > Fraction(a) + Fraction(b):
        total = math.nextafter(total, 0.0)
    return total


def _make_verdict(
    form: str, label: int | None, radius: float, leading: CertifiedPoint, selection: Selection
) -> Verdict:
    certified = label is not None and radius > 0
    bounds = None
    if label is not None:
        bounds = Bounds(label=label, quantities={}, spent=selection.list_shares(form))
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

    levels: the predictions of exactly those levels, each at `level_alpha`: all of α - α_s. The answer is wrong only if
    the level that H gives at x, which is one level whatever the votes are, is left out or is itself predicted wrongly.
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
        dtype=selector.dtype,
    )
