"""Questions, looks and judges: what is decided when, and how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from smoothcert.questions.answers import Inquiry, check_can_ask, check_can_decide
from smoothcert.questions.certification import smoothing_of
from smoothcert.questions.questions import looks

from smoothcert.certificates import CERTIFICATES, get_portfolio
from smoothcert.errors import CorruptRunError, InputError
from smoothcert.questions import Decide, Precision, asked_question, parse_question, stated_question
from smoothcert.questions.deciding import DecidingJudge, least_probabilities
from smoothcert.questions.narrowing import NarrowingJudge
from smoothcert.records import Noise, Quantity, Smoothing
from smoothcert.records.envelopes import SemiElastic

FALSE_ALARM = 1e-6
REPETITIONS = 3000
GAUSSIAN = CERTIFICATES["gaussian"]
CONSTANT = Smoothing(dimension=10, num_classes=10)


def too_many(errors: int, alpha: float) -> bool:
    return bool(stats.binomtest(errors, REPETITIONS, alpha, alternative="greater").pvalue < FALSE_ALARM)


def test_looks_grow_by_about_fifteen_percent_and_end_at_n() -> None:
    found = looks(100_000)
    assert found[0] == 64
    assert found[-1] == 100_000
    growth = np.array(found[1:-1]) / np.array(found[:-2])
    assert growth.min() > 1.13
    assert growth.max() <= 1.15
    assert len(found) < 60
    assert looks(10) == (10,)
    assert looks(64) == (64,)
    # Those of a smaller n are a prefix, but for the last one.
    assert looks(5000)[:-1] == found[: len(looks(5000)) - 1]


def test_questions() -> None:
    assert parse_question(decide="0.5, 0.25,0.75", precision=None) == Decide((0.25, 0.5, 0.75))
    assert asked_question(decide=0.5, precision=None) == Decide((0.5,))
    assert asked_question(decide=None, precision=0.1) == Precision(0.1)
    assert asked_question(decide=None, precision=None) is None
    for question in (Decide((0.1, 0.2)), Precision(0.05)):
        assert stated_question({"n": 5, **question.parameters()}, run="r") == question
    assert stated_question({"n": 5}, run="r") is None


@pytest.mark.parametrize(
    ("decide", "precision", "sentence"),
    [
        ("0.25,zero", None, "cannot be read"),
        ("0", None, "positive finite"),
        ("-1", None, "positive finite"),
        ("nan", None, "positive finite"),
        ("0.5,0.5", None, "given twice"),
        ("0.5", 0.1, "ask one of them"),
        (None, 0.0, "positive finite distance"),
        (None, float("inf"), "positive finite distance"),
    ],
)
def test_questions_that_make_no_sense(decide: str | None, precision: float | None, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_question(decide=decide, precision=precision)


def test_a_manifest_that_says_nonsense_is_corrupt() -> None:
    for parameters in ({"decide": "x"}, {"decide": []}, {"decide": [0.1], "precision": 0.1}, {"precision": "x"}):
        with pytest.raises(CorruptRunError):
            stated_question(parameters, run="r")


def test_the_least_probability_of_a_gaussian_radius() -> None:
    radii = (0.1, 0.25, 0.5, 1.0)
    sigmas = np.array([0.25, 0.5, 0.25])
    found = least_probabilities(GAUSSIAN, radii, sigmas=sigmas, smoothing=CONSTANT)
    assert found.shape == (3, 4)
    np.testing.assert_allclose(1 - found, special.ndtr(-np.array(radii) / sigmas[:, None]), rtol=1e-9)
    for column, radius in enumerate(radii):
        forward = GAUSSIAN.radius({Quantity.TOP_LOWER: found[:, column]}, sigma=sigmas, smoothing=CONSTANT)
        assert (forward >= radius).all()
        less = found[:, column] - 1e-10 * (1 - found[:, column]) - 2 * np.spacing(found[:, column])
        assert (GAUSSIAN.radius({Quantity.TOP_LOWER: less}, sigma=sigmas, smoothing=CONSTANT) < radius).all()


@pytest.mark.parametrize("name", ["gaussian", "uniform-l1", "lecuyer", "li", "envelope"])
def test_the_least_probability_gives_the_radius_when_computed_forward(name: str) -> None:
    certificate = CERTIFICATES[name]
    envelope = SemiElastic(rate=0.05) if certificate.varying_sigma else None
    smoothing = CONSTANT
    if envelope is not None:
        smoothing = smoothing_of(envelope, dimension=10, num_classes=10, noise=Noise.GAUSSIAN)
    radii, sigmas = (0.05, 0.1), np.array([0.5, 0.6])
    found = least_probabilities(certificate, radii, sigmas=sigmas, smoothing=smoothing)
    for column, radius in enumerate(radii):
        p = {Quantity.TOP_LOWER: found[:, column]}
        assert (certificate.radius(p, sigma=sigmas, smoothing=smoothing) >= radius).all()


def test_a_radius_no_probability_gives() -> None:
    found = least_probabilities(
        CERTIFICATES["uniform-l1"], (0.4, 0.5, 0.6), sigmas=np.array([0.5]), smoothing=Smoothing(noise=Noise.UNIFORM)
    )
    assert found[0, 0] == pytest.approx(0.9)
    assert np.isnan(found[0, 1:]).all()
    judge = DecidingJudge(found, (0.4, 0.5, 0.6), n=1000, alpha=0.001)
    judge.look(np.array([0]), np.array([1000]), np.array([1000]))
    assert judge.radius.tolist() == [0.4]
    assert not judge.open.any()


def followed(judge: DecidingJudge | NarrowingJudge, p: np.ndarray, *, n: int, seed: int) -> np.ndarray:
    """Sample until nothing is open; returns how many samples each input took."""
    generator = np.random.default_rng(seed)
    hits, taken, at = np.zeros(p.size, dtype=np.int64), np.zeros(p.size, dtype=np.int64), 0
    for look in looks(n):
        rows = np.flatnonzero(judge.open)
        if not rows.size:
            break
        hits[rows] += generator.binomial(look - at, p[rows])
        taken[rows] = at = look
        judge.look(rows, hits[rows], np.full(rows.size, look))
    assert not judge.open.any()
    return taken


P0 = (0.7, 0.8, 0.9)
RADII = tuple(float(radius) for radius in special.ndtri(P0))


@pytest.mark.parametrize(("p", "true_radii"), [(0.7, 0), (0.8, 1), (0.9, 2)])
def test_all_answers_of_an_input_together_are_wrong_at_most_alpha_often(p: float, true_radii: int) -> None:
    """p exactly at one of the three hypotheses: that one and all above it are true; α is not split."""
    alpha, n = 0.05, 600
    judge = DecidingJudge(np.tile(P0, (REPETITIONS, 1)), RADII, n=n, alpha=alpha)
    followed(judge, np.full(REPETITIONS, p), n=n, seed=true_radii)
    largest = RADII[true_radii - 1] if true_radii else 0.0
    errors = int((judge.radius > largest).sum())
    assert not too_many(errors, alpha)
    assert errors > 0.05 * alpha * REPETITIONS  # the test has power: it spends α
    if true_radii:
        # What is true and far from the edge is found; a wrong "no" is as rare as a wrong "yes".
        assert (judge.radius >= RADII[true_radii - 1]).mean() > 1 - 2 * alpha


def test_a_larger_radius_counts_only_after_the_smaller_ones() -> None:
    """The bets are looked at one by one: a yes to 0.9 with the gate at 0.7 still closed proves nothing yet."""
    judge = DecidingJudge(np.array([P0]), RADII, n=10_000, alpha=0.001)
    judge._yes[0] = [False, True, True]
    assert judge.radius[0] == 0.0
    assert judge.probability[0] == 0.0
    judge._yes[0, 0] = True
    assert judge.radius[0] == RADII[2]
    assert judge.probability[0] == 0.9


def test_no_is_said_early_and_yes_too() -> None:
    p = np.array([0.5, 0.75, 0.85, 0.99])
    judge = DecidingJudge(np.tile(P0, (4, 1)), RADII, n=100_000, alpha=0.001)
    taken = followed(judge, p, n=100_000, seed=5)
    assert judge.radius.tolist() == [0.0, RADII[0], RADII[1], RADII[2]]
    assert (taken < 5000).all()


def test_what_cannot_be_reached_any_more_is_given_up() -> None:
    """Half of 100 votes missed, n = 110: whatever the last ten say, 0.7 is not proved."""
    judge = DecidingJudge(np.array([[0.7]]), (RADII[0],), n=110, alpha=1e-9)
    judge.look(np.array([0]), np.array([60]), np.array([100]))
    assert not judge.open[0]
    assert "undecided" in judge.nothing_certified(0, hits=60, trials=100, label=3)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.sampled_from([0.05, 0.001]))
def test_giving_up_never_changes_an_answer(misses: list[int], alpha: float) -> None:
    """Going on with what is left, as hits, never gives more than was certified when the judge closed."""
    n = 20 * len(misses)
    judge = DecidingJudge(np.array([P0]), RADII, n=n, alpha=alpha)
    hits = trials = 0
    for missed in misses:
        hits, trials = hits + 20 - missed, trials + 20
        judge.look(np.array([0]), np.array([hits]), np.array([trials]))
        if not judge.open[0]:
            break
    closed = judge.radius[0]
    if not judge._refuted.any():
        judge.look(np.array([0]), np.array([hits + n - trials]), np.array([n]))
        assert judge.radius[0] == closed or trials == n


def test_the_precise_radius() -> None:
    p, width, n = np.array([0.3, 0.5, 0.9, 0.99, 1.0]), 0.05, 100_000
    judge = NarrowingJudge(GAUSSIAN, width, sigmas=np.full(5, 0.25), smoothing=CONSTANT, n=n, alpha=0.001)
    taken = followed(judge, p, n=n, seed=1)
    truth = 0.25 * np.maximum(special.ndtri(np.minimum(p, 1 - 1e-16)), 0.0)
    assert (judge.radius <= truth).all()
    assert judge.radius[:2].tolist() == [0.0, 0.0]
    assert (truth - judge.radius)[2:4].max() < width
    # Of a unanimous input more is known with every sample; it stops when what n could add is too little.
    unanimous = np.full(1, 0.25)
    best = NarrowingJudge(GAUSSIAN, 1e-9, sigmas=unanimous, smoothing=CONSTANT, n=n, alpha=0.001)
    best.look(np.array([0]), np.array([n]), np.array([n]))
    assert best.radius[0] - width < judge.radius[4] < best.radius[0]
    assert taken.max() < 0.6 * n


@pytest.mark.parametrize("p", [0.6, 0.95])
def test_the_precise_radius_is_too_large_at_most_alpha_often(p: float) -> None:
    alpha, n = 0.05, 600
    judge = NarrowingJudge(GAUSSIAN, 0.05, sigmas=np.full(REPETITIONS, 0.25), smoothing=CONSTANT, n=n, alpha=alpha)
    followed(judge, np.full(REPETITIONS, p), n=n, seed=8)
    errors = int((judge.radius > 0.25 * special.ndtri(p)).sum())
    assert not too_many(errors, alpha)


def inquiry(question: Decide | Precision, *, n: int = 1000, name: str = "gaussian") -> Inquiry:
    return Inquiry(question, CERTIFICATES[name], CONSTANT, n=n, alpha=0.001)


def test_settings_under_which_nobody_can_be_certified() -> None:
    gaussian = get_portfolio("gaussian")
    with pytest.raises(InputError, match=r"n=5 at alpha=0.001 can never decide any radius.*use n ≥ \d+"):
        check_can_ask(Decide((0.1,)), gaussian, n=5, alpha=0.001)
    with pytest.raises(InputError, match=r"n=5 at alpha=0.001 can never certify.*use n ≥ (\d+)"):
        check_can_ask(Precision(0.1), gaussian, n=5, alpha=0.001)
    with pytest.raises(InputError, match=r"can never decide a radius of 0.75: it takes p > 0.99865.*use n ≥ 59\d\d"):
        check_can_decide(inquiry(Decide((0.25, 0.75))), sigma=0.25)
    check_can_decide(inquiry(Decide((0.25, 0.75)), n=6000), sigma=0.25)
    with pytest.raises(InputError, match="no probability below 1 gives so much by gaussian"):
        check_can_decide(inquiry(Decide((10.0,))), sigma=0.25)
    with pytest.raises(InputError, match="n0=0"):
        check_can_ask(Decide((0.1,)), gaussian, n=1000, alpha=0.001, n0=0)


@pytest.mark.parametrize("text", ["gaussian-two-class", "dipole", "second-order", "gaussian-soft"])
def test_certificates_that_need_more_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="no anytime-valid test"):
        check_can_ask(Precision(0.1), get_portfolio(text), n=1000, alpha=0.001)


@pytest.mark.parametrize("text", ["gaussian,li", "best-of(gaussian,dipole)"])
def test_several_certificates_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="name one"):
        check_can_ask(Decide((0.1,)), get_portfolio(text), n=1000, alpha=0.001)
