"""How often a radius or an answer of a selected sigma is wrong: selector and levels together, each at its own share.

Selector and classifiers are step functions of one coordinate, so that their probabilities and the true radius of G are
exact. The controls are procedures with a known mistake, which the same judge must refute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import special

from coverage_judge import ROUNDING, Case, Seen, Statements
from selected_points import certify_part, predict_part, selection_of_levels, tally_of, votes_at
from selected_worlds import (
    ALPHA,
    EVEN,
    EVEN_AND_AGREEING,
    MANY,
    RARE,
    REPETITIONS,
    SELECTOR_ALPHA,
    THREE,
    DrawnParts,
    N,
    World,
    barely_decided,
    beside,
    certify,
    count_false,
    draw_parts,
    levels_of,
    one_after_the_other,
    selector_at_the_edge,
    twice_at_the_edge,
    two_at_once,
)
from smoothcert.certificates.selected_sigma import selected_radius
from smoothcert.questions.selected_points import combine_predictions, exclude_levels, possible_levels
from smoothcert.records import CertifiedPoint, IntArray, Proof, Stage
from smoothcert.records.selection import Selection
from smoothcert.statistics import plurality


def certified(
    world: World,
    *,
    alpha: float = ALPHA,
    part: float = 0.5,
    bounds: str = "multi-class",
    sampled: int | None = None,
    note: str = "",
    **options: object,
) -> Case:
    """options: `upper_alpha`."""

    def run() -> Statements:
        selection = levels_of(
            world, alpha=alpha, selector_alpha=alpha * part, bounds=bounds, sampled=sampled, **options
        )
        return count_false(certify(draw_parts(world), selection), world)

    return Case(
        f"selected: {world}, {bounds}, {sampled or 'all'} sampled, α = {alpha:g}, {part:g} of it the selector's"
        + "".join(f", {word}" for word in (options, note) if word),
        alpha, run, proofs=(Proof.SELECTOR, Proof.LEVELS),
    )  # fmt: skip


LEFT = ALPHA - SELECTOR_ALPHA
"""What the selector leaves to a level; with multi-class bounds 7/8 of it."""
EDGE = twice_at_the_edge(selector_alpha=SELECTOR_ALPHA, level_alpha=LEFT)
EDGE_EACH = twice_at_the_edge(selector_alpha=SELECTOR_ALPHA, level_alpha=LEFT * 7 / 8)
EDGE_BEFORE = twice_at_the_edge(selector_alpha=SELECTOR_ALPHA, level_alpha=LEFT / 2)


@dataclass(frozen=True)
class PredictWorld:
    """chances: of the selector's levels; classes: of each level's classes; truth: the class of G."""

    name: str
    chances: tuple[float, ...]
    classes: tuple[tuple[float, ...], ...]
    truth: int


Possible = Callable[[object, float], tuple[int, ...]]


def count_wrong_predictions(world: PredictWorld, selection: Selection, possible: Possible | None = None) -> Seen:
    """How often the answer is another class than that of G; an abstention is not wrong."""
    generator = np.random.default_rng(23)
    votes = generator.multinomial(N, world.chances, size=REPETITIONS)
    classes = [generator.multinomial(N, chances, size=REPETITIONS) for chances in world.classes]
    wrong = []
    for row in range(REPETITIONS):
        tally = tally_of(votes[row], stage=Stage.PREDICTION, sigma=1.0)
        alpha = selection.selector_alpha
        found = possible_levels(tally, alpha=alpha) if possible is None else possible(tally, alpha)
        selector = predict_part(votes[row], sigma=1.0, alpha=alpha)
        levels = {k: predict_part(classes[k][row], sigma=1.0, alpha=selection.level_alpha) for k in found}
        answer = combine_predictions(selector, levels, selection).prediction
        wrong.append(answer is not None and answer != world.truth)
    return Seen.of(wrong)


SURE = ((1.0, 0.0), (0.0, 1.0))
TIED = PredictWorld("two levels tied", (0.5, 0.5), SURE, 0)
EIGHT_TIED = PredictWorld("eight levels tied", (0.125,) * 8, (SURE[0], *(SURE[1],) * 7), 0)
TIED_CLASSES = PredictWorld("tied classes at the level", (0.7, 0.3), ((0.5, 0.5), (0.0, 1.0)), 0)
TIED_TWICE = PredictWorld("levels and classes tied", (0.5, 0.5), ((0.5, 0.5), (0.0, 1.0)), 0)
EIGHT_TIED_TWICE = PredictWorld("eight levels and classes tied", (0.125,) * 8, ((0.5, 0.5), *((0.0, 1.0),) * 7), 0)


def predicted(world: PredictWorld, *, alpha: float = 0.1) -> Case:
    def run() -> Seen:
        selection = selection_of_levels(*(1.0 + k for k in range(len(world.chances))), alpha=alpha)
        return count_wrong_predictions(world, selection)

    return Case(f"selected PREDICT: {world.name}, α = {alpha:g}", alpha, run)


CASES = [
    *(certified(EDGE, bounds=bounds) for bounds in ("two-class", "multi-class")),
    certified(EDGE_EACH, note="7/8 of what is left for a level"),
    *(certified(EDGE_BEFORE, bounds=bounds, upper_alpha=None) for bounds in ("two-class", "multi-class")),
    *(
        certified(one_after_the_other(selector_alpha=SELECTOR_ALPHA, level_alpha=LEFT * share), bounds=bounds)
        for bounds, share in (("two-class", 1.0), ("multi-class", 7 / 8))
    ),
    certified(barely_decided(selector_alpha=0.15, level_alpha=0.3 * 7 / 16), alpha=0.3),
    certified(
        barely_decided(selector_alpha=0.3 * 15 / 16, level_alpha=0.3 * 7 / 16),
        alpha=0.3,
        note="all but the upper",
    ),
    *(
        certified(two_at_once(0.3 * share), alpha=0.3, bounds=bounds)
        for bounds, share in (("two-class", 1 / 2), ("multi-class", 7 / 16))
    ),
    certified(selector_at_the_edge(0.0495), part=0.99, bounds="two-class"),
    certified(selector_at_the_edge(0.0495 / 2), part=0.99, upper_alpha=None),
    # Level 2 does not answer the class, so the lower bound has all but the share of the upper one.
    certified(selector_at_the_edge(ALPHA * 15 / 16)),
    certified(selector_at_the_edge(ALPHA * 15 / 16), sampled=1),
    certified(selector_at_the_edge(ALPHA * (1 - 1e-6)), part=0.5, upper_alpha=1e-6 * ALPHA),
    certified(EVEN, part=0.99, bounds="two-class"),
    certified(EVEN, alpha=0.3, part=0.9),
    certified(EVEN, alpha=0.3, part=0.9, sampled=1),
    certified(EVEN_AND_AGREEING, alpha=0.3),
    certified(THREE, alpha=0.3),
    certified(THREE, alpha=0.3, sampled=2),
    certified(THREE, alpha=0.3, bounds="two-class"),
    certified(RARE, alpha=0.3, sampled=2),
    certified(RARE),
    certified(MANY, alpha=0.3, part=0.9),
    certified(MANY, alpha=0.3, part=0.9, upper_alpha=None),
    certified(THREE, alpha=0.3, upper_alpha=None),
    *(predicted(world) for world in (TIED, EIGHT_TIED, TIED_CLASSES, TIED_TWICE, EIGHT_TIED_TWICE)),
    predicted(TIED, alpha=0.4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_no_more_often_than_said(case: Case) -> None:
    case.check_holds()


def without_the_selectors_share() -> Statements:
    """The whole α for the levels, and once more for the selector."""
    world = twice_at_the_edge(selector_alpha=ALPHA, level_alpha=ALPHA)
    selection = levels_of(world, alpha=ALPHA, bounds="two-class")
    points = certify(draw_parts(world), selection, forms=("selected",), selector_alpha=ALPHA, level_alpha=ALPHA)
    return count_false(points, world, ("selected",))


def without_the_selectors_test() -> Statements:
    """The leading level is believed: the radius is that of its own class."""
    world = selector_at_the_edge(ALPHA)
    levels = certify_part([one.levels[0] for one in draw_parts(world)], alpha=ALPHA)
    taken = [plurality(one.selector.selection) for one in draw_parts(world)]
    failed = [k == 0 and own.radius > world.radius for k, own in zip(taken, levels, strict=True)]
    return {"the radius of the leading level": Seen.of(failed)}


def _with_leader_of(votes: Callable[[DrawnParts], IntArray], parts: list[DrawnParts]) -> list[DrawnParts]:
    """The same votes, with the leading level chosen by other ones."""
    return [
        replace(
            one,
            selector=replace(
                one.selector,
                selection=tally_of(votes(one), stage=Stage.SELECTION, sigma=one.selector.selection.sigma),
            ),
        )
        for one in parts
    ]


def _proving(one: DrawnParts) -> IntArray:
    return one.selector.estimation[0].counts


def levels_chosen_by_proving_votes() -> Statements:
    """Which level leads, and is sampled, is decided by the votes that then prove it."""
    selection = levels_of(EVEN, alpha=ALPHA, selector_alpha=0.99 * ALPHA, sampled=1, bounds="two-class")
    return count_false(certify(_with_leader_of(_proving, draw_parts(EVEN)), selection), EVEN)


def selection_votes_as_proof() -> Statements:
    """The selection votes prove the level that they chose: as many as an estimation has, and no estimation."""
    parts = [
        replace(one, selector=votes_at(chosen := one.selector.selection.counts, chosen, sigma=1.0))
        for one in draw_parts(EVEN, n0=N)
    ]
    selection = levels_of(EVEN, alpha=ALPHA, selector_alpha=0.99 * ALPHA, bounds="two-class")
    return count_false(certify(parts, selection), EVEN)


def best_of_sampled_levels() -> Statements:
    """Every level is sampled at the share of one, and the level with the best own radius is taken for the selected."""
    world = replace(MANY, name="", levels=((((0.0,), (0, 1)),) * 8), sigmas=tuple(1.0 + 0.01 * k for k in range(8)))
    selection = levels_of(world, alpha=ALPHA, selector_alpha=0.01 * ALPHA, sampled=1)
    parts = draw_parts(world, seed=3)
    each = [certify_part([one.levels[k] for one in parts], alpha=selection.level_alpha) for k in range(8)]
    return {"the best radius": Seen.of([max(level[row].radius for level in each) > 0 for row in range(REPETITIONS)])}


def largest_radius() -> Statements:
    """The largest radius of the levels in place of the smallest."""
    world = EVEN_AND_AGREEING
    selection = levels_of(world, alpha=0.3)
    parts = draw_parts(world)
    each = [certify_part([one.levels[k] for one in parts], alpha=selection.level_alpha) for k in range(2)]
    largest = [max(level[row].radius for level in each) for row in range(REPETITIONS)]
    return {"the radius": Seen.of(np.array(largest) > world.radius * (1 + ROUNDING))}


def selector_or_level() -> Statements:
    """max(R_s, R_j) in place of min(R_s, R_j)."""
    selection = levels_of(RARE, alpha=0.3, bounds="two-class")
    parts = draw_parts(RARE)
    selectors = certify_part([one.selector for one in parts], alpha=selection.selector_alpha)
    levels = certify_part([one.levels[0] for one in parts], alpha=selection.level_alpha)
    pairs = zip(selectors, levels, strict=True)
    return {"the radius": Seen.of([max(one.radius, own.radius) > RARE.radius for one, own in pairs])}


def spend_twice(world: World, find_answering: Callable[[Sequence[CertifiedPoint]], Sequence[int]]) -> Statements:
    """The sharper form where somebody else says which levels' radii are used.

    Of the repetitions in which selection votes say that level 1 leads and that both levels answer class 0.
    """
    selection = levels_of(world, alpha=0.3)
    parts = [
        one
        for seed in range(3)
        for one in draw_parts(world, seed=seed)
        if {plurality(votes.selection) for votes in (one.selector, *one.levels)} == {0}
    ]
    selectors = certify_part([one.selector for one in parts], alpha=selection.selector_alpha)
    levels = [certify_part([one.levels[k] for one in parts], alpha=selection.level_alpha) for k in range(2)]
    failed = []
    for selector, *each in zip(selectors, *levels, strict=True):
        excluded = exclude_levels(selector, 0, selection, answering=find_answering(each))
        radius = selected_radius(excluded, [level.radius if level.prediction == 0 else 0.0 for level in each])
        failed.append(radius > world.radius * (1 + ROUNDING))
    return {"the radius": Seen.of(failed)}


def a_share_spent_twice() -> Statements:
    """The lower bound has the share of a level whose own radius is used as well."""
    world = twice_at_the_edge(selector_alpha=0.3 * 15 / 16, level_alpha=0.3 * 7 / 16)
    return spend_twice(world, lambda levels: ())


def answers_by_proving_votes() -> Statements:
    """The lower bound has the share of a level if that level turns out to prove nothing."""
    world = barely_decided(selector_alpha=0.3 * 15 / 16, level_alpha=0.3 * 7 / 16)
    return spend_twice(world, lambda levels: [k for k, level in enumerate(levels) if level.prediction == 0])


def plain_shares() -> Statements:
    """Shares of votes as if they were the probabilities of the levels: wrong half of the time."""
    world = selector_at_the_edge(ALPHA)
    failed = []
    for one in draw_parts(world):
        counts = _proving(one)
        reach = float(special.ndtri(min(counts[0] / counts.sum(), 1 - 1e-12)))
        failed.append(reach > world.radius)
    return {"the exclusion": Seen.of(failed)}


def only_the_leading_level(tally: object, alpha: float) -> tuple[int, ...]:
    leading = plurality(tally)  # type: ignore[arg-type]
    return () if leading is None else (leading,)


def unshared(tally: object, alpha: float) -> tuple[int, ...]:
    return possible_levels(tally, alpha=min(0.99, alpha * 7))  # type: ignore[arg-type]


def predict_wrongly(world: PredictWorld, possible: Possible) -> Seen:
    selection = selection_of_levels(*(1.0 + k for k in range(len(world.chances))), alpha=0.1, selector_alpha=0.09)
    return count_wrong_predictions(world, selection, possible)


HARD = 0.22649
"""Just above P(Bin(300, 1/2) ≥ 157), and half of it above that of 161: both tests are at what they may be."""


def predict_twice() -> Seen:
    selection = selection_of_levels(1.0, 2.0, alpha=2 * HARD, selector_alpha=HARD, upper_alpha=0.0)
    return count_wrong_predictions(TIED_TWICE, selection)


CONTROLS = [
    Case("selected: the whole α for the levels, and again for the selector", ALPHA, without_the_selectors_share),
    Case("selected: the choice of the selector taken for certain", ALPHA, without_the_selectors_test),
    Case("selected: levels chosen by the votes that prove them", ALPHA, levels_chosen_by_proving_votes),
    Case("selected: selection votes as proof", ALPHA, selection_votes_as_proof),
    Case("selected: the level with the best proving votes", ALPHA, best_of_sampled_levels),
    Case("selected: the largest radius of all levels", 0.3, largest_radius),
    Case("selected: the radius of the selector or of the level", 0.3, selector_or_level),
    Case("selected: the share of a level spent twice", 0.3, a_share_spent_twice),
    Case("selected: what a level answers decided by the votes that prove it", 0.3, answers_by_proving_votes),
    Case("selected: plain shares of the selector's votes", 0.3, plain_shares),
    Case("selected PREDICT: only the leading level", 0.1, lambda: predict_wrongly(TIED, only_the_leading_level)),
    Case("selected PREDICT: the whole α for the levels, and again for the selector", HARD, predict_twice),
    Case(
        "selected PREDICT: α not shared by the tests against other levels",
        0.1,
        lambda: predict_wrongly(EIGHT_TIED, unshared),
    ),
]


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_control_is_caught(control: Case) -> None:
    control.check_is_caught()


def test_the_hardest_cases_come_near_to_what_they_may() -> None:
    """Bounds that never fail would pass all of the above: both shares are spent, one by each stage."""
    seen = count_false(
        certify(draw_parts(EDGE), levels_of(EDGE, alpha=ALPHA, selector_alpha=SELECTOR_ALPHA, bounds="two-class")), EDGE
    )
    # The selector's share fails always, and that of the level that answers another class beyond the edge.
    assert 0.8 * ALPHA < seen["selected"].failures / REPETITIONS <= 1.1 * ALPHA
    world = selector_at_the_edge(ALPHA * 15 / 16)
    seen = count_false(certify(draw_parts(world), levels_of(world, alpha=ALPHA)), world)
    assert 0.7 * ALPHA < seen["selected"].failures / REPETITIONS <= 1.1 * ALPHA
    edge = selector_at_the_edge(0.0495)
    alone = levels_of(edge, alpha=ALPHA, selector_alpha=0.0495, bounds="two-class")
    seen = count_false(certify(draw_parts(edge), alone), edge)
    assert seen["selected"].failures / REPETITIONS > 0.7 * ALPHA


def test_the_radii_of_the_worlds() -> None:
    """Read off by hand where they can be."""
    tau = float(special.ndtri(beside(270, SELECTOR_ALPHA)))
    assert EDGE.radius == pytest.approx(tau, rel=1e-9)
    assert selector_at_the_edge(0.04).radius == pytest.approx(float(special.ndtri(beside(270, 0.04))), rel=1e-9)
    assert EVEN.radius <= 1e-8
    assert EVEN_AND_AGREEING.radius == pytest.approx(0.9, rel=1e-6)
    assert [world.truth for world in (EDGE, EVEN, EVEN_AND_AGREEING, THREE, RARE, MANY)] == [0, 1, 0, 0, 0, 1]
