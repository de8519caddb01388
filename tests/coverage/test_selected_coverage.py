"""How often a radius or an answer of a selected sigma is wrong: selector and levels together, each at its own share.

Selector and classifiers are step functions of one coordinate, so that their probabilities and the true radius of G are
exact. Votes of all stages are drawn from the multinomial laws and go through the code of a run. The controls are
procedures with a known mistake, which the same judge must refute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import special

from coverage_judge import ROUNDING, Case, Seen, Statements
from selected_lines import LineWorlds, Pieces
from selected_points import certify_part, predict_part, selection_of_levels, tally_of, votes_at
from smoothcert.questions import Votes
from smoothcert.questions.selected_points import choose_levels, combine_points, combine_predictions, possible_levels
from smoothcert.records import CertifiedPoint, FloatArray, IntArray, Proof, Stage
from smoothcert.records.selection import Selection
from smoothcert.statistics import clopper_pearson_lower, plurality

REPETITIONS = 2000
N, N0 = 300, 30
FORMS = ("selected", "selected-published")


@dataclass(frozen=True)
class World:
    """One selector and one classifier for each level. selector, levels: (edges, answers), for noise of these levels."""

    name: str
    selector: tuple[tuple[float, ...], tuple[int, ...]]
    sigma: float
    levels: tuple[tuple[tuple[float, ...], tuple[int, ...]], ...]
    sigmas: tuple[float, ...]
    num_classes: int = 2

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def line(self) -> LineWorlds:
        def pieces(part: tuple[tuple[float, ...], tuple[int, ...]], count: int) -> Pieces:
            return Pieces(np.array([part[0]]), np.array([part[1]]), count)

        return LineWorlds(
            pieces(self.selector, len(self.levels)),
            np.array([self.sigma]),
            tuple(pieces(level, self.num_classes) for level in self.levels),
            np.array([self.sigmas]),
        )

    @property
    def chances(self) -> list[FloatArray]:
        """At x: of the selector's levels, then of the classes at each level."""
        origin = np.zeros((1, 1))
        return [self.line.taken(origin)[0, 0], *self.line.classes(origin)[0, 0]]

    @functools.cached_property
    def truth(self) -> int:
        return int(self.line.answer(np.zeros((1, 1)))[0][0, 0])

    @functools.cached_property
    def radius(self) -> float:
        """Where G first answers another class on the line: by bisection, in the first interval that shows one."""
        found = [np.inf]
        for direction in (-1.0, 1.0):
            grid = np.linspace(0.0, 12.0, 24_001)
            other = np.flatnonzero(self._answers(direction * grid) != self.truth)
            if other.size:
                low, high = grid[max(0, other[0] - 1)], grid[other[0]]
                for _ in range(60):
                    middle = 0.5 * (low + high)
                    changed = self._answers(np.array([direction * middle]))[0] != self.truth
                    low, high = (low, middle) if changed else (middle, high)
                found.append(float(high))
        return min(found)

    def _answers(self, points: FloatArray) -> IntArray:
        return self.line.answer(points[None, :])[0][0]


def beside(hits: int, alpha: float) -> float:
    """The hardest probability: just below the bound of so many hits of N, which so many have with probability α."""
    return float(clopper_pearson_lower(hits, N, alpha=alpha)) * (1 - 1e-9)


ALPHA, SELECTOR_ALPHA = 0.05, 0.025


def twice_at_the_edge(*, selector_alpha: float, level_alpha: float) -> World:
    """Level 2 is taken beyond τ and answers class 1 beyond τ, and both bounds are at their worst p.

    The certificate exceeds the true radius τ if either bound fails, so both shares are really needed.
    """
    p, q = beside(270, selector_alpha), beside(280, level_alpha)
    tau = float(special.ndtri(p))
    return World(
        "both stages at the edge",
        ((tau,), (0, 1)), 1.0,
        (((100.0,), (0, 1)), ((tau,), (0, 1))), (0.5, tau / float(special.ndtri(q))),
    )  # fmt: skip


def selector_at_the_edge(alpha: float) -> World:
    """Level 2 answers class 1 everywhere: the radius is that of the selector."""
    tau = float(special.ndtri(beside(270, alpha)))
    return World(
        "the selector at the edge", ((tau,), (0, 1)), 1.0, (((100.0,), (0, 1)), ((-100.0,), (0, 1))), (1.0, 2.0)
    )


EVEN = World("an even selector", ((-1e-9,), (0, 1)), 1.0, (((100.0,), (0, 1)), ((-100.0,), (0, 1))), (1.0, 2.0))
"""G is exactly at the border between level 1, which answers class 0, and level 2, which answers class 1."""

EVEN_AND_AGREEING = World(
    "an even selector whose levels agree", ((1e-3,), (0, 1)), 0.5, (((1.2,), (0, 1)), ((0.9,), (0, 1))), (0.6, 0.9)
)
THREE = World(
    "three levels, two of which agree", ((-0.4, 0.2, 1.5), (1, 0, 1, 2)), 1.0,
    (((1.1,), (0, 1)), ((0.9,), (0, 1)), ((-0.5,), (0, 1))), (0.5, 0.8, 1.2),
)  # fmt: skip
RARE = World(
    "a level that is rarely wanted", ((-0.9, 0.2, 1.0), (2, 0, 1, 2)), 1.0,
    (((0.8,), (0, 1)), ((1.4,), (0, 1)), ((-3.0,), (0, 1))), (0.5, 1.0, 2.0),
)  # fmt: skip
MANY = World(
    "eight levels, all but the first agree",
    (tuple(float(at) for at in special.ndtri(np.arange(1, 8) / 8 + np.array([1e-6] * 7))), tuple(range(8))), 1.0,
    (((-100.0,), (0, 1)), *((((100.0,), (0, 1)),) * 7)), tuple(0.25 * k for k in range(1, 9)),
)  # fmt: skip


@dataclass(frozen=True)
class DrawnParts:
    """Votes of one repetition: of the selector, and of every level."""

    selector: Votes
    levels: tuple[Votes, ...]


@functools.cache
def draw_parts(world: World, *, n0: int = N0, seed: int = 0) -> list[DrawnParts]:
    generator = np.random.default_rng([seed, 17])
    sigmas = (world.sigma, *world.sigmas)
    drawn = [
        (generator.multinomial(n0, chances, size=REPETITIONS), generator.multinomial(N, chances, size=REPETITIONS))
        for chances in (chances / chances.sum() for chances in world.chances)
    ]
    parts = []
    for row in range(REPETITIONS):
        selector, *levels = (
            votes_at(few[row], many[row], sigma=sigma, index=row)
            for (few, many), sigma in zip(drawn, sigmas, strict=True)
        )
        parts.append(DrawnParts(selector, tuple(levels)))
    return parts


def certify(
    parts: list[DrawnParts],
    selection: Selection,
    *,
    forms: tuple[str, ...] = FORMS,
    selector_alpha: float | None = None,
    level_alpha: float | None = None,
) -> list[CertifiedPoint]:
    """As a run does it; the shares can be replaced by wrong ones."""
    own, share = selector_alpha or selection.selector_alpha, level_alpha or selection.level_alpha
    spent = replace(selection, alpha=0.4, selector_alpha=own)  # what the multi-class bounds of the selector spend
    selectors = certify_part([one.selector for one in parts], alpha=own)
    levels = [certify_part([one.levels[k] for one in parts], alpha=share) for k in range(len(selection.levels))]
    points = []
    for row, (one, selector) in enumerate(zip(parts, selectors, strict=True)):
        chosen = choose_levels(one.selector.selection, sampled=selection.sampled)
        points.append(combine_points(selector, {k: levels[k][row] for k in chosen}, spent, forms))
    return points


def count_false(points: list[CertifiedPoint], world: World, forms: tuple[str, ...] = FORMS) -> Statements:
    """For each form how often G answers another class within the radius."""

    def is_false(point: CertifiedPoint, at: int) -> bool:
        verdict = (point.verdict, *point.further)[at]
        if verdict.prediction is None:
            return False
        return verdict.prediction != world.truth or verdict.radius > world.radius * (1 + ROUNDING)

    return {form: Seen.of([is_false(point, at) for point in points]) for at, form in enumerate(forms)}


def levels_of(world: World, **options: object) -> Selection:
    return selection_of_levels(*world.sigmas, sigma=world.sigma, **options)  # type: ignore[arg-type]


def certified(
    world: World, *, alpha: float = ALPHA, part: float = 0.5, bounds: str = "multi-class", sampled: int | None = None
) -> Case:
    def run() -> Statements:
        selection = levels_of(world, alpha=alpha, selector_alpha=alpha * part, bounds=bounds, sampled=sampled)
        return count_false(certify(draw_parts(world), selection), world)

    return Case(
        f"selected: {world}, {bounds}, {sampled or 'all'} sampled, α = {alpha:g}, {part:g} of it the selector's",
        alpha, run, proofs=(Proof.SELECTOR, Proof.LEVELS),
    )  # fmt: skip


EDGE = twice_at_the_edge(selector_alpha=SELECTOR_ALPHA, level_alpha=(ALPHA - SELECTOR_ALPHA) / 2)


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


def predicted(world: PredictWorld, *, alpha: float = 0.1) -> Case:
    def run() -> Seen:
        selection = selection_of_levels(*(1.0 + k for k in range(len(world.chances))), alpha=alpha)
        return count_wrong_predictions(world, selection)

    return Case(f"selected PREDICT: {world.name}, α = {alpha:g}", alpha, run)


CASES = [
    *(certified(EDGE, bounds=bounds) for bounds in ("two-class", "multi-class")),
    certified(selector_at_the_edge(0.0495), part=0.99, bounds="two-class"),
    certified(selector_at_the_edge(0.0495 / 2), part=0.99),
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
    *(predicted(world) for world in (TIED, EIGHT_TIED, TIED_CLASSES, TIED_TWICE)),
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


CONTROLS = [
    Case("selected: the whole α for the levels, and again for the selector", ALPHA, without_the_selectors_share),
    Case("selected: the choice of the selector taken for certain", ALPHA, without_the_selectors_test),
    Case("selected: levels chosen by the votes that prove them", ALPHA, levels_chosen_by_proving_votes),
    Case("selected: selection votes as proof", ALPHA, selection_votes_as_proof),
    Case("selected: the level with the best proving votes", ALPHA, best_of_sampled_levels),
    Case("selected: the largest radius of all levels", 0.3, largest_radius),
    Case("selected: the radius of the selector or of the level", 0.3, selector_or_level),
    Case("selected: plain shares of the selector's votes", 0.3, plain_shares),
    Case("selected PREDICT: only the leading level", 0.1, lambda: predict_wrongly(TIED, only_the_leading_level)),
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
    # The selector's share fails always, and that of one of two levels.
    assert 0.5 * ALPHA < seen["selected"].failures / REPETITIONS <= 0.9 * ALPHA
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
