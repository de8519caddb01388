"""How often what pairs of votes prove is wrong: exactly, by adding up all outcomes of few pairs, and by simulation.

Every simulated statement is judged by `coverage_judge`; the controls are procedures with a known mistake, which the
same judge must refute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import special, stats

from coverage_judge import ROUNDING, Case, Seen, Statements
from coverage_worlds import SIGMA, Line, beyond, draw_pairs, false_plain_radii, false_radii
from smoothcert.certificates import dipole_radius, gaussian_radius, get_portfolio
from smoothcert.records import PairTally, Proof, Stage, StreamId
from smoothcert.statistics import prove
from smoothcert.statistics.binomial import clopper_pearson_lower
from smoothcert.statistics.pairs import both_lower, one_sided_lower, pair_region, pairs_of_every_class
from stored_answers import certify_votes

STREAM = StreamId(1, 0, Stage.ESTIMATION)
DRAWS = 20_000
ALPHAS = [0.001, 0.05, 0.2]


def two_classes(both: Sequence[int], one_sided: Sequence[int], pairs: int) -> list[PairTally]:
    """Tallies of two classes, in which the first of two votes that differ is class 0 in every second pair."""
    found = []
    for s, d in zip(both, one_sided, strict=True):
        first, second = [d - d // 2, d // 2, 0], [d // 2, d - d // 2, 0]
        found.append(PairTally(STREAM, 1.0, np.array([s, pairs - s - d, 0]), first, second, ((0, pairs),)))
    return found


@dataclass(frozen=True)
class Regions:
    """The joint region of class 0 for many outcomes of one experiment."""

    both: np.ndarray
    share: np.ndarray
    radius: np.ndarray

    def misses(self, c_s: float, w: float) -> np.ndarray:
        """Whether no corner lies below the truth."""
        below = (self.both <= c_s) & (self.share <= w * (1 + ROUNDING))
        return ~below.any(axis=0)

    def exceeds(self, c_s: float, w: float) -> np.ndarray:
        """Whether the certified radius is larger than what Theorem 3 gives for the truth."""
        truth = float(dipole_radius(c_s, 0.5 * w * (1 - c_s), sigma=1.0))
        return self.radius > truth * (1 + ROUNDING)


def regions(both: np.ndarray, one_sided: np.ndarray, pairs: int, *, alpha: float) -> Regions:
    """One region per outcome; outcomes that were drawn twice are computed once."""
    outcomes, back = np.unique(np.stack([both, one_sided]), axis=1, return_inverse=True)
    lower_both, lower_one = pair_region(two_classes(*outcomes, pairs), [0] * outcomes.shape[1], alpha)
    radius = dipole_radius(lower_both, lower_one, sigma=1.0).min(axis=0)
    back = back.ravel()
    return Regions(lower_both[:, back], (2 * lower_one / (1 - lower_both))[:, back], radius[back])


BOTH = [0.0, 0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1 - 1e-6]
SHARE = [0.0, 0.001, 0.05, 0.3, 0.5, 0.9, 0.999, 1.0]


@pytest.mark.parametrize("pairs", [1, 2, 5, 40])
@pytest.mark.parametrize("alpha", [*ALPHAS, 0.49])
def test_exactly_no_truth_is_missed_more_often_than_alpha(pairs: int, alpha: float) -> None:
    """No simulation: the probabilities of all outcomes that miss are added up, for 80 truths."""
    both, one_sided = np.array([(s, d) for s in range(pairs + 1) for d in range(pairs + 1 - s)]).T
    found = regions(both, one_sided, pairs, alpha=alpha)
    counts = np.stack([both, one_sided, pairs - both - one_sided], axis=1)
    for c_s in BOTH:
        for w in SHARE:
            law = stats.multinomial.pmf(counts, pairs, [c_s, w * (1 - c_s), (1 - w) * (1 - c_s)])
            assert law.sum() == pytest.approx(1)
            assert law[found.misses(c_s, w)].sum() <= alpha
            assert law[found.exceeds(c_s, w)].sum() <= alpha


def test_exactly_the_region_is_not_wasteful() -> None:
    """Two thirds of an α of 0.2 are spent somewhere; a region that is merely huge would pass the test above."""
    pairs, alpha = 40, 0.2
    both, one_sided = np.array([(s, d) for s in range(pairs + 1) for d in range(pairs + 1 - s)]).T
    found = regions(both, one_sided, pairs, alpha=alpha)
    counts = np.stack([both, one_sided, pairs - both - one_sided], axis=1)
    spent = [
        stats.multinomial.pmf(counts, pairs, [c_s, w * (1 - c_s), (1 - w) * (1 - c_s)])[found.misses(c_s, w)].sum()
        for c_s in np.linspace(0.05, 0.95, 10)
        for w in np.linspace(0.05, 0.95, 10)
    ]
    assert max(spent) > 2 / 3 * alpha


TRUTHS = [
    (1000, 0.2, 1.0),
    (1000, 0.64, 0.8),
    (1000, 0.999, 0.5),
    (1000, 0.001, 0.001),
    (50_000, 0.81, 0.95),
    (500_000, 0.9999, 0.01),
]


def draw(pairs: int, c_s: float, w: float, *, draws: int = DRAWS) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng([pairs, round(1e6 * c_s), round(1e6 * w)])
    both, one_sided, _ = generator.multinomial(pairs, [c_s, w * (1 - c_s), (1 - w) * (1 - c_s)], size=draws).T
    return both, one_sided


def region_case(pairs: int, c_s: float, w: float, *, alpha: float) -> Case:
    def run() -> Statements:
        draws = DRAWS if pairs <= 1000 else 4000
        found = regions(*draw(pairs, c_s, w, draws=draws), pairs, alpha=alpha)
        return {
            "no corner below the truth": Seen.of(found.misses(c_s, w)),
            "the radius": Seen.of(found.exceeds(c_s, w)),
        }

    name = f"joint region, {pairs} pairs, C_S = {c_s:g}, w = {w:g}, α = {alpha:g}"
    return Case(name, alpha, run, proofs=(Proof.PAIR_REGION,))


HALF_SPACE = "one half-space"
INDEPENDENT = "votes at x+ε and x-ε independent"
SLAB = "a slab around x"


def shape(name: str, p: float) -> tuple[float, float]:
    """(C_S, C_N) of classifiers with P(class 0) = p."""
    return {HALF_SPACE: (2 * p - 1, 1 - p), INDEPENDENT: (p * p, p * (1 - p)), SLAB: (p, 0.0)}[name]


@pytest.mark.parametrize("pairs", [50_000, 500_000])
@pytest.mark.parametrize("name", [HALF_SPACE, INDEPENDENT, SLAB])
@pytest.mark.parametrize("p", [0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
def test_the_region_is_worth_more_than_two_bounds_at_half_of_alpha(pairs: int, name: str, p: float) -> None:
    """At α = 0.001, mean radius over 50 draws."""
    c_s, c_n = shape(name, p)
    counts = np.random.default_rng(3).multinomial(pairs, [c_s, c_n, c_n, max(1 - c_s - 2 * c_n, 0.0)], size=50)
    tallies = [
        PairTally(STREAM, 1.0, np.array([s, z, 0]), np.array([a, b, 0]), np.array([b, a, 0]), ((0, pairs),))
        for s, a, b, z in counts
    ]
    labels = [0] * len(tallies)
    together = dipole_radius(*pair_region(tallies, labels, 0.001), sigma=1.0).min(axis=0)
    apart = dipole_radius(both_lower(tallies, labels, 0.0005), one_sided_lower(tallies, labels, 0.0005), sigma=1.0)
    assert together.mean() > apart.mean()


def test_near_one_half_the_error_of_the_radius_falls_to_less_than_a_third() -> None:
    pairs = 500_000
    for p, gain in [(0.6, 3.5), (0.7, 2.3), (0.8, 1.4)]:
        c_s, c_n = shape(HALF_SPACE, p)
        tallies = two_classes([round(pairs * c_s)], [pairs - round(pairs * c_s)], pairs)
        truth = float(dipole_radius(c_s, c_n, sigma=1.0))
        together = float(dipole_radius(*pair_region(tallies, [0], 0.001), sigma=1.0).min())
        apart = dipole_radius(both_lower(tallies, [0], 0.0005), one_sided_lower(tallies, [0], 0.0005), sigma=1.0)
        assert truth - float(apart[0]) > gain * (truth - together)


TABLES = {
    "mixed": [[0.55, 0.10, 0.03, 0.01], [0.10, 0.02, 0.01, 0.0], [0.03, 0.01, 0.05, 0.02], [0.01, 0.0, 0.02, 0.04]],
    "nearly one class": [
        [0.994, 0.001, 0.0005, 0.0],
        [0.001, 0.001, 0.0, 0.0],
        [0.0005, 0.0, 0.001, 0.0],
        [0, 0, 0, 0.001],
    ],
    "opposites": [[0.0, 0.3, 0.1, 0.05], [0.3, 0.0, 0.02, 0.0], [0.1, 0.02, 0.06, 0.0], [0.05, 0.0, 0.0, 0.0]],
}
"""Joint laws of the votes at x+ε and x-ε over two classes more than one, and samples without an answer."""


def joint(name: str) -> np.ndarray:
    table = np.array(TABLES[name])
    assert (table == table.T).all()
    return table / table.sum()


def misses_any_class(name: str, *, pairs: int, trials: int, alpha: float) -> Seen:
    """Of many tallies, those for which one of the bounds on class 0 or on "not c", for any c, is above the truth."""
    table = joint(name)
    cells = np.random.default_rng(8).multinomial(pairs, table.ravel(), size=trials).reshape(trials, 4, 4)
    diagonal = np.einsum("tii->ti", cells)
    tallies = [
        PairTally(STREAM, 1.0, both, cell.sum(axis=1) - both, cell.sum(axis=0) - both, ((0, pairs),))
        for cell, both in zip(cells, diagonal, strict=True)
    ]
    both, one, neither, other = pairs_of_every_class(tallies, [0] * trials, alpha)
    assert both.shape == one.shape == (trials,)
    assert neither.shape == other.shape == (3, trials)
    p = table.sum(axis=1)
    true_both, true_one = table[0, 0], p[0] - table[0, 0]
    true_neither = np.array([1 - 2 * p[c] + table[c, c] for c in (1, 2, 3)])
    true_other = np.array([p[c] - table[c, c] for c in (1, 2, 3)])
    wrong = np.zeros(trials, dtype=bool)
    for s, n, c_s, c_n in [
        (both, one, true_both, true_one),
        *zip(neither, other, true_neither, true_other, strict=True),
    ]:
        wrong |= s > c_s * (1 + ROUNDING)
        wrong |= 2 * n / (1 - s) > 2 * c_n / (1 - c_s) * (1 + ROUNDING)
    return Seen.of(wrong)


def every_class(name: str, *, alpha: float) -> Case:
    return Case(
        f"pairs of every class, {name}, α = {alpha:g}",
        alpha,
        lambda: misses_any_class(name, pairs=400, trials=3000, alpha=alpha),
        proofs=(Proof.PAIRS_OF_EVERY_CLASS,),
    )


FORMS = ("dipole", "dipole-separate", "dipole-multi-class")
ONE_SIDE = Line.of("a half-space", (0, 0.8), (1, 0.2), num_classes=2)
BETWEEN = Line.of("a slab around x", (1, 0.1), (0, 0.8), (1, 0.1), num_classes=2)
EVEN_SLAB = Line.of("an even slab around x", (1, 0.25), (0, 0.5), (1, 0.25), num_classes=2)
CLASSES = Line.of("four classes", (2, 0.1), (0, 0.7), (1, 0.05), (3, 0.15), num_classes=4)
NO_ANSWER = Line.of("samples without an answer", (0, 0.75), (2, 0.15), (1, 0.1), num_classes=2)
WORST = Line.of(
    "the worst case of the theorem: a half-space and a slab",
    *((0, 0.15), (1, 0.1), (0, 0.5), (1, 0.25)),
    num_classes=2,
)


def certified(world: Line, *, pairs: int, alpha: float, repetitions: int = 3000) -> Case:
    """The three forms, and Cohen's radius from the same pairs, which may use one vote of each only."""
    names = (*FORMS, "gaussian", "gaussian-two-class")

    def run() -> Statements:
        found = draw_pairs(world, pairs=pairs, repetitions=repetitions)
        return false_radii(world, found, names, alpha=alpha)

    return Case(f"dipole …, {world}, {pairs} pairs, α = {alpha:g}", alpha, run, certificates=FORMS)


def separate(world: Line, *, pairs: int, alpha: float) -> Case:
    proofs = (Proof.PAIR_BOTH, Proof.PAIR_ONE_SIDED)

    def run() -> Statements:
        found = draw_pairs(world, pairs=pairs, repetitions=10_000, n0=200, seed=1)
        labels, truth = [world.top] * len(found.tallies), world.quantities(world.top)
        statements = {}
        for proof in proofs:
            ((quantity, values),) = prove(found.tallies, labels, (proof,), alpha=alpha).values[proof].items()
            statements[proof.value] = found.seen(beyond(quantity, values, truth[quantity]))
        return statements

    return Case(f"separate bounds, {world}, {pairs} pairs, α = {alpha:g}", alpha, run, proofs=proofs)


def best_of(world: Line, *, alpha: float) -> Case:
    def run() -> Seen:
        found = draw_pairs(world, pairs=150, repetitions=3000, seed=2)
        portfolio = get_portfolio("best-of(dipole,dipole-multi-class,gaussian)")
        points = certify_votes(found.votes, portfolio, alpha=alpha, smoothing=world.smoothing())
        true = np.array([SIGMA * world.radius(label) for label in found.labels])
        return found.seen(np.array([point.radius for point in points]) > true * (1 + ROUNDING))

    return Case(f"best of three over pairs, {world}, α = {alpha:g}", alpha, run)


CASES = [
    *(region_case(*truth, alpha=alpha) for truth in TRUTHS for alpha in ALPHAS),
    *(every_class(name, alpha=alpha) for name in TABLES for alpha in ALPHAS),
    *(certified(world, pairs=150, alpha=alpha) for world in (ONE_SIDE, BETWEEN, WORST) for alpha in (0.01, 0.2)),
    certified(EVEN_SLAB, pairs=150, alpha=0.05),
    certified(ONE_SIDE, pairs=9, alpha=0.2),
    certified(CLASSES, pairs=150, alpha=0.2, repetitions=1000),
    certified(NO_ANSWER, pairs=150, alpha=0.2, repetitions=1000),
    *(separate(world, pairs=200, alpha=alpha) for world in (ONE_SIDE, WORST) for alpha in (0.01, 0.2)),
    *(best_of(world, alpha=0.1) for world in (ONE_SIDE, WORST, EVEN_SLAB)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_no_more_often_than_said(case: Case) -> None:
    case.check_holds()


def plain_estimate() -> Statements:
    pairs, c_s, w = 1000, 0.64, 0.8
    both, one_sided = draw(pairs, c_s, w)
    radii = dipole_radius(both / pairs, one_sided / (2 * pairs), sigma=1.0)
    return {
        "the corner": Seen.of((both / pairs > c_s) | (one_sided / (pairs - both) > w)),
        "the radius": Seen.of(radii > dipole_radius(c_s, 0.5 * w * (1 - c_s), sigma=1.0)),
    }


def chained_at_alpha_each() -> Seen:
    """First the pairs with both votes, then the rest, each with the whole α: wrong about twice as often as α."""
    pairs, c_s, w = 1000, 0.64, 0.8
    both, one_sided = draw(pairs, c_s, w)
    first = clopper_pearson_lower(both, pairs, alpha=0.05) > c_s
    return Seen.of(first | (clopper_pearson_lower(one_sided, pairs - both, alpha=0.05) > w))


def region_at_four_times_alpha() -> Seen:
    pairs, c_s, w = 1000, 0.64, 0.8
    return Seen.of(regions(*draw(pairs, c_s, w), pairs, alpha=0.2).misses(c_s, w))


def the_best_corner() -> Seen:
    """The largest of the corners' radii instead of the smallest."""
    pairs, c_s, w = 1000, 0.64, 0.8
    both, one_sided = draw(pairs, c_s, w, draws=4000)
    outcomes, times = np.unique(np.stack([both, one_sided]), axis=1, return_counts=True)
    corners = pair_region(two_classes(*outcomes, pairs), [0] * outcomes.shape[1], 0.05)
    truth = float(dipole_radius(c_s, 0.5 * w * (1 - c_s), sigma=1.0))
    return Seen.of(dipole_radius(*corners, sigma=1.0).max(axis=0) > truth, times)


def both_votes_of_a_pair() -> Seen:
    """The two votes of a pair counted as independent, where they always agree."""
    found = draw_pairs(EVEN_SLAB, pairs=200, repetitions=5000, seed=3)
    hits = np.array([2 * t.both[0] + t.one_sided(0) for t in found.tallies if isinstance(t, PairTally)])
    radii = gaussian_radius(np.clip(clopper_pearson_lower(hits, 400, alpha=0.05), 1e-12, None), sigma=SIGMA)
    return found.seen(radii > 0)


def plain(world: Line, names: tuple[str, ...]) -> Callable[[], Statements]:
    return lambda: false_plain_radii(world, draw_pairs(world, pairs=150, repetitions=1000, seed=4), names)


CONTROLS = [
    Case("plain shares of pairs", 0.2, plain_estimate),
    Case("chained bounds at α each", 0.05, chained_at_alpha_each),
    Case("a region at 4α where α was promised", 0.05, region_at_four_times_alpha),
    Case("the best corner of a region", 0.05, the_best_corner),
    # Eight bounds at 0.05 each, sold as 0.05 altogether.
    Case("pairs of every class at α each", 0.05, lambda: misses_any_class("mixed", pairs=400, trials=3000, alpha=0.4)),
    Case("both votes of a pair as independent", 0.05, both_votes_of_a_pair),
    Case("plain shares of pairs in the theorems", 0.2, plain(WORST, FORMS), certificates=FORMS),
]


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_control_is_caught(control: Case) -> None:
    control.check_is_caught()


def test_the_levels_of_the_corners_add_up_to_no_more_than_alpha() -> None:
    """The corners are the steps of a staircase; its probability under two uniform p-values has a closed form."""
    from smoothcert.statistics.pairs import _corner_levels

    for alpha in (1e-90, 1e-12, 0.001, 0.05, 0.2, 0.49):
        first, second = _corner_levels(alpha)
        assert (np.diff(first) > 0).all()
        assert (np.diff(second) <= 0).all()
        steps = np.diff(first, append=1.0) * second
        assert first[0] + steps.sum() <= alpha
        assert special.ndtri(first[0]) < 0
