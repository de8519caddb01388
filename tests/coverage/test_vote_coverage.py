"""How often certificates and bounds from plain votes are wrong: fixed n, thinned votes, the best of several, PREDICT.

Votes are drawn from the multinomial laws of classifiers whose true radius is known. Every statement is judged by
`coverage_judge`; the controls are procedures with a known mistake, which the same judge must refute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import special

from coverage_judge import ROUNDING, Case, Seen, Statements
from coverage_worlds import SIGMA, Drawn, Line, beyond, draw_votes, false_plain_radii, false_radii, votes_of
from smoothcert.certificates import gaussian_radius, get_portfolio
from smoothcert.numerics.grid import law_error
from smoothcert.questions import Votes, predict_votes
from smoothcert.records import (
    CertifiedPoint,
    FloatArray,
    IntArray,
    Noise,
    Proof,
    Quantity,
    Smoothing,
    Stage,
    StreamId,
    Tally,
)
from smoothcert.statistics import (
    alpha_after_noise,
    clopper_pearson_lower,
    clopper_pearson_upper,
    noise_price,
    prove,
    sign_test_p_value,
)
from stored_answers import certify_votes, recertify_points

HALF_SPACE = Line.of("a half-space, p = .9", (0, 0.9), (1, 0.1), num_classes=2)
BARELY = Line.of("a half-space, p = .501", (0, 0.501), (1, 0.499), num_classes=2)
EVEN = Line.of("a half-space, p = ½", (0, 0.5), (1, 0.5), num_classes=2)
SURE = Line.of("a half-space, p = .9995", (0, 0.9995), (1, 0.0005), num_classes=2)


def beside_the_bound(hits: int, n: int, *, alpha: float) -> Line:
    """The hardest p of all: just below the bound of so many hits, which so many or more have with probability α."""
    p = float(clopper_pearson_lower(hits, n, alpha=alpha)) * (1 - 1e-7)
    return Line.of(f"p just below the bound of {hits} hits", (0, p), (1, 1 - p), num_classes=2)


RUNNERS_UP = Line.of("equal runners-up", (1, 0.31), (0, 0.38), (2, 0.31), num_classes=3)
FAR_RUNNER_UP = Line.of(
    "small classes before the runner-up", (0, 0.4), *((c, 0.04) for c in range(2, 12)), (1, 0.2), num_classes=12
)
MANY = Line.of("a hundred classes", (0, 0.406), *((c, 0.006) for c in range(1, 100)), num_classes=100)
UNANSWERED = Line.of("samples without an answer", (0, 0.6), (2, 0.25), (1, 0.15), num_classes=2)
UNIFORM = Line.of("a half-space, uniform noise", (0, 0.9), (1, 0.1), num_classes=2, noise=Noise.UNIFORM)
UNIFORM_EVEN = Line.of("an even half-space, uniform noise", (0, 0.5), (1, 0.5), num_classes=2, noise=Noise.UNIFORM)
UNIFORM_FAR = Line.of(
    "small classes before the runner-up, uniform noise", (0, 0.5), *((c, 0.05) for c in range(2, 8)), (1, 0.2),
    num_classes=8, noise=Noise.UNIFORM,
)  # fmt: skip

TIGHT = ("gaussian", "gaussian-two-class")
OLDER = ("lecuyer", "lecuyer-two-class", "li", "li-two-class", "renyi", "renyi-two-class")
IN_L1 = ("uniform-l1", "uniform-l1-two-class")


def certified(
    world: Line, names: tuple[str, ...], *, n: int, alpha: float, repetitions: int = 20_000, seed: int = 0
) -> Case:
    def run() -> Statements:
        found = draw_votes(world, n=n, repetitions=repetitions, seed=seed)
        return false_radii(world, found, names, alpha=alpha)

    return Case(f"{names[0]} …, {world}, n = {n}, α = {alpha:g}", alpha, run, certificates=names)


def wrong_bounds(world: Line, found: Drawn, proofs: Sequence[Proof], *, alpha: float) -> dict[Proof, np.ndarray]:
    """For each proof at α whether its bound is beyond the truth."""
    spent = {proof: prove(found.tallies, found.labels, (proof,), alpha=alpha).values[proof] for proof in proofs}
    truth = {label: world.quantities(label) for label in set(found.labels)}
    return {
        proof: np.logical_or.reduce(
            [beyond(q, value, np.array([truth[c][q] for c in found.labels])) for q, value in values.items()]
        )
        for proof, values in spent.items()
    }


def proved(world: Line, *, n: int, alpha: float, repetitions: int = 20_000) -> Case:
    """Each bound at α; and both of them together, as a certificate asks for them, at α in all."""
    both = (Proof.TOP, Proof.RUNNER_UP)

    def run() -> Statements:
        found = draw_votes(world, n=n, n0=200, repetitions=repetitions, seed=1)
        truth = {label: world.quantities(label) for label in set(found.labels)}
        alone = wrong_bounds(world, found, both, alpha=alpha)
        together = prove(found.tallies, found.labels, both, alpha=alpha)
        any_wrong = np.logical_or.reduce(
            [
                beyond(q, value, np.array([truth[c][q] for c in found.labels]))
                for values in together.values.values()
                for q, value in values.items()
            ]
        )
        return {proof.value: found.seen(wrong) for proof, wrong in alone.items()} | {"both": found.seen(any_wrong)}

    return Case(f"bounds, {world}, n = {n}, α = {alpha:g}", alpha, run, proofs=both)


def best_of(names: str, world: Line, *, n: int, alpha: float, repetitions: int = 20_000) -> Case:
    """The largest of several radii that were paid for together; and all of their bounds at once."""

    def run() -> Statements:
        found = draw_votes(world, n=n, n0=200, repetitions=repetitions, seed=2)
        portfolio = get_portfolio(names, best_of=True)
        points = certify_votes(found.votes, portfolio, alpha=alpha, smoothing=world.smoothing())
        true = np.array([SIGMA * world.radius(label) for label in found.labels])
        truth = {label: world.quantities(label) for label in set(found.labels)}
        any_wrong = [
            any(
                bool(beyond(q, np.asarray(bound.value), truth[label][q]))
                for verdict in (point.verdict, *point.further)
                if verdict.bounds is not None
                for q, bound in verdict.bounds.quantities.items()
            )
            for point, label in zip(points, found.labels, strict=True)
        ]
        return {
            "the largest radius": found.seen(np.array([point.radius for point in points]) > true * (1 + ROUNDING)),
            "all bounds at once": found.seen(any_wrong),
        }

    return Case(f"best-of({names}), {world}, α = {alpha:g}", alpha, run)


def thinned(world: Line, *, n: int, stored: tuple[int, ...], alpha: float) -> Case:
    """Stored in segments, certified again with fewer samples: the last segment used is thinned."""

    def run() -> Statements:
        points = _stored(world, stored=stored, repetitions=2000)
        again = recertify_points(points, get_portfolio("gaussian"), alpha=alpha, smoothing=world.smoothing(), n=n)
        radii = np.array([point.radius for point in again])
        top = [t.counts[0] for p in again if isinstance(t := p.tally(Stage.ESTIMATION), Tally)]
        assert len(top) == len(again)
        return {
            "the true radius": Seen.of(radii > SIGMA * world.radius(0) * (1 + ROUNDING)),
            "the law of the thinned votes": Seen.of(
                # As often in its upper tail as Bin(n, p): the tail probability of what was drawn is at most α.
                special.bdtrc(np.array(top) - 1, n, world.chances()[0]) <= alpha
            ),
        }

    return Case(f"thinned to {n} of {sum(stored)}, {world}, α = {alpha:g}", alpha, run)


@functools.cache
def _stored(world: Line, *, stored: tuple[int, ...], repetitions: int) -> list[CertifiedPoint]:
    generator = np.random.default_rng([3, *stored])
    segments = [generator.multinomial(size, world.chances(), size=repetitions) for size in stored]
    ends = np.cumsum((0, *stored))
    votes = [
        Votes(
            index=i, label=0, seconds=0.0,
            selection=Tally(StreamId(5, i, Stage.SELECTION), SIGMA, np.array([1, 0]), 0, ((0, 1),)),
            estimation=tuple(
                Tally(StreamId(5, i, Stage.ESTIMATION), SIGMA, part[i, :-1], int(part[i, -1]), ((int(a), int(b)),))
                for part, a, b in zip(segments, ends, ends[1:], strict=False)
            ),
        )
        for i in range(repetitions)
    ]  # fmt: skip
    return certify_votes(votes, get_portfolio("gaussian"), alpha=0.001, smoothing=world.smoothing())


PRICE, LEVEL, DRAWS = 2.0**-4, 0.2, 12


def grid_smoothing() -> Smoothing:
    """Noise from finite tables for an input so large that the tables cost a third of α."""
    dimension = int(PRICE / DRAWS / law_error(levels=256, sigma=SIGMA, dimension=10**12) * 0.999e12)
    smoothing = Smoothing(dimension=dimension, num_classes=2, grid=256)
    assert noise_price(smoothing, draws=DRAWS, sigma=SIGMA) == PRICE
    return smoothing


def votes_from_tables(*, alpha: float, smoothing: Smoothing) -> Statements:
    """All that the tables may differ from the exact law by falls on the class, whose p is just below the bound of
    unanimous votes at `alpha`. What is certified is the classifier with the exact noise."""
    exact = beside_the_bound(DRAWS, DRAWS, alpha=alpha)
    p = exact.chances()[0] + PRICE / DRAWS
    tables = Line.of("tables", (0, p), (1, 1 - p), num_classes=2)
    found = draw_votes(tables, n=DRAWS, n0=1000, repetitions=50_000, seed=18)
    return false_radii(exact, found, ("gaussian",), alpha=LEVEL, smoothing=smoothing)


def priced(share: float) -> Case:
    """share: of α, beside whose bound p lies: what is left after the price, or the whole, which an unpaid one fails."""

    def run() -> Statements:
        return votes_from_tables(alpha=share, smoothing=grid_smoothing())

    name = f"noise from finite tables, paid for, p beside the bound at {share:g}"
    return Case(name, LEVEL, run, proofs=(Proof.NOISE_TABLES,))


NEARLY_TIED = Line.of("two classes, nearly tied", (0, 0.5005), (1, 0.4995), num_classes=2)
NEARLY_ALL_TIED = Line.of(
    "ten classes, nearly tied", (0, 0.1009), *((c, 0.0999) for c in range(1, 9)), (9, 0.0999), num_classes=10
)
TIED_WITH_NO_ANSWER = Line.of("nearly tied with no answer", (1, 0.499), (2, 0.501), num_classes=2)


def prediction_votes(world: Line, *, n: int, repetitions: int) -> tuple[IntArray, IntArray]:
    counts = np.random.default_rng([4, n]).multinomial(n, world.chances(), size=repetitions)
    rows, times = np.unique(counts, axis=0, return_counts=True)
    return rows, times


def predicted(world: Line, *, n: int, alpha: float) -> Case:
    """A class other than the one the smoothed classifier gives, among nearly tied ones: the hardest case."""

    def run() -> Seen:
        repetitions = 20_000 if world.num_classes == 2 else 5000
        rows, times = prediction_votes(world, n=n, repetitions=repetitions)
        right = int(np.argmax(world.chances()))
        answers = [
            predict_votes(
                index=i, label=None, seconds=0.0, alpha=alpha,
                tally=Tally(StreamId(1, i, Stage.PREDICTION), SIGMA, row[:-1], int(row[-1]), ((0, n),)),
            ).prediction
            for i, row in enumerate(rows)
        ]  # fmt: skip
        return Seen.of([answer not in (None, right) for answer in answers], times)

    return Case(f"predict, {world}, n = {n}, α = {alpha:g}", alpha, run)


CASES = [
    *(
        certified(world, TIGHT, n=n, alpha=alpha)
        for world, n in [(HALF_SPACE, 300), (BARELY, 1000), (EVEN, 400)]
        for alpha in (0.001, 0.05, 0.2)
    ),
    *(
        certified(beside_the_bound(hits, n, alpha=alpha), TIGHT, n=n, alpha=alpha)
        for hits, n in [(2000, 2000), (12, 12), (540, 1000)]
        for alpha in (0.001, 0.05, 0.2)
    ),
    *(certified(RUNNERS_UP, TIGHT, n=n, alpha=0.05) for n in (30, 300)),
    *(certified(world, TIGHT, n=200, alpha=0.2, repetitions=2000) for world in (FAR_RUNNER_UP, MANY)),
    certified(UNANSWERED, TIGHT, n=200, alpha=0.05),
    certified(HALF_SPACE, TIGHT, n=300, alpha=0.49),
    certified(HALF_SPACE, OLDER, n=100, alpha=0.2),
    certified(FAR_RUNNER_UP, OLDER, n=400, alpha=0.2, repetitions=1000),
    *(certified(world, IN_L1, n=200, alpha=alpha) for world in (UNIFORM, UNIFORM_EVEN) for alpha in (0.001, 0.05)),
    certified(UNIFORM_FAR, IN_L1, n=400, alpha=0.2, repetitions=2000),
    *(
        proved(world, n=n, alpha=alpha)
        for world, n in [(HALF_SPACE, 300), (SURE, 8000), (RUNNERS_UP, 50), (UNANSWERED, 100)]
        for alpha in (0.01, 0.2)
    ),
    # Here top class and runner-up are nearly independent: bounds that are not paid for fail together too often.
    proved(FAR_RUNNER_UP, n=1000, alpha=0.05, repetitions=5000),
    best_of("gaussian,gaussian-two-class", HALF_SPACE, n=200, alpha=0.1),
    best_of("gaussian,gaussian-two-class", FAR_RUNNER_UP, n=1000, alpha=0.1, repetitions=5000),
    best_of("uniform-l1,uniform-l1-two-class", UNIFORM, n=200, alpha=0.1),
    *(
        thinned(world, n=n, stored=stored, alpha=alpha)
        for world, n, stored in [(HALF_SPACE, 390, (400,)), (EVEN, 333, (100, 200, 300)), (SURE, 7000, (6000, 4000))]
        for alpha in (0.01, 0.2)
    ),
    *(priced(share) for share in (alpha_after_noise(LEVEL, PRICE), LEVEL)),
    *(
        predicted(world, n=n, alpha=alpha)
        for world, n in [(NEARLY_TIED, 100), (NEARLY_TIED, 11), (NEARLY_ALL_TIED, 100), (TIED_WITH_NO_ANSWER, 100)]
        for alpha in (0.01, 0.2)
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_no_more_often_than_said(case: Case) -> None:
    case.check_holds()


# Controls. Each is a procedure that somebody has published or might think of.


def drawn_counts(world: Line, *, n: int, repetitions: int = 20_000, seed: int = 9) -> IntArray:
    return np.random.default_rng([seed, n]).multinomial(n, world.chances(), size=repetitions)


def beyond_radius(world: Line, lower: FloatArray) -> Seen:
    """How often Cohen's radius at these bounds on the top class is beyond the truth."""
    radii = gaussian_radius(np.clip(lower, 1e-12, 1 - 1e-12), sigma=SIGMA)
    return Seen.of(radii > SIGMA * world.radius(world.top) * (1 + ROUNDING))


def reused_selection() -> Seen:
    """The class is chosen on the votes that prove it: at even chances either of two classes may look certain."""
    counts = drawn_counts(EVEN, n=400)[:, :2]
    return beyond_radius(EVEN, clopper_pearson_lower(counts.max(axis=1), 400, alpha=0.05))


def some_selection_votes_reused() -> Seen:
    """The votes that chose are added to the fresh ones."""
    chose, fresh = drawn_counts(EVEN, n=200, seed=1), drawn_counts(EVEN, n=200, seed=2)
    winner = chose[:, :2].argmax(axis=1)
    hits = np.take_along_axis(chose + fresh, winner[:, None], axis=1)[:, 0]
    return beyond_radius(EVEN, clopper_pearson_lower(hits, 400, alpha=0.05))


def peeking() -> Seen:
    """Clopper–Pearson after every hundred samples, until it certifies the radius that is wanted."""
    steps = np.random.default_rng(10).binomial(100, 0.9, size=(20_000, 20)).cumsum(axis=1)
    lower = clopper_pearson_lower(steps, 100 * np.arange(1, 21), alpha=0.05)
    return beyond_radius(HALF_SPACE, lower.max(axis=1))


def upper_for_lower() -> Seen:
    """The upper end of the interval in place of the lower one."""
    return beyond_radius(HALF_SPACE, clopper_pearson_upper(drawn_counts(HALF_SPACE, n=300)[:, 0], 300, alpha=0.05))


def two_sided_from_one_sided() -> Seen:
    """An interval of two one-sided bounds at α each, stated as one of confidence 1-α."""
    hits = drawn_counts(HALF_SPACE, n=300)[:, 0]
    wrong_low = clopper_pearson_lower(hits, 300, alpha=0.05) > 0.9
    return Seen.of(wrong_low | (clopper_pearson_upper(hits, 300, alpha=0.05) < 0.9))


def confidence_doubled() -> Seen:
    """The lower end of a two-sided interval of confidence 1-4α is a one-sided bound at 2α, not at α."""
    return beyond_radius(HALF_SPACE, clopper_pearson_lower(drawn_counts(HALF_SPACE, n=300)[:, 0], 300, alpha=0.1))


def normal_approximation() -> Seen:
    """p̂ - z s/√n: with rare misses the sample spread is often too small."""
    hits = drawn_counts(SURE, n=2000)[:, 0]
    share = hits / 2000
    return beyond_radius(SURE, share + special.ndtri(0.05) * np.sqrt(share * (1 - share) / 2000))


def two_bounds_at_alpha_each() -> Seen:
    """The top class and its strongest opponent, both at the whole of α."""
    found = draw_votes(FAR_RUNNER_UP, n=1000, n0=1000, repetitions=5000, seed=11)
    wrong = wrong_bounds(FAR_RUNNER_UP, found, (Proof.TOP, Proof.RUNNER_UP), alpha=0.05)
    return found.seen(wrong[Proof.TOP] | wrong[Proof.RUNNER_UP])


def chosen_runner_up() -> Seen:
    """An upper bound on the class that came second among 20 selection votes, taken for one on every other class."""
    chances = np.array([0.4, 0.32, 0.28])
    generator = np.random.default_rng(12)
    chose, votes = (generator.multinomial(n, chances, size=20_000) for n in (20, 2000))
    second = 1 + chose[:, 1:].argmax(axis=1)
    bound = clopper_pearson_upper(np.take_along_axis(votes, second[:, None], axis=1)[:, 0], 2000, alpha=0.05)
    return Seen.of(bound < 0.32)


def every_class_at_alpha() -> Seen:
    """Upper bounds on each of a hundred classes at α, taken to hold together."""
    votes = drawn_counts(MANY, n=2000, repetitions=2000)[:, 1:100]
    return Seen.of((clopper_pearson_upper(votes, 2000, alpha=0.01) < 0.006).any(axis=1))


def best_of_four_levels() -> Seen:
    """The largest radius over four noise levels, each at the whole of α. The true radius is the same for all."""
    distance, levels = 0.5, np.array([0.2, 0.3, 0.4, 0.5])
    hits = np.random.default_rng(13).binomial(500, special.ndtr(distance / levels), size=(20_000, 4))
    lower = np.clip(clopper_pearson_lower(hits, 500, alpha=0.05), 1e-12, None)
    return Seen.of(gaussian_radius(lower, sigma=levels).max(axis=1) > distance)


def unpaid_best_of() -> Seen:
    """The better of two certificates at α each: all of their bounds must hold, and they fail in different ways."""
    found = draw_votes(FAR_RUNNER_UP, n=1000, n0=1000, repetitions=12_000, seed=14)
    whole = wrong_bounds(FAR_RUNNER_UP, found, (Proof.TOP,), alpha=0.1)
    halves = wrong_bounds(FAR_RUNNER_UP, found, (Proof.TOP, Proof.RUNNER_UP), alpha=0.05)
    return found.seen(whole[Proof.TOP] | halves[Proof.TOP] | halves[Proof.RUNNER_UP])


def split_after_looking() -> Seen:
    """The whole of α goes to the more useful of the two bounds: a split of α chosen by the votes."""
    found = draw_votes(HALF_SPACE, n=300, repetitions=20_000, seed=15)
    hits = np.array([tally.independent_votes().counts[0] for tally in found.tallies])
    # Where there were many hits the lower bound is said, where there were few the upper one; each has α for itself.
    lower, upper = (bound(hits, 300, alpha=0.05) for bound in (clopper_pearson_lower, clopper_pearson_upper))
    return found.seen(np.where(hits > 0.9 * 300, lower > 0.9, upper < 0.9))


def dropped_no_answers() -> Seen:
    """Samples without a finite answer are not counted: an attacker's classifier answers nothing where it would lose."""
    world = Line.of("", (0, 0.5), (2, 0.4), (1, 0.1), num_classes=2)
    counts = drawn_counts(world, n=200)
    lower = clopper_pearson_lower(counts[:, 0], counts[:, :2].sum(axis=1), alpha=0.05)
    return Seen.of(lower > world.chances()[0])


def dropped_bad_votes() -> Seen:
    """The last ten votes against the class are set aside as outliers."""
    counts = drawn_counts(HALF_SPACE, n=300)
    dropped = np.minimum(counts[:, 1], 10)
    return beyond_radius(HALF_SPACE, clopper_pearson_lower(counts[:, 0], 300 - dropped, alpha=0.05))


def rounded_up() -> Seen:
    """Radii rounded up to one decimal, of votes whose honest radius is just below a truth that lies just below it."""
    world = Line.of("", (0, 0.9712), (1, 0.0288), num_classes=2)
    hits = np.random.default_rng(16).binomial(100, 0.9712, size=1_000_000)
    counts, times = np.unique(hits, return_counts=True)
    radii = gaussian_radius(clopper_pearson_lower(counts, 100, alpha=0.05), sigma=1.0)
    assert not Seen.of(radii > world.radius(0), times).refutes(0.05)
    return Seen.of(np.ceil(10 * radii) / 10 > world.radius(0), times)


def n_chosen_after_looking() -> Seen:
    """Of three numbers of samples the one with the largest radius."""
    points = _stored(HALF_SPACE, stored=(400,), repetitions=2000)
    radii = [
        [
            point.radius
            for point in recertify_points(
                points, get_portfolio("gaussian"), alpha=0.05, smoothing=HALF_SPACE.smoothing(), n=n
            )
        ]
        for n in (60, 160, 400)
    ]
    return Seen.of(np.max(radii, axis=0) > SIGMA * HALF_SPACE.radius(0) * (1 + ROUNDING))


def thinned_votes_counted_again() -> Seen:
    """A part of the votes added to the whole as if it were fresh."""
    points = _stored(HALF_SPACE, stored=(400,), repetitions=2000)
    again = recertify_points(points, get_portfolio("gaussian"), alpha=0.05, smoothing=HALF_SPACE.smoothing(), n=399)
    hits = np.array(
        [sum(t.counts[0] for t in (p.tallies[1], q.tallies[1])) for p, q in zip(points, again, strict=True)]
    )
    return beyond_radius(HALF_SPACE, clopper_pearson_lower(hits, 799, alpha=0.05))


def unpaid_tables() -> Statements:
    """The same noise from finite tables, taken for the exact one."""
    return votes_from_tables(alpha=LEVEL, smoothing=Smoothing(num_classes=2))


def majority() -> Seen:
    """The class with most votes, without a test."""
    rows, times = prediction_votes(NEARLY_ALL_TIED, n=100, repetitions=5000)
    return Seen.of(rows[:, :-1].argmax(axis=1) != 0, times)


def winner_tested_as_if_named_before() -> Seen:
    """The winner among ten tested against a chance of one in ten, as if it had not been chosen for its votes."""
    rows, times = prediction_votes(NEARLY_ALL_TIED, n=100, repetitions=5000)
    significant = special.bdtrc(rows.max(axis=1) - 1, 100, 0.1) <= 0.05
    return Seen.of(significant & (rows.argmax(axis=1) != 0), times)


def no_answers_set_aside() -> Seen:
    """PREDICT without the samples that have no answer, though they are as many as the votes of the winner."""
    rows, times = prediction_votes(Line.of("", (1, 0.45), (2, 0.55), num_classes=2), n=100, repetitions=20_000)
    return Seen.of(sign_test_p_value(rows[:, 1], rows[:, 0]) <= 0.05, times)


def plain(world: Line, names: tuple[str, ...], *, n: int) -> Callable[[], Statements]:
    return lambda: false_plain_radii(world, draw_votes(world, n=n, repetitions=3000, seed=17), names)


CONTROLS = [
    Case("selection votes reused", 0.05, reused_selection),
    Case("selection votes added to the fresh ones", 0.05, some_selection_votes_reused),
    Case("looking at Clopper–Pearson until it suffices", 0.05, peeking),
    Case("upper bound for lower", 0.05, upper_for_lower),
    Case("two one-sided bounds sold as a two-sided interval", 0.05, two_sided_from_one_sided),
    Case("one-sided at 2α where α was promised", 0.05, confidence_doubled),
    Case("normal approximation", 0.05, normal_approximation),
    Case("two bounds at α each", 0.05, two_bounds_at_alpha_each),
    Case("only the selected runner-up is bounded", 0.05, chosen_runner_up),
    Case("a hundred classes at α each", 0.01, every_class_at_alpha),
    Case("best of four noise levels, unpaid", 0.05, best_of_four_levels),
    Case("best of two certificates, unpaid", 0.1, unpaid_best_of),
    Case("split of α chosen after looking", 0.05, split_after_looking),
    Case("samples without an answer dropped", 0.05, dropped_no_answers),
    Case("votes against the class dropped", 0.05, dropped_bad_votes),
    Case("radii rounded up to one decimal", 0.05, rounded_up),
    Case("number of samples chosen after looking", 0.05, n_chosen_after_looking),
    Case("thinned votes counted again", 0.05, thinned_votes_counted_again),
    Case("finite tables of the noise, unpaid", LEVEL, unpaid_tables),
    Case("majority without a test", 0.2, majority),
    Case("winner tested as if it had been named before", 0.05, winner_tested_as_if_named_before),
    Case("PREDICT without the samples that have no answer", 0.05, no_answers_set_aside),
    Case("plain shares of votes", 0.2, plain(HALF_SPACE, TIGHT + OLDER, n=100), certificates=TIGHT + OLDER),
    Case("plain shares of votes, uniform noise", 0.2, plain(UNIFORM, IN_L1, n=100), certificates=IN_L1),
]


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_control_is_caught(control: Case) -> None:
    control.check_is_caught()


def test_the_truths_are_true() -> None:
    """Radii of the classifiers above, by the formulas for half-spaces and by the two-class formulas they attain."""
    assert HALF_SPACE.radius(0) == pytest.approx(special.ndtri(0.9), abs=1e-9)
    assert EVEN.radius(0) == 0.0
    assert FAR_RUNNER_UP.radius(0) == pytest.approx(0.5 * (special.ndtri(0.4) - special.ndtri(0.2)), abs=1e-9)
    assert UNIFORM.radius(0) == pytest.approx(0.8, abs=1e-9)
    assert UNIFORM_FAR.radius(0) == pytest.approx(0.5 - 0.2, abs=1e-9)
    assert float(HALF_SPACE.quantities(0)[Quantity.PAIR_BOTH_LOWER]) == pytest.approx(0.8)
    assert votes_of(np.array([3, 1, 1]), 0).invalid == 1
