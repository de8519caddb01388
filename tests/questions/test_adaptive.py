"""Adaptive sampling as a user of the library has it: half-spaces, whose radii are known exactly."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from run_specs import finish_run, make_spec, without_times
from sample_models import DIMENSION, Linear, never_finite
from smoothcert import Outcome, SmoothedClassifier, Stage
from smoothcert.certificates import get_portfolio
from smoothcert.errors import InputError, InterruptedRunError
from smoothcert.questions import make_inquiry
from smoothcert.questions.sequential import SequentialInquiry
from smoothcert.records import CertifiedPoint, Proof, Quantity, ReasonCode, Smoothing, Tally
from smoothcert.records.envelopes import LipschitzSigma
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.store import read_manifest
from smoothcert.sigma import CallableRule
from smoothcert.spec import Decide, FixedN, Precision, QuestionSpec, RunSpec
from stored_answers import answer_again, fixed_inquiry

SIGMA = 0.25
RADII = (0.1, 0.25, 0.4)
DISTANCES = np.array([0.01, 0.05, 0.17, 0.2, 0.32, 0.6, 1.0])
CONSTANT = Smoothing(dimension=DIMENSION, num_classes=2)


def half_space() -> tuple[Linear, np.ndarray]:
    """A linear classifier, and inputs at these distances from its boundary."""
    direction = np.zeros(DIMENSION)
    direction[0] = 1.0
    inputs = np.zeros((DISTANCES.size, DIMENSION), dtype=np.float32)
    inputs[:, 0] = DISTANCES
    return Linear(direction, 0.0), inputs


def smoothed(**settings: object) -> tuple[SmoothedClassifier, np.ndarray]:
    model, inputs = half_space()
    given = {"sigma": SIGMA, "num_classes": 2, "seed": 4, "batch": 256, "input_range": None} | settings
    return SmoothedClassifier(model, **given), inputs


def drawn(point: CertifiedPoint) -> int:
    tally = point.tally(Stage.ESTIMATION)
    return 0 if tally is None else tally.n


def inquiry(question: QuestionSpec) -> SequentialInquiry:
    found = make_inquiry(question, get_portfolio("gaussian"), alpha=0.001, smoothing=CONSTANT)
    assert isinstance(found, SequentialInquiry)
    return found


@pytest.fixture(scope="module")
def decided() -> list[CertifiedPoint]:
    classifier, inputs = smoothed()
    return classifier.certify(inputs, n=20_000, decide=RADII, labels=[1] * len(inputs))


def test_each_input_gets_the_largest_radius_that_is_true(decided: list[CertifiedPoint]) -> None:
    largest = [max((radius for radius in RADII if radius < distance), default=0.0) for distance in DISTANCES]
    assert [point.radius for point in decided] == largest  # exactly R, so that radius >= R is true in a table
    assert [point.outcome is Outcome.CERTIFIED for point in decided] == [radius > 0 for radius in largest]


def test_easy_inputs_take_few_samples(decided: list[CertifiedPoint]) -> None:
    taken = [drawn(point) for point in decided]
    assert max(taken) < 20_000
    assert taken[-1] < 1000
    assert taken[0] < 1000


def test_the_bounds_name_the_test(decided: list[CertifiedPoint]) -> None:
    for point in decided:
        assert point.bounds is not None
        assert dict(point.bounds.spent) == {Proof.TOP_DECIDED: 0.001}
        if point.outcome is Outcome.CERTIFIED:
            bound = point.bounds.quantities[Quantity.TOP_LOWER]
            assert bound.method == Proof.TOP_DECIDED.value
            assert bound.value == pytest.approx(special.ndtr(point.radius / SIGMA), rel=1e-9)
            assert str(point.guarantee).startswith("Except with probability at most 0.001")
        else:
            assert point.reason is not None
            assert point.reason.code in (ReasonCode.RADIUS_REFUTED, ReasonCode.RADIUS_UNDECIDED)
            assert point.reason.numbers["radius"] == 0.1
            assert "a radius of 0.1" in str(point.reason)
            assert not point.bounds.quantities


def test_every_look_is_stored_and_the_answers_follow_from_the_votes(decided: list[CertifiedPoint]) -> None:
    for point in decided:
        ends = [tally.ranges for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION]
        assert ends[0] == ((0, 64),)
        assert all(after[0][0] == before[0][1] for before, after in itertools.pairwise(ends))
    again = answer_again(decided, inquiry(Decide(radii=RADII, n=20_000, n0=100)))
    assert again == decided


def test_sampling_stopped_as_soon_as_the_answer_was_there(decided: list[CertifiedPoint]) -> None:
    """One look earlier the question was open, at the last one it is not."""
    asked = inquiry(Decide(radii=RADII, n=20_000, n0=100))
    for point in decided:
        assert point.bounds is not None
        monitor, hits, trials = asked.monitor(np.array([SIGMA])), 0, 0
        for tally in point.tallies[1:]:
            assert monitor.open[0]
            assert isinstance(tally, Tally)
            hits, trials = hits + int(tally.counts[point.bounds.label]), trials + tally.n
            monitor.look(np.array([0]), np.array([hits]), np.array([trials]))
        assert not monitor.open[0]


def test_workers_and_batches_change_nothing(decided: list[CertifiedPoint]) -> None:
    for settings in ({"workers": 1}, {"batch": 33, "workers": 2}):
        classifier, inputs = smoothed(**settings)
        points = classifier.certify(inputs, n=20_000, decide=RADII, labels=[1] * len(inputs))
        assert without_times(points) == without_times(decided)


def test_the_votes_are_a_prefix_of_those_of_a_fixed_run(decided: list[CertifiedPoint]) -> None:
    classifier, inputs = smoothed(grid="float")  # this input alone lies on a grid, and all of them do not
    point = decided[5]
    (fixed,) = classifier.certify(inputs[5:6], n=drawn(point), indices=[5])
    assert fixed.tally(Stage.ESTIMATION) == point.tally(Stage.ESTIMATION)
    assert fixed.tally(Stage.SELECTION) == point.tally(Stage.SELECTION)


def test_precision() -> None:
    classifier, inputs = smoothed()
    points = classifier.certify(inputs, n=20_000, precision=0.08)
    for point, distance in zip(points, DISTANCES, strict=True):
        assert point.radius <= distance
        assert point.bounds is not None
        assert dict(point.bounds.spent) == {Proof.TOP_SEQUENCE: 0.001}
        if distance < 0.4:
            assert distance - point.radius < 0.08
    assert sum(map(drawn, points)) < 0.3 * 20_000 * len(points)
    again = answer_again(points, inquiry(Precision(width=0.08, n=20_000, n0=100)))
    assert again == points


def test_uniform_noise() -> None:
    model, inputs = half_space()
    uniform = SmoothedClassifier(model, sigma=0.5, noise="uniform", num_classes=2, seed=1, batch=64, input_range=None)
    points = uniform.certify(inputs, n=5000, decide=(0.1, 0.3))
    assert {point.verdict.certificate for point in points} == {"uniform-l1"}
    assert [point.radius for point in points[-2:]] == [0.3, 0.3]
    assert all(point.radius <= distance for point, distance in zip(points, DISTANCES, strict=True))


def test_a_sigma_that_varies() -> None:
    """Every input has a least probability of its own for the same radius."""
    model, inputs = half_space()
    rule = CallableRule(lambda x: 0.25 + 0.01 * float(x[0]), envelope=LipschitzSigma(constant=0.01, floor=0.2))
    varying = SmoothedClassifier(model, sigma=rule, num_classes=2, seed=1, batch=64, input_range=None)
    points = varying.certify(inputs[3:], n=5000, decide=(0.1, 0.25))
    assert {point.verdict.certificate for point in points} == {"envelope"}
    assert [point.radius for point in points] == [0.1, 0.25, 0.25, 0.25]
    least = [point.bounds.quantities[Quantity.TOP_LOWER].value for point in points if point.bounds]
    assert len(set(least)) == 4


def test_an_input_without_an_answer_draws_nothing() -> None:
    classifier = SmoothedClassifier(never_finite, sigma=0.1, num_classes=10, seed=1, batch=64)
    (point,) = classifier.certify(np.zeros((1, 4), dtype=np.float32), n=1000, n0=20, decide=0.1)
    assert point.outcome is Outcome.FAILED
    assert drawn(point) == 0


def test_stopped_votes_are_never_read_as_a_fixed_number_of_them(decided: list[CertifiedPoint]) -> None:
    with pytest.raises(InputError, match="bounds for a fixed number of samples do not hold"):
        answer_again(decided, fixed_inquiry("gaussian", alpha=0.001, smoothing=CONSTANT))


def test_what_cannot_be_asked() -> None:
    classifier, inputs = smoothed()
    with pytest.raises(InputError, match="use one of them"):
        classifier.certify(inputs, decide=0.1, precision=0.1)
    with pytest.raises(InputError, match="no anytime-valid test"):
        classifier.certify(inputs, decide=0.1, certificate="dipole")
    with pytest.raises(InputError, match="can never decide a radius of 1: "):
        classifier.certify(inputs, decide=1.0, n=1000)


def test_with_a_memory(tmp_path: Path) -> None:
    """A region is claimed with the radius that was decided; the answers of the votes are those without one."""
    classifier, inputs = smoothed(memory=tmp_path / "regions.sqlite")
    apart = inputs * np.float32(1.0)
    apart[:, 1] = 10.0 * np.arange(len(inputs))
    with classifier:
        points = classifier.certify(apart, n=5000, decide=(0.1,))
    for point, distance in zip(points, DISTANCES, strict=True):
        assert point.radius == (0.1 if distance > 0.1 else 0.0)
        assert (point.promise is not None) == (distance > 0.1)


def spec(**settings: object) -> RunSpec:
    given = {
        "task": "certify", "model": "sample_models:digits_by_brightness", "num_classes": 10, "data": "digits",
        "sigma": 0.1, "n0": 20, "n": 1000, "alpha": 0.01, "max_inputs": 70, "seed": 1, "batch": 64,
        "decide": "0.02,0.05",
    } | settings  # fmt: skip
    return make_spec(**given)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("adaptive") / "run"
    finish_run(spec(), out)
    return out


def test_a_run_resumes_to_the_same_points(run: Path, tmp_path: Path) -> None:
    """Seventy inputs are two shards; the second one is made by another process with another number of workers."""
    out = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        finish_run(spec(), out, stop_after=1)
    resumed = finish_run(spec(workers=1), out)
    with_all = finish_run(spec(), run)
    assert len(resumed) == 70
    assert resumed == with_all


def test_the_manifest_says_what_was_asked(run: Path) -> None:
    manifest = read_manifest(run)
    assert manifest.spec.question == Decide(radii=(0.02, 0.05), n=1000, n0=20)
    assert manifest.alpha_split == {"gaussian": {Proof.TOP_DECIDED.value: 0.01}}


def test_a_fixed_run_says_nothing_of_it(tmp_path: Path) -> None:
    finish_run(spec(decide=None, max_inputs=2), tmp_path / "run")
    assert read_manifest(tmp_path / "run").spec.question == FixedN(n=1000, n0=20)


def test_recertify_asks_the_same_question_again(run: Path) -> None:
    stored = finish_run(spec(), run)
    same = recertify_run(run)
    assert without_times(list(same.points)) == stored
    stricter = recertify_run(run, alpha=1e-6).points
    assert all(point.radius <= before.radius for point, before in zip(stricter, stored, strict=True))
    proofs = {proof for point in stricter if point.bounds for proof in point.bounds.spent}
    assert proofs == {Proof.TOP_DECIDED, Proof.NOISE_TABLES}
    assert any(point.radius < before.radius for point, before in zip(stricter, stored, strict=True))
    weaker = recertify_run(run, certificate="li").points
    assert all(point.radius <= before.radius for point, before in zip(weaker, stored, strict=True))


def test_recertify_with_fewer_samples_uses_earlier_looks(run: Path, tmp_path: Path) -> None:
    fewer = recertify_run(run, n=100)
    assert max(drawn(point) for point in fewer.points) <= 100
    fewer.save(tmp_path / "fewer")
    # Its votes were looked at too: it stays a run of its own kind.
    assert read_manifest(tmp_path / "fewer").spec.question == Decide(radii=(0.02, 0.05), n=100, n0=20)
    assert without_times(list(recertify_run(tmp_path / "fewer").points)) == without_times(list(fewer.points))
    with pytest.raises(InputError, match="first looked at after 64"):
        recertify_run(run, n=50)
    with pytest.raises(InputError, match="no input was sampled further than"):
        recertify_run(run, n=10**6)


@pytest.mark.parametrize("certificate", ["gaussian-two-class", "gaussian,li"])
def test_recertify_refuses_what_stopped_votes_do_not_prove(run: Path, certificate: str) -> None:
    with pytest.raises(InputError, match=r"anytime-valid test|name one"):
        recertify_run(run, certificate=certificate)
