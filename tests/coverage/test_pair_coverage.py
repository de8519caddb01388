"""Validity of what pairs of votes prove: exactly, by adding up all outcomes of few pairs, and by simulation of many.

Every simulation states its false-alarm rate and has a control: a wrong procedure that the same test must catch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import special, stats

from smoothcert.certificates import dipole_radius
from smoothcert.records import PairTally, Stage, StreamId
from smoothcert.statistics.binomial import clopper_pearson_lower
from smoothcert.statistics.pairs import both_lower, one_sided_lower, pair_region, pairs_of_every_class

STREAM = StreamId(1, 0, Stage.ESTIMATION)
DRAWS = 20_000
FALSE_ALARM = 1e-6
ALPHAS = [0.001, 0.05, 0.2]
ROUNDING = 1e-12
"""Relative; a bound is compared with a truth that float64 holds no better than this."""


def too_many(failures: int, trials: int, rate: float) -> bool:
    """Whether this many failures contradict a failure rate of at most `rate`, at false alarm 1e-6."""
    return bool(stats.binomtest(int(failures), trials, rate, alternative="greater").pvalue < FALSE_ALARM)


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


@pytest.mark.parametrize(("pairs", "c_s", "w"), TRUTHS)
def test_of_many_draws_no_more_than_alpha_miss(pairs: int, c_s: float, w: float) -> None:
    draws = DRAWS if pairs <= 1000 else 4000
    both, one_sided = draw(pairs, c_s, w, draws=draws)
    for alpha in ALPHAS:
        found = regions(both, one_sided, pairs, alpha=alpha)
        assert not too_many(found.misses(c_s, w).sum(), draws, alpha)
        assert not too_many(found.exceeds(c_s, w).sum(), draws, alpha)


def test_control_the_plain_estimate_misses() -> None:
    pairs, c_s, w = 1000, 0.64, 0.8
    both, one_sided = draw(pairs, c_s, w)
    misses = (both / pairs > c_s) | (one_sided / (pairs - both) > w)
    radii = dipole_radius(both / pairs, one_sided / (2 * pairs), sigma=1.0)
    assert too_many(misses.sum(), DRAWS, 0.2)
    assert too_many((radii > dipole_radius(c_s, 0.5 * w * (1 - c_s), sigma=1.0)).sum(), DRAWS, 0.2)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_control_two_bounds_at_alpha_each_miss(alpha: float) -> None:
    """The chained pair of bounds, each with the whole α, is wrong about twice as often as α."""
    pairs, c_s, w = 1000, 0.64, 0.8
    both, one_sided = draw(pairs, c_s, w)
    misses = (clopper_pearson_lower(both, pairs, alpha=alpha) > c_s) | (
        clopper_pearson_lower(one_sided, pairs - both, alpha=alpha) > w
    )
    assert too_many(misses.sum(), DRAWS, alpha)


def test_control_a_region_that_spends_more_than_it_says_misses() -> None:
    pairs, c_s, w = 1000, 0.64, 0.8
    found = regions(*draw(pairs, c_s, w), pairs, alpha=0.2)
    assert too_many(found.misses(c_s, w).sum(), DRAWS, 0.05)


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


def misses_any_class(name: str, *, pairs: int, trials: int, alpha: float) -> int:
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
    return int(wrong.sum())


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_bounds_on_every_class_hold_at_once(name: str, alpha: float) -> None:
    assert not too_many(misses_any_class(name, pairs=400, trials=3000, alpha=alpha), 3000, alpha)


def test_control_every_class_at_the_whole_alpha_misses() -> None:
    """Eight bounds at 0.05 each, sold as 0.05 altogether."""
    assert too_many(misses_any_class("mixed", pairs=400, trials=3000, alpha=8 * 0.05), 3000, 0.05)


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
