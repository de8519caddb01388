"""Points and predictions of a selected sigma against a second derivation, from counts and scipy's distributions.

The second derivation follows MATH.md, section 9: bounds by the quantiles of the beta law, radii by scipy's normal
quantile, the largest radius by its definition. It shares nothing with the code but the votes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from selected_points import (
    certify_part,
    predict_part,
    radius_by_definition,
    selection_of_levels,
    tally_of,
    votes_at,
)
from smoothcert.errors import InputError
from smoothcert.questions import Votes
from smoothcert.questions.selected_points import (
    choose_levels,
    combine_points,
    combine_predictions,
    exclude_levels,
    possible_levels,
)
from smoothcert.records import Outcome, Proof, ReasonCode, Smoothing, Stage
from smoothcert.statistics import noise_price

ALPHA, SELECTOR_ALPHA, SIGMA = 0.05, 0.02, 0.8
SIGMAS = (0.25, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Counts:
    """What was drawn: of each part selection counts, estimation counts, and estimation samples without an answer."""

    selector: tuple[tuple[int, ...], tuple[int, ...], int]
    levels: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]
    sampled: int
    bounds: str
    union: bool = False
    """Whether α is shared by the rule of earlier versions."""

    @property
    def upper_alpha(self) -> float | None:
        """A seventh of what the selector leaves, in multi-class bounds."""
        return None if self.union else (ALPHA - SELECTOR_ALPHA) / 7 if self.bounds == "multi-class" else 0.0


@st.composite
def counts(draw: st.DrawFn) -> Counts:
    size = draw(st.integers(2, 4))
    few, classes = st.integers(0, 9), draw(st.integers(2, 3))
    some = st.one_of(st.integers(0, 4), st.integers(0, 500), st.just(2000))

    def part(outputs: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        selection = draw(st.lists(few, min_size=outputs, max_size=outputs).filter(any))
        estimation = draw(st.lists(some, min_size=outputs, max_size=outputs).filter(any))
        return tuple(selection), tuple(estimation), draw(st.one_of(st.just(0), some))

    levels = tuple(part(classes) for _ in range(size))
    bounds = draw(st.sampled_from(["two-class", "multi-class"]))
    return Counts(part(size), levels, draw(st.integers(1, size)), bounds, draw(st.booleans()))


def lower(hits: int, n: int, alpha: float) -> float:
    return float(stats.beta.ppf(alpha, hits, n - hits + 1)) if hits else 0.0


def upper(hits: int, n: int, alpha: float) -> float:
    return float(stats.beta.ppf(1 - alpha, hits + 1, n - hits)) if hits < n else 1.0


def expected(drawn: Counts) -> tuple[dict[int, float], float]:
    """The radius of each class by the sharper form, and the radius of the published form."""
    votes, proving, invalid = drawn.selector
    size, n = len(votes), sum(proving) + invalid
    leading = votes.index(max(votes))
    ranked = sorted(range(size), key=lambda k: (-votes[k], k))[: drawn.sampled]
    left = ALPHA - SELECTOR_ALPHA
    share = left / drawn.sampled if drawn.union else left - (drawn.upper_alpha or 0.0)
    answers: dict[int, int] = {}
    reach: dict[int, float] = {}
    for k in ranked:
        selected, found, without = drawn.levels[k]
        answers[k] = selected.index(max(selected))
        p = lower(found[answers[k]], sum(found) + without, share)
        reach[k] = max(0.0, SIGMAS[k] * stats.norm.ppf(p)) if p > 0.5 else 0.0
    alone = lower(proving[leading], n, SELECTOR_ALPHA)
    two_class = SIGMA * stats.norm.ppf(alone) if alone > 0.5 else 0.0
    if drawn.bounds == "two-class":
        excluded = [0.0 if k == leading else two_class for k in range(size)]
    else:
        excluded = []
        for k in range(size):
            if drawn.union:
                below = above = SELECTOR_ALPHA / size
            else:
                # The share of a level is for the lower bound if the level cannot answer the class of the leading one.
                below = SELECTOR_ALPHA + (0.0 if answers.get(k) == answers[leading] else share)
                above = drawn.upper_alpha or 0.0
            p = lower(proving[leading], n, below)
            q = min(upper(proving[k], n, above), 1 - p)
            gap = SIGMA / 2 * (stats.norm.ppf(p) - stats.norm.ppf(q)) if p > 0 else 0.0
            excluded.append(0.0 if k == leading else max(0.0, gap))
    # Only the class of the leading level is claimed, if that level proves it.
    radii = {
        label: radius_by_definition(excluded, [reach[k] if answers.get(k) == label else 0.0 for k in range(size)])
        for label in {answers[leading]}
        if reach[leading] > 0
    }
    return radii, min(two_class, reach[leading])


@pytest.mark.slow
@given(counts())
@example(Counts(((5, 5), (500, 500), 0), (((9, 0), (2000, 0), 0), ((9, 0), (2000, 0), 0)), 2, "multi-class"))
# Level 2 answers the class by its selection votes, and proves nothing: its share is spent.
@example(
    Counts(
        ((5, 1, 0), (300, 99, 1), 0),
        (((0, 9), (0, 2000), 0), ((0, 9), (9, 9), 0), ((0, 9), (0, 9), 0)),
        3,
        "multi-class",
    )
)
@example(Counts(((5, 0), (2000, 4), 0), (((9, 0), (2000, 0), 0), ((0, 9), (0, 2000), 0)), 2, "multi-class"))
@example(Counts(((5, 0), (2000, 4), 500), (((9, 0), (500, 0), 0), ((9, 0), (500, 0), 0)), 1, "two-class"))
def test_points_are_those_of_the_second_derivation(drawn: Counts) -> None:
    selection = selection_of_levels(
        *SIGMAS[: len(drawn.levels)], sigma=SIGMA, alpha=ALPHA, selector_alpha=SELECTOR_ALPHA,
        sampled=drawn.sampled, bounds=drawn.bounds, upper_alpha=drawn.upper_alpha,
    )  # fmt: skip
    votes, proving, invalid = drawn.selector
    (selector,) = certify_part([votes_at(votes, proving, sigma=SIGMA, invalid=invalid)], alpha=SELECTOR_ALPHA)
    chosen = choose_levels(tally_of(votes, stage=Stage.SELECTION, sigma=SIGMA), sampled=drawn.sampled)
    levels = {
        k: certify_part(
            [votes_at(drawn.levels[k][0], drawn.levels[k][1], sigma=SIGMAS[k], invalid=drawn.levels[k][2])],
            alpha=selection.level_alpha,
        )[0]
        for k in chosen
    }
    point = combine_points(selector, levels, selection, ["selected", "selected-published"])
    radii, published = expected(drawn)
    best = max(radii.values(), default=0.0)
    assert point.radius == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert point.radius <= best * (1 + 1e-10) + 1e-12
    if point.prediction is not None:
        assert radii[point.prediction] == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert (point.outcome is Outcome.CERTIFIED) == (point.prediction is not None) == (point.radius > 0)
    (other,) = point.further
    assert other.radius == pytest.approx(published, rel=1e-9, abs=1e-9)
    assert other.radius <= published * (1 + 1e-10) + 1e-12
    for verdict in (point.verdict, other):
        if verdict.bounds is not None:
            assert verdict.bounds.alpha <= ALPHA
            assert set(verdict.bounds.spent) == {Proof.SELECTOR, Proof.LEVELS}
    if drawn.bounds == "two-class" or not drawn.union:
        assert point.radius >= other.radius  # exactly


def test_a_leading_level_that_is_not_sampled_is_refused() -> None:
    (selector,) = certify_part([votes_at([9, 0], [90, 10], sigma=SIGMA)], alpha=SELECTOR_ALPHA)
    (level,) = certify_part([votes_at([9, 0], [90, 10], sigma=0.5)], alpha=SELECTOR_ALPHA)
    selection = selection_of_levels(0.25, 0.5, sigma=SIGMA, sampled=1)
    with pytest.raises(InputError, match="was not sampled"):
        combine_points(selector, {1: level}, selection, ["selected"])


def test_a_certificate_about_another_level_excludes_nothing() -> None:
    """The selector's own certificate is about level 0; the level that leads here is 1."""
    (about_first,) = certify_part([votes_at([9, 0], [990, 10], sigma=SIGMA)], alpha=SELECTOR_ALPHA)
    other = votes_at([0, 9], [990, 10], sigma=SIGMA)
    selector = replace(about_first, tallies=(other.selection, *other.estimation))
    selection = selection_of_levels(0.25, 0.5, sigma=SIGMA, bounds="two-class")
    assert exclude_levels(selector, 1, selection, answering=(0, 1)) == [0.0, 0.0]
    several = selection_of_levels(0.25, 0.5, sigma=SIGMA)
    assert exclude_levels(selector, 1, several, answering=(0, 1)) == [0.0, 0.0]
    levels = {
        k: certify_part([votes_at([9, 0], [1000, 0], sigma=sigma)], alpha=0.01)[0]
        for k, sigma in enumerate((0.25, 0.5))
    }
    point = combine_points(selector, levels, selection, ["selected", "selected-published"])
    assert point.radius == levels[0].radius > 0
    assert point.further[0].radius == 0.0


def test_a_selector_without_answers_cannot_be_certified() -> None:
    (selector,) = certify_part([_without_selection(votes_at([1, 0], [0, 0], sigma=SIGMA, invalid=100))], alpha=0.02)
    assert selector.outcome is Outcome.FAILED
    votes = selector.tally(Stage.SELECTION)
    assert votes is not None
    assert choose_levels(votes, sampled=2) == ()
    selection = selection_of_levels(0.25, 0.5, sigma=SIGMA)
    point = combine_points(selector, {}, selection, ["selected", "selected-published"])
    assert (point.outcome, point.further[0].outcome) == (Outcome.FAILED, Outcome.FAILED)
    assert point.radius == point.further[0].radius == 0.0


def _without_selection(votes: Votes) -> Votes:
    """Selection votes of which none gave a finite answer."""
    return replace(votes, selection=tally_of([0, 0], stage=Stage.SELECTION, sigma=SIGMA, invalid=10))


def test_samples_without_an_answer_prove_no_level() -> None:
    """They count among the n, so that the leading level has 60 % and not all."""
    selection = selection_of_levels(
        0.25, 0.5, sigma=SIGMA, alpha=ALPHA, selector_alpha=SELECTOR_ALPHA, upper_alpha=0.004
    )
    (selector,) = certify_part([votes_at([9, 0], [600, 0], sigma=SIGMA, invalid=400)], alpha=SELECTOR_ALPHA)
    for changed, answering, below, above in (
        (None, (0, 1), SELECTOR_ALPHA / 2, SELECTOR_ALPHA / 2),
        (0.004, (0, 1), SELECTOR_ALPHA, 0.004),
        (0.004, (0,), ALPHA - 0.004, 0.004),
    ):
        used = replace(selection, upper_alpha=changed)
        reach = exclude_levels(selector, 0, used, answering=answering)[1]
        p, q = lower(600, 1000, below), upper(0, 1000, above)
        assert reach == pytest.approx(SIGMA / 2 * (stats.norm.ppf(p) - stats.norm.ppf(q)), rel=1e-9)
    p = lower(600, 1000, SELECTOR_ALPHA)
    for used in (replace(selection, bounds="two-class"), replace(selection, upper_alpha=0.0)):
        reach = exclude_levels(selector, 0, used, answering=(0, 1))[1]
        assert reach == pytest.approx(SIGMA * stats.norm.ppf(p), rel=1e-9)
        assert reach >= selector.radius


def test_noise_on_a_grid_is_paid_for_out_of_the_selectors_share() -> None:
    """The price of the tables is taken off first, and the rest is shared by the levels."""
    n, smoothing = 2_000_000, Smoothing(dimension=784, num_classes=2, grid=256)
    price = noise_price(smoothing, draws=n, sigma=SIGMA)
    selector_alpha = 3 * price
    (selector,) = certify_part(
        [votes_at([9, 0], [n // 2 + 20_000, n // 2 - 20_000], sigma=SIGMA)], alpha=selector_alpha, smoothing=smoothing
    )
    for bounds, share, upper_alpha, answering in (
        ("multi-class", 2 * price / 2, None, (0, 1)),
        ("multi-class", 2 * price, price, (0, 1)),
        ("multi-class", 2 * price + 4 * price, price, (0,)),
        ("two-class", 2 * price, 0.0, (0, 1)),
    ):
        selection = selection_of_levels(
            0.25, 0.5, sigma=SIGMA, alpha=8 * price, selector_alpha=selector_alpha, bounds=bounds, smoothing=smoothing,
            upper_alpha=upper_alpha,
        )  # fmt: skip
        p = lower(n // 2 + 20_000, n, share)
        reach = exclude_levels(selector, 0, selection, answering=answering)[1]
        assert reach == pytest.approx(SIGMA * stats.norm.ppf(p), rel=1e-7)
        assert reach <= SIGMA * stats.norm.ppf(p)
        free = exclude_levels(selector, 0, replace(selection, smoothing=Smoothing()), answering=answering)[1]
        assert free > reach or bounds == "two-class"  # the radius of two classes was made by the selector's own run


@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=5).filter(any),
    st.integers(0, 30),
    st.floats(1e-3, 0.49),
)
def test_possible_levels_are_those_that_do_not_lose_the_sign_test(found: list[int], invalid: int, alpha: float) -> None:
    """One-sided, against the level with most votes, at α/(K-1)."""
    votes = tally_of(found, stage=Stage.PREDICTION, sigma=SIGMA, invalid=invalid)
    possible = possible_levels(votes, alpha=alpha)
    most = max(found)
    if invalid > most:
        assert possible == ()
        return
    leading = found.index(most)
    for level, hits in enumerate(found):
        p_value = stats.binomtest(most, most + hits, 0.5, alternative="greater").pvalue if most + hits else 1.0
        threshold = alpha / (len(found) - 1)
        if level == leading or p_value > threshold * (1 + 1e-9):
            assert level in possible
        elif p_value < threshold * (1 - 1e-9):
            assert level not in possible


def test_the_levels_sampled_are_those_with_most_selection_votes() -> None:
    for found, sampled, wanted in (
        ([1, 5, 3], 1, (1,)),
        ([1, 5, 3], 2, (1, 2)),
        ([4, 4, 4], 2, (0, 1)),
        ([0, 0, 4], 2, (0, 2)),
        ([1, 5, 3], 3, (0, 1, 2)),
    ):
        assert choose_levels(tally_of(found, stage=Stage.SELECTION, sigma=1.0), sampled=sampled) == wanted
    assert choose_levels(tally_of([1, 2], stage=Stage.SELECTION, sigma=1.0, invalid=3), sampled=2) == ()


@pytest.mark.parametrize(
    ("votes", "classes", "prediction", "reason"),
    [
        # The selector is certain: one level answers.
        ((100, 0), ([95, 5], None), 0, None),
        ((100, 0), ([52, 48], None), None, ReasonCode.LEVEL_PROVES_NOTHING),
        # It is not: all levels that are possible must answer the same.
        ((52, 48), ([95, 5], [99, 1]), 0, None),
        ((52, 48), ([95, 5], [1, 99]), None, ReasonCode.POSSIBLE_LEVELS_DIFFER),
        ((52, 48), ([95, 5], [51, 49]), None, ReasonCode.LEVEL_PROVES_NOTHING),
    ],
)
def test_predictions(
    votes: tuple[int, int],
    classes: tuple[list[int], list[int] | None],
    prediction: int | None,
    reason: ReasonCode | None,
) -> None:
    selection = selection_of_levels(0.25, 0.5, sigma=SIGMA, alpha=ALPHA, selector_alpha=SELECTOR_ALPHA)
    selector = predict_part(votes, sigma=SIGMA, alpha=SELECTOR_ALPHA)
    possible = possible_levels(selector.tally(Stage.PREDICTION), alpha=SELECTOR_ALPHA)
    assert possible == tuple(level for level, found in enumerate(classes) if found is not None)
    levels = {
        level: predict_part(found, sigma=selection.levels[level], alpha=selection.level_alpha)
        for level, found in enumerate(classes)
        if found is not None
    }
    point = combine_predictions(selector, levels, selection)
    assert point.prediction == prediction
    assert point.outcome is (Outcome.ABSTAINED if prediction is None else Outcome.PREDICTED)
    assert (None if point.reason is None else point.reason.code) is reason
    assert point.sigma == 0.25


def test_without_an_answer_of_the_selector_there_is_no_prediction() -> None:
    selector = predict_part([10, 5], sigma=SIGMA, alpha=SELECTOR_ALPHA, invalid=85)
    assert possible_levels(selector.tally(Stage.PREDICTION), alpha=SELECTOR_ALPHA) == ()
    point = combine_predictions(selector, {}, selection_of_levels(0.25, 0.5))
    assert point.outcome is Outcome.FAILED
    assert np.isnan(point.sigma)
