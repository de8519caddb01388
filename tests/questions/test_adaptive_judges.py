"""Questions, looks and monitors: what is decided when, and how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from sample_manifests import sample_manifest, sample_spec
from smoothcert.certificates import CERTIFICATES, get_portfolio
from smoothcert.cli.spec_options import build_question
from smoothcert.errors import CorruptRunError, InputError
from smoothcert.questions import Inquiry, check_question, describe_smoothing, make_inquiry
from smoothcert.questions.deciding import DecideMonitor, least_probabilities
from smoothcert.questions.narrowing import PrecisionMonitor
from smoothcert.questions.sequential import list_looks
from smoothcert.records import Noise, Quantity, Reason, ReasonCode, Smoothing
from smoothcert.records.envelopes import SemiElastic
from smoothcert.spec import Decide, FixedN, Precision, QuestionSpec, decode_manifest, make_question, to_json

FALSE_ALARM = 1e-6
REPETITIONS = 3000
GAUSSIAN = CERTIFICATES["gaussian"]
CONSTANT = Smoothing(dimension=10, num_classes=10)


def too_many(errors: int, alpha: float) -> bool:
    return bool(stats.binomtest(errors, REPETITIONS, alpha, alternative="greater").pvalue < FALSE_ALARM)


def test_looks_grow_by_about_fifteen_percent_and_end_at_n() -> None:
    found = list_looks(100_000)
    assert found[0] == 64
    assert found[-1] == 100_000
    growth = np.array(found[1:-1]) / np.array(found[:-2])
    assert growth.min() > 1.13
    assert growth.max() <= 1.15
    assert len(found) < 60
    assert list_looks(10) == (10,)
    assert list_looks(64) == (64,)
    # Those of a smaller n are a prefix, but for the last one.
    assert list_looks(5000)[:-1] == found[: len(list_looks(5000)) - 1]


def test_questions() -> None:
    asked = build_question(n=9, n0=4, decide="0.5, 0.25,0.75", precision=None)
    assert asked == Decide(radii=(0.25, 0.5, 0.75), n=9, n0=4)
    assert make_question(n=9, n0=4, decide=0.5) == Decide(radii=(0.5,), n=9, n0=4)
    assert make_question(n=9, n0=4, precision=0.1) == Precision(width=0.1, n=9, n0=4)
    assert make_question(n=9, n0=4) == FixedN(n=9, n0=4)
    for question in (Decide(radii=(0.1, 0.2), n=5, n0=1), Precision(width=0.05, n=5, n0=1), FixedN(n=5, n0=1)):
        document = to_json(sample_manifest(spec=sample_spec(question=question)))
        assert decode_manifest(document, source="r").spec.question == question


@pytest.mark.parametrize(
    ("decide", "precision", "sentence"),
    [
        ("0.25,zero", None, "is invalid: expected radii such as"),
        ("0", None, "positive finite"),
        ("-1", None, "positive finite"),
        ("nan", None, "positive finite"),
        ("0.5,0.5", None, "given twice"),
        ("0.5", 0.1, "use one of them"),
        (None, 0.0, "positive finite distance"),
        (None, float("inf"), "positive finite distance"),
    ],
)
def test_questions_that_make_no_sense(decide: str | None, precision: float | None, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build_question(n=100, n0=10, decide=decide, precision=precision)


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({"kind": "decide", "radii": "x", "n": 5, "n0": 1}, "spec.question.radii"),
        ({"kind": "decide", "radii": [], "n": 5, "n0": 1}, "no radius to decide.*spec.question"),
        ({"kind": "decide", "radii": [0.2, 0.1], "n": 5, "n0": 1}, "increasing order.*spec.question"),
        ({"kind": "decide", "radii": [0.1], "precision": 0.1, "n": 5, "n0": 1}, "unknown field `precision`"),
        ({"kind": "precision", "width": "x", "n": 5, "n0": 1}, "spec.question.width"),
        ({"kind": "precision", "width": 0.0, "n": 5, "n0": 1}, "precision of 0 is not possible.*spec.question"),
        ({"kind": "guess", "n": 5, "n0": 1}, "'guess'.*spec.question.kind"),
    ],
)
def test_a_manifest_that_says_nonsense_is_corrupt(question: dict[str, object], field: str) -> None:
    document = to_json(sample_manifest())
    document["spec"]["question"] = question
    with pytest.raises(CorruptRunError, match=field):
        decode_manifest(document, source="r")


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
        smoothing = describe_smoothing(envelope, dimension=10, num_classes=10, noise=Noise.GAUSSIAN)
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
    monitor = DecideMonitor(found, (0.4, 0.5, 0.6), n=1000, alpha=0.001)
    monitor.look(np.array([0]), np.array([1000]), np.array([1000]))
    assert monitor.radius.tolist() == [0.4]
    assert not monitor.open.any()


def followed(monitor: DecideMonitor | PrecisionMonitor, p: np.ndarray, *, n: int, seed: int) -> np.ndarray:
    """Sample until nothing is open; returns how many samples each input took."""
    generator = np.random.default_rng(seed)
    hits, taken, at = np.zeros(p.size, dtype=np.int64), np.zeros(p.size, dtype=np.int64), 0
    for look in list_looks(n):
        rows = np.flatnonzero(monitor.open)
        if not rows.size:
            break
        hits[rows] += generator.binomial(look - at, p[rows])
        taken[rows] = at = look
        monitor.look(rows, hits[rows], np.full(rows.size, look))
    assert not monitor.open.any()
    return taken


P0 = (0.7, 0.8, 0.9)
RADII = tuple(float(radius) for radius in special.ndtri(P0))


@pytest.mark.parametrize(("p", "true_radii"), [(0.7, 0), (0.8, 1), (0.9, 2)])
def test_all_answers_of_an_input_together_are_wrong_at_most_alpha_often(p: float, true_radii: int) -> None:
    """p exactly at one of the three hypotheses: that one and all above it are true; α is not split."""
    alpha, n = 0.05, 600
    monitor = DecideMonitor(np.tile(P0, (REPETITIONS, 1)), RADII, n=n, alpha=alpha)
    followed(monitor, np.full(REPETITIONS, p), n=n, seed=true_radii)
    largest = RADII[true_radii - 1] if true_radii else 0.0
    errors = int((monitor.radius > largest).sum())
    assert not too_many(errors, alpha)
    assert errors > 0.05 * alpha * REPETITIONS  # the test has power: it spends α
    if true_radii:
        # What is true and far from the edge is found; a wrong "no" is as rare as a wrong "yes".
        assert (monitor.radius >= RADII[true_radii - 1]).mean() > 1 - 2 * alpha


def test_a_larger_radius_counts_only_after_the_smaller_ones() -> None:
    """The bets are looked at one by one: a yes to 0.9 with the gate at 0.7 still closed proves nothing yet."""
    monitor = DecideMonitor(np.array([P0]), RADII, n=10_000, alpha=0.001)
    monitor._yes[0] = [False, True, True]
    assert monitor.radius[0] == 0.0
    assert monitor.probability[0] == 0.0
    monitor._yes[0, 0] = True
    assert monitor.radius[0] == RADII[2]
    assert monitor.probability[0] == 0.9


def test_no_is_said_early_and_yes_too() -> None:
    p = np.array([0.5, 0.75, 0.85, 0.99])
    monitor = DecideMonitor(np.tile(P0, (4, 1)), RADII, n=100_000, alpha=0.001)
    taken = followed(monitor, p, n=100_000, seed=5)
    assert monitor.radius.tolist() == [0.0, RADII[0], RADII[1], RADII[2]]
    assert (taken < 5000).all()


def test_what_cannot_be_reached_any_more_is_given_up() -> None:
    """Half of 100 votes missed, n = 110: whatever the last ten say, 0.7 is not proved."""
    monitor = DecideMonitor(np.array([[0.7]]), (RADII[0],), n=110, alpha=1e-9)
    monitor.look(np.array([0]), np.array([60]), np.array([100]))
    assert not monitor.open[0]
    reason = monitor.explain_abstention(0, hits=60, trials=100, label=3)
    numbers = {"radius": RADII[0], "votes": 60, "n": 100, "label": 3, "limit": 110}
    assert reason == Reason(ReasonCode.RADIUS_UNDECIDED, numbers)
    assert "undecided" in str(reason)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.sampled_from([0.05, 0.001]))
def test_giving_up_never_changes_an_answer(misses: list[int], alpha: float) -> None:
    """Continuing with what is left, as hits, never gives more than was certified when the monitor closed."""
    n = 20 * len(misses)
    monitor = DecideMonitor(np.array([P0]), RADII, n=n, alpha=alpha)
    hits = trials = 0
    for missed in misses:
        hits, trials = hits + 20 - missed, trials + 20
        monitor.look(np.array([0]), np.array([hits]), np.array([trials]))
        if not monitor.open[0]:
            break
    closed = monitor.radius[0]
    if not monitor._refuted.any():
        monitor.look(np.array([0]), np.array([hits + n - trials]), np.array([n]))
        assert monitor.radius[0] == closed or trials == n


def test_the_precise_radius() -> None:
    p, width, n = np.array([0.3, 0.5, 0.9, 0.99, 1.0]), 0.05, 100_000
    monitor = PrecisionMonitor(GAUSSIAN, width, sigmas=np.full(5, 0.25), smoothing=CONSTANT, n=n, alpha=0.001)
    taken = followed(monitor, p, n=n, seed=1)
    truth = 0.25 * np.maximum(special.ndtri(np.minimum(p, 1 - 1e-16)), 0.0)
    assert (monitor.radius <= truth).all()
    assert monitor.radius[:2].tolist() == [0.0, 0.0]
    assert (truth - monitor.radius)[2:4].max() < width
    # Of a unanimous input more is known with every sample; it stops when what n could add is too little.
    unanimous = np.full(1, 0.25)
    best = PrecisionMonitor(GAUSSIAN, 1e-9, sigmas=unanimous, smoothing=CONSTANT, n=n, alpha=0.001)
    best.look(np.array([0]), np.array([n]), np.array([n]))
    assert best.radius[0] - width < monitor.radius[4] < best.radius[0]
    assert taken.max() < 0.6 * n


@pytest.mark.parametrize("p", [0.6, 0.95])
def test_the_precise_radius_is_too_large_at_most_alpha_often(p: float) -> None:
    alpha, n = 0.05, 600
    monitor = PrecisionMonitor(GAUSSIAN, 0.05, sigmas=np.full(REPETITIONS, 0.25), smoothing=CONSTANT, n=n, alpha=alpha)
    followed(monitor, np.full(REPETITIONS, p), n=n, seed=8)
    errors = int((monitor.radius > 0.25 * special.ndtri(p)).sum())
    assert not too_many(errors, alpha)


def decide(*radii: float, n: int = 1000, n0: int = 100) -> Decide:
    return Decide(radii=radii, n=n, n0=n0)


def inquiry(question: QuestionSpec) -> Inquiry:
    return make_inquiry(question, get_portfolio("gaussian"), alpha=0.001, smoothing=CONSTANT)


def test_settings_under_which_nobody_can_be_certified() -> None:
    gaussian = get_portfolio("gaussian")
    with pytest.raises(InputError, match=r"n=5 at alpha=0.001 can never decide any radius.*use n ≥ \d+"):
        check_question(decide(0.1, n=5), gaussian, alpha=0.001)
    with pytest.raises(InputError, match=r"n=5 at alpha=0.001 can never certify.*use n ≥ (\d+)"):
        check_question(Precision(width=0.1, n=5, n0=100), gaussian, alpha=0.001)
    with pytest.raises(InputError, match=r"can never decide a radius of 0.75: it takes p > 0.99865.*use n ≥ 59\d\d"):
        inquiry(decide(0.25, 0.75)).check_level(0.25)
    inquiry(decide(0.25, 0.75, n=6000)).check_level(0.25)
    with pytest.raises(InputError, match="no probability below 1 gives it by gaussian"):
        inquiry(decide(10.0)).check_level(0.25)
    with pytest.raises(InputError, match="n0=0"):
        check_question(decide(0.1, n0=0), gaussian, alpha=0.001)


@pytest.mark.parametrize("text", ["gaussian-two-class", "dipole", "second-order", "gaussian-soft"])
def test_certificates_that_need_more_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="no anytime-valid test"):
        check_question(Precision(width=0.1, n=1000, n0=100), get_portfolio(text), alpha=0.001)


@pytest.mark.parametrize("text", ["gaussian,li", "best-of(gaussian,dipole)"])
def test_several_certificates_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="name one"):
        check_question(decide(0.1), get_portfolio(text), alpha=0.001)
