"""Selectors and classifiers whose probabilities and true radius are exact, with votes drawn from their laws.

All are step functions of one coordinate. The votes of all stages are drawn from the multinomial laws and go through the
code of a run.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy import special

from coverage_judge import ROUNDING, Seen, Statements
from selected_lines import LineWorlds, Pieces
from selected_points import certify_part, selection_of_levels, votes_at
from smoothcert.questions import Votes
from smoothcert.questions.selected_points import choose_levels, combine_points
from smoothcert.records import CertifiedPoint, FloatArray, IntArray
from smoothcert.records.selection import Selection
from smoothcert.statistics import clopper_pearson_lower

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

    The certificate exceeds the true radius τ if either bound fails, so both shares are really needed. The classifier of
    level 1 answers class 0 everywhere.
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


def barely_decided(*, selector_alpha: float, level_alpha: float) -> World:
    """As `twice_at_the_edge`, at the fewest votes that prove anything: a level whose radius is too large, or 0."""

    def find_least(alpha: float) -> float:
        hits = next(hits for hits in range(N // 2, N) if clopper_pearson_lower(hits, N, alpha=alpha) > 0.5)
        return float(special.ndtri(beside(hits, alpha)))

    tau, reach = find_least(selector_alpha), find_least(level_alpha)
    return World(
        "both stages barely decided", ((tau,), (0, 1)), 1.0, (((100.0,), (0, 1)), ((tau,), (0, 1))),
        (0.5 * tau / reach, tau / reach),
    )  # fmt: skip


def one_after_the_other(*, selector_alpha: float, level_alpha: float) -> World:
    """Four levels that all answer class 0 at x, each up to its own worst p, and are taken somewhere.

    Level 2 is that of the nearest change, at τ, where both it and the selector are at their worst. Levels 3 and 4 are
    rarely taken, on the other side, and answer class 1 as soon as they are.
    """
    p, q = beside(270, selector_alpha), beside(280, level_alpha)
    tau, reach = float(special.ndtri(p)), float(special.ndtri(q))
    return World(
        "four levels, one after the other",
        ((-3.7, -3.4, tau), (3, 2, 0, 1)), 1.0,
        (((100.0,), (0, 1)), ((tau,), (0, 1)), ((-3.4,), (1, 0)), ((-3.7,), (1, 0))),
        (0.6, tau / reach, 3.4 / reach, 3.7 / reach),
    )  # fmt: skip


def two_at_once(level_alpha: float) -> World:
    """Level 2 is taken to the right and level 3 to the left, hardly farther than x, and nothing excludes them.

    Both change their class at the same distance, at their worst p.
    """
    reach = float(special.ndtri(beside(280, level_alpha)))
    return World(
        "two levels at once",
        ((-0.3, 0.301), (2, 0, 1)), 1.0,
        (((100.0,), (0, 1)), ((1.0,), (0, 1)), ((-1.0,), (1, 0))), (0.5, 1 / reach, 1 / reach + 1e-9),
    )  # fmt: skip


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
    """As a run does it; the shares of the parts can be replaced by wrong ones, for two-class bounds."""
    own, share = selector_alpha or selection.selector_alpha, level_alpha or selection.level_alpha
    selectors = certify_part([one.selector for one in parts], alpha=own)
    levels = [certify_part([one.levels[k] for one in parts], alpha=share) for k in range(len(selection.levels))]
    points = []
    for row, (one, selector) in enumerate(zip(parts, selectors, strict=True)):
        chosen = choose_levels(one.selector.selection, sampled=selection.sampled)
        points.append(combine_points(selector, {k: levels[k][row] for k in chosen}, selection, forms))
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
