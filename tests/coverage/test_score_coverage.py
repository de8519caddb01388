"""How often bounds on means of scores, and radii from them, are wrong: scores from laws with known means.

Every statement is judged by `coverage_judge`; the controls are procedures with a known mistake, which the same judge
must refute.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from coverage_judge import Case, Seen, Statements
from coverage_worlds import ScoreLine, beyond, draw_scores, false_plain_radii, false_radii
from hoeffding_bounds import hoeffding_lower, hoeffding_upper
from smoothcert.questions import describe_smoothing
from smoothcert.records import FloatArray, Noise, Proof, Smoothing
from smoothcert.records.envelopes import Envelope, LipschitzSigma, SemiElastic
from smoothcert.statistics import (
    betting_lower,
    betting_upper,
    clopper_pearson_lower,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    prove,
)

N = 100
ROUNDING = 1e-12

Law = tuple[Callable[[np.random.Generator, tuple[int, int]], FloatArray], float]


def two_points(low: float, high: float, share: float) -> Law:
    """`high` with probability `share`."""
    return lambda generator, size: np.where(generator.random(size) < share, high, low), low + share * (high - low)


LAWS: dict[str, Law] = {
    "bernoulli 0.5": two_points(0.0, 1.0, 0.5),
    "bernoulli 0.95": two_points(0.0, 1.0, 0.95),
    "bernoulli 0.99": two_points(0.0, 1.0, 0.99),
    "bernoulli 0.02": two_points(0.0, 1.0, 0.02),
    "beta(9, 1)": (lambda generator, size: generator.beta(9, 1, size), 0.9),
    "beta(0.5, 0.5)": (lambda generator, size: generator.beta(0.5, 0.5, size), 0.5),
    "mostly 0.9, rarely 0": two_points(0.0, 0.9, 0.98),
    "mostly 0.4, rarely 1": two_points(0.4, 1.0, 0.03),
    "constant": two_points(0.7, 0.7, 0.5),
}


def sample(law: str, *, draws: int, n: int = N) -> tuple[FloatArray, float]:
    draw, mean = LAWS[law]
    return draw(np.random.default_rng([len(law), n]), (draws, n)), mean


def bounded(law: str, *, alpha: float, n: int = N, draws: int = 600) -> Case:
    def run() -> Statements:
        values, mean = sample(law, draws=draws, n=n)
        averages, variances = values.mean(axis=1), values.var(axis=1, ddof=1)
        above, below = mean + ROUNDING, mean - ROUNDING
        return {
            "betting from below": Seen.of([betting_lower(row, alpha=alpha) > above for row in values]),
            "betting from above": Seen.of([betting_upper(row, alpha=alpha) < below for row in values]),
            "bernstein from below": Seen.of(empirical_bernstein_lower(averages, variances, n, alpha=alpha) > above),
            "bernstein from above": Seen.of(empirical_bernstein_upper(averages, variances, n, alpha=alpha) < below),
            "hoeffding from below": Seen.of(hoeffding_lower(averages, n, alpha=alpha) > above),
            "hoeffding from above": Seen.of(hoeffding_upper(averages, n, alpha=alpha) < below),
        }

    return Case(f"means of {law}, n = {n}, α = {alpha:g}", alpha, run)


HARD = ScoreLine("a half-space, scores 0 and 1", edge=1.0)
SOFT = ScoreLine("a soft half-space", edge=1.2, softness=0.7)
SOFT_EVEN = ScoreLine("a soft half-space, mean ½", edge=0.0, softness=0.7)
RARELY_ZERO = ScoreLine("mostly .9, rarely 0", edge=2.05, high=0.9)
THREE = ScoreLine("three classes", edge=0.7, low=0.1, high=0.8, softness=0.5, share=0.7)
NO_ANSWER = ScoreLine("samples without an answer", edge=1.2, softness=0.3, invalid=0.2)
UNIFORM = ScoreLine("a half-space, uniform noise", edge=0.6, noise=Noise.UNIFORM)
UNIFORM_EVEN = ScoreLine("an even half-space, uniform noise", edge=0.0, noise=Noise.UNIFORM)

BETS = (Proof.SCORE_TOP, Proof.SCORE_OTHER)
BERNSTEIN = (Proof.SCORE_TOP_BERNSTEIN, Proof.SCORE_OTHER_BERNSTEIN)
GAUSSIAN = (
    "gaussian-soft",
    "gaussian-soft-two-class",
    "gaussian-soft-bernstein",
    "gaussian-soft-two-class-bernstein",
)
ENVELOPE = tuple(name.replace("gaussian", "envelope") for name in GAUSSIAN)
IN_L1 = tuple(name.replace("gaussian", "uniform-l1") for name in GAUSSIAN)
LIPSCHITZ = ("lipschitz", "lipschitz-two-class")


def proved(world: ScoreLine, *, alpha: float) -> Case:
    """Through the histogram, with the order that is drawn for each stream, at the price the certificates pay."""

    def run() -> Statements:
        found = draw_scores(world, n=N, repetitions=400)
        truth = world.quantities(0)
        statements = {}
        for proof in BETS + BERNSTEIN:
            ((quantity, values),) = prove(found.tallies, found.labels, (proof,), alpha=alpha).values[proof].items()
            statements[proof.value] = found.seen(beyond(quantity, values, truth[quantity]))
        return statements

    return Case(f"bounds, {world}, α = {alpha:g}", alpha, run, proofs=BETS + BERNSTEIN)


def certified(
    world: ScoreLine, names: tuple[str, ...], *, alpha: float, envelope: Envelope | None = None, repetitions: int = 300
) -> Case:
    """Where σ varies the worlds are half-spaces: their radius does not depend on it."""

    def run() -> Statements:
        found = draw_scores(world, n=N, repetitions=repetitions, seed=1)
        return false_radii(world, found, names, alpha=alpha, smoothing=smoothing(world, envelope))

    kind = "" if envelope is None else f", {type(envelope).__name__}"
    return Case(f"{names[0]} …, {world}{kind}, α = {alpha:g}", alpha, run, certificates=names)


def smoothing(world: ScoreLine, envelope: Envelope | None) -> Smoothing:
    if envelope is None:
        return world.smoothing()
    return describe_smoothing(envelope, dimension=5, num_classes=3, noise=world.noise)


ELASTIC, FLAT = SemiElastic(rate=0.1), LipschitzSigma(constant=0.05, floor=0.4)

CASES = [
    *(bounded(law, alpha=0.05) for law in LAWS),
    bounded("bernoulli 0.95", alpha=0.2, n=8),
    bounded("beta(9, 1)", alpha=0.2, n=1000, draws=200),
    *(proved(world, alpha=0.1) for world in (HARD, RARELY_ZERO, THREE, NO_ANSWER)),
    *(certified(world, GAUSSIAN, alpha=0.1) for world in (HARD, SOFT, THREE, NO_ANSWER)),
    certified(SOFT_EVEN, GAUSSIAN, alpha=0.3),
    certified(HARD, ENVELOPE, alpha=0.2, envelope=ELASTIC, repetitions=200),
    certified(SOFT, ENVELOPE, alpha=0.2, envelope=FLAT, repetitions=200),
    certified(HARD, LIPSCHITZ, alpha=0.2, envelope=FLAT),
    certified(SOFT_EVEN, LIPSCHITZ, alpha=0.2),
    *(certified(world, IN_L1, alpha=0.1) for world in (UNIFORM, UNIFORM_EVEN)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_no_more_often_than_said(case: Case) -> None:
    case.check_holds()


def normal_approximation() -> Seen:
    """mean - z s/√n: with rare low scores the sample spread is often too small."""
    values, mean = sample("mostly 0.9, rarely 0", draws=4000)
    return Seen.of(values.mean(axis=1) + special.ndtri(0.001) * values.std(axis=1, ddof=1) / np.sqrt(N) > mean)


def stakes_that_see_the_value() -> Seen:
    """The same game with each stake chosen after its value: 0 wherever the bet would lose."""
    values, mean = sample("beta(0.5, 0.5)", draws=4000)
    return Seen.of(np.log1p(0.5 * np.maximum(values - mean, 0.0)).sum(axis=1) >= np.log(1 / 0.001))


def bets_in_order_of_size() -> Seen:
    """A histogram read from the largest score down, in place of a random order."""
    values, mean = sample("beta(9, 1)", draws=500)
    return Seen.of([betting_lower(np.sort(row)[::-1], alpha=0.05) > mean for row in values])


def class_chosen_on_the_scores() -> Seen:
    """Twenty classes with the same mean score; the one that looks best is bounded from the same samples."""
    generator = np.random.default_rng(9)
    failed = []
    for _ in range(1000):
        scores = generator.dirichlet(np.full(20, 0.3), size=N)
        failed.append(betting_lower(scores[:, scores.mean(axis=0).argmax()], alpha=0.05) > 0.05)
    return Seen.of(failed)


def hoeffding_unbounded() -> Seen:
    """Hoeffding's margin for an interval of length 1, for exponential values, which have no largest."""
    values = np.random.default_rng(10).exponential(2.0, size=(4000, N))
    return Seen.of(values.mean(axis=1) - math.sqrt(math.log(1 / 0.05) / (2 * N)) > 2.0)


def votes_for_scores() -> Seen:
    """Clopper–Pearson for the votes, stated as a bound on the mean score: most votes are right with a score of .6."""
    values = np.random.default_rng(11).beta(12, 8, size=(4000, N))
    return Seen.of(clopper_pearson_lower((values > 0.5).sum(axis=1), N, alpha=0.05) > 0.6)


def no_answers_dropped() -> Seen:
    """Scores of the samples that have an answer only."""
    values = NO_ANSWER.scores(np.random.default_rng(12), (500, N))
    return Seen.of([betting_lower(row[np.isfinite(row)], alpha=0.05) > NO_ANSWER.mean() for row in values])


def cells_rounded_up() -> Seen:
    """Scores rounded up to a tenth before they are bounded from below."""
    values, mean = sample("beta(9, 1)", draws=500)
    return Seen.of([betting_lower(np.ceil(10 * row) / 10, alpha=0.05) > mean for row in values])


def upper_for_lower() -> Seen:
    values, mean = sample("beta(9, 1)", draws=500)
    return Seen.of([betting_upper(row, alpha=0.05) > mean for row in values])


def one_other_class() -> Seen:
    """The mean score of the class that came second in 10 samples, taken for that of the strongest other class."""
    generator = np.random.default_rng(13)
    failed = []
    for _ in range(500):
        # Other classes have mean scores .28 and .22, with wide laws.
        high = generator.random((510, 2)) < np.array([0.28, 0.22])
        second = high[:10].mean(axis=0).argmax()
        failed.append(betting_upper(high[10:, second].astype(np.float64), alpha=0.05) < 0.28)
    return Seen.of(failed)


def plain(world: ScoreLine, names: tuple[str, ...], envelope: Envelope | None = None) -> Callable[[], Statements]:
    return lambda: false_plain_radii(
        world, draw_scores(world, n=N, repetitions=400, seed=2), names, smoothing=smoothing(world, envelope)
    )


CONTROLS = [
    Case("normal approximation for scores", 0.001, normal_approximation),
    Case("stakes chosen after the value", 0.001, stakes_that_see_the_value),
    Case("bets in order of size", 0.05, bets_in_order_of_size),
    Case("class chosen on the scores that prove", 0.05, class_chosen_on_the_scores),
    Case("Hoeffding for values without a bound", 0.05, hoeffding_unbounded),
    Case("votes in place of scores", 0.05, votes_for_scores),
    Case("scores of samples with an answer only", 0.05, no_answers_dropped),
    Case("scores rounded up", 0.05, cells_rounded_up),
    Case("upper bound for lower, scores", 0.05, upper_for_lower),
    Case("only the class that came second", 0.05, one_other_class),
    Case("plain mean scores", 0.2, plain(SOFT, GAUSSIAN), certificates=GAUSSIAN),
    Case("plain mean scores, sigma varies", 0.2, plain(SOFT, ENVELOPE, ELASTIC), certificates=ENVELOPE),
    Case("plain mean scores, lipschitz", 0.2, plain(SOFT, LIPSCHITZ, FLAT), certificates=LIPSCHITZ),
    Case("plain mean scores, uniform noise", 0.2, plain(UNIFORM, IN_L1), certificates=IN_L1),
]


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_control_is_caught(control: Case) -> None:
    control.check_is_caught()


def test_betting_spends_most_of_alpha() -> None:
    """A bound that never misses would pass all of the above; this one misses at least a third as often as it may."""
    values, mean = sample("beta(9, 1)", n=1000, draws=1000)
    missed = sum(betting_lower(row, alpha=0.2) > mean for row in values)
    assert missed > 1000 * 0.2 / 3


@pytest.mark.parametrize("world", [HARD, SOFT, RARELY_ZERO, THREE, NO_ANSWER, UNIFORM], ids=str)
def test_the_truths_are_true(world: ScoreLine) -> None:
    """The mean of the scores, within six standard errors of 10⁵ draws."""
    scores = np.nan_to_num(world.scores(np.random.default_rng(99), (1, 100_000)))
    assert abs(scores.mean() - world.mean()) <= 6 * scores.std() / math.sqrt(100_000)
    assert SOFT.radius(0) == pytest.approx(1.2)
    assert UNIFORM.radius(0) == pytest.approx(0.6)
