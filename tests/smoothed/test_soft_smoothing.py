"""Soft smoothing from end to end: base classifiers whose mean score is known, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from sample_models import logistic_digits
from smoothcert.certificates import get_portfolio
from smoothcert.errors import InputError, ModelError
from smoothcert.questions import Votes, check_question
from smoothcert.records import Outcome, Quantity, Reason, ReasonCode, ScoreTally, Smoothing, Stage, StreamId, Tally
from smoothcert.records.score_cells import SCORE_CELLS, score_cell
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import FixedN
from smoothcert.statistics import betting_lower, clopper_pearson_lower
from stored_answers import certify_votes

SIZE = 8
WEIGHTS = np.random.default_rng(3).normal(size=SIZE)
X = np.random.default_rng(4).random(SIZE).astype(np.float32)
LENGTH = float(np.linalg.norm(WEIGHTS))


def normal_scores(distance: float):  # type: ignore[no-untyped-def]
    """Score of class 1: Φ(w·x + b), with X at this distance from where it is ½."""
    bias = distance * LENGTH - float(X.astype(np.float64) @ WEIGHTS)

    def logits(batch: np.ndarray) -> np.ndarray:
        height = batch.reshape(len(batch), -1).astype(np.float64) @ WEIGHTS + bias
        return np.stack([special.log_ndtr(-height), special.log_ndtr(height)], axis=1)

    return logits


def steps(distance: float):  # type: ignore[no-untyped-def]
    """The same border, with score 0 or 1: a hard classifier."""
    bias = distance * LENGTH - float(X.astype(np.float64) @ WEIGHTS)

    def logits(batch: np.ndarray) -> np.ndarray:
        height = batch.reshape(len(batch), -1).astype(np.float64) @ WEIGHTS + bias
        return np.where(np.stack([height <= 0, height > 0], axis=1), 1000.0, 0.0)

    return logits


def certify(model: object, certificate: object, *, sigma: float = 0.5, n: int = 20_000, seed: int = 1):  # type: ignore[no-untyped-def]
    smoothed = SmoothedClassifier(model, sigma=sigma, num_classes=2, seed=seed, batch=500)
    return smoothed.certify(X[None], n0=100, n=n, certificate=certificate)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("sigma", [0.25, 1.0])
@pytest.mark.parametrize("distance", [0.3, 1.0])
def test_a_known_mean_score(distance: float, sigma: float) -> None:
    """E Φ(h + σ‖w‖z) = Φ(h / sqrt(1 + σ²‖w‖²)). The bound is below it and close, so is the radius."""
    point = certify(normal_scores(distance), "gaussian-soft", sigma=sigma)
    mean = float(special.ndtr(distance * LENGTH / math.hypot(1.0, sigma * LENGTH)))
    assert point.bounds is not None
    lower = point.bounds.quantities[Quantity.TOP_LOWER].value
    # Hoeffding's margin at n = 20000, α = 0.001; the bound exceeds the truth with probability at most 0.001.
    assert mean - 0.0132 < lower < mean
    assert point.prediction == 1
    assert point.radius == pytest.approx(sigma * special.ndtri(lower), rel=1e-9)
    assert point.radius < sigma * special.ndtri(mean) < distance


def test_a_step_is_the_hard_classifier() -> None:
    """Scores 0 and 1: the mean score is the share of votes, and the exact bound on votes is the tighter one."""
    point = certify(steps(0.4), ["gaussian-soft", "gaussian"])
    tally = point.tally(Stage.ESTIMATION)
    assert isinstance(tally, ScoreTally)
    votes = int(tally.counts[1])
    assert tally.cells.tolist() == [0, SCORE_CELLS - 1, SCORE_CELLS, 2 * SCORE_CELLS - 1]
    assert tally.hits.tolist() == [20_000 - votes, votes, votes, 20_000 - votes]
    soft, hard = (
        verdict.bounds.quantities[Quantity.TOP_LOWER].value
        for verdict in (point.verdict, *point.further)
        if verdict.bounds is not None
    )
    assert hard == clopper_pearson_lower(votes, 20_000, alpha=0.001)
    assert hard - 0.003 < soft < hard + 0.001
    assert point.radius < 0.4


def test_hard_certificates_from_scores_are_those_of_a_plain_run() -> None:
    soft = certify(normal_scores(0.5), ["gaussian", "gaussian-soft", "gaussian-two-class"])
    plain = certify(normal_scores(0.5), ["gaussian", "gaussian-two-class"])
    assert soft.verdict == plain.verdict
    assert soft.further[1] == plain.further[0]


def test_the_two_class_form_against_one_other_class() -> None:
    """With two classes the other score is the rest, so half of α buys nothing."""
    point = certify(normal_scores(0.5), ["gaussian-soft", "gaussian-soft-two-class", "gaussian-soft-bernstein"])
    one, two, bernstein = (verdict.radius for verdict in (point.verdict, *point.further))
    assert 0 < two < one
    assert two == pytest.approx(one, rel=0.05)
    assert 0 < bernstein < one


def test_an_abstention_says_the_mean_score() -> None:
    point = certify(normal_scores(0.001), "gaussian-soft,gaussian", n=500)
    assert point.outcome is Outcome.ABSTAINED
    assert point.reason is not None
    assert point.reason.code is ReasonCode.LOW_MEAN_SCORE
    assert 0.4 <= point.reason.numbers["mean"] < 0.6
    assert point.reason.numbers["n"] == 500
    assert "a mean score of 0.5" in str(point.reason) or "a mean score of 0.4" in str(point.reason)
    assert "over 500 samples for class" in str(point.reason)
    further = point.further[0].reason
    assert further is not None
    assert (further.code, further.numbers["n"]) == (ReasonCode.OTHER_CLASS_LEADS, 500)
    assert "leads in estimation, with 256 of 500 votes" in str(further)


def test_digits_by_a_trained_model() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, labels = (digits.data / 16.0).astype(np.float32)[:12], digits.target[:12].tolist()
    smoothed = SmoothedClassifier(logistic_digits(), sigma=0.25, seed=2, batch=512)
    points = smoothed.certify(x, n0=50, n=2000, certificate="gaussian-soft,gaussian", labels=labels)
    assert sum(point.correct for point in points) >= 6
    for point in points:
        assert point.guarantee is None or point.guarantee.alpha == 0.001
        tally = point.tally(Stage.ESTIMATION)
        assert isinstance(tally, ScoreTally)
        if point.prediction is not None:
            assert tally.label == point.prediction
    again = SmoothedClassifier(logistic_digits(), sigma=0.25, seed=2, batch=100).certify(
        x, n0=50, n=2000, certificate="gaussian-soft", labels=labels
    )
    assert [point.prediction for point in again] == [point.prediction for point in points]
    np.testing.assert_allclose([p.radius for p in again], [p.radius for p in points], atol=1e-3)


def test_a_model_without_scores_is_refused_before_anything_is_sampled() -> None:
    asked = []

    def labels(batch: np.ndarray) -> np.ndarray:
        asked.append(len(batch))
        return np.zeros(len(batch), dtype=np.int64)

    with pytest.raises(ModelError, match="gives only votes; use a model that answers with logits"):
        certify(labels, "gaussian-soft", n=1000)
    assert asked == [2]  # the trial that showed what it answers with
    assert certify(labels, "gaussian", n=1000).outcome is Outcome.CERTIFIED


def test_a_model_that_never_answers_fails() -> None:
    point = certify(lambda batch: np.full((len(batch), 2), np.nan), "gaussian-soft", n=100)
    assert point.outcome is Outcome.FAILED
    assert point.reason == Reason(ReasonCode.NO_FINITE_ANSWER, {"invalid": 100, "n": 100})
    assert "no finite answer for 100 of 100 samples" in str(point.reason)


@pytest.mark.parametrize(
    ("certificate", "n", "alpha", "words"),
    [
        ("gaussian-soft", 12, 0.001, "n=12 at alpha=0.001 can never certify: even a score of 1 in all 12 samples .*13"),
        ("gaussian-soft-bernstein", 30, 0.001, r"use n ≥ 37"),
        ("gaussian-soft-two-class", 5, 0.001, r"use n ≥"),
        ("gaussian-soft,gaussian", 12, 0.001, r"even a score of 1 in all 12"),
    ],
)
def test_too_few_samples(certificate: str, n: int, alpha: float, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_question(FixedN(n=n, n0=100), get_portfolio(certificate), alpha=alpha)


def test_enough_samples_even_and_odd() -> None:
    """Scores are not drawn in pairs: an odd number is as good as any."""
    for n in (13, 14, 101):
        check_question(FixedN(n=n, n0=100), get_portfolio("gaussian-soft"), alpha=0.001)
    check_question(FixedN(n=37, n0=100), get_portfolio("gaussian-soft-bernstein"), alpha=0.001)
    with pytest.raises(InputError, match="use the -bernstein form"):
        check_question(FixedN(n=10**9, n0=100), get_portfolio("gaussian-soft"), alpha=0.001)
    check_question(FixedN(n=10**9, n0=100), get_portfolio("gaussian-soft-bernstein"), alpha=0.001)


def test_the_class_of_the_tally_must_be_the_class_that_was_chosen() -> None:
    stream = StreamId(0, 0, Stage.ESTIMATION)
    cells = score_cell(np.array([1.0, 0.0])) + SCORE_CELLS * np.arange(2)
    scores = ScoreTally(stream, 1.0, np.array([100, 0]), 0, 0, cells, np.array([100, 100]), ((0, 100),))
    chosen = Tally(StreamId(0, 0, Stage.SELECTION), 1.0, np.array([0, 10]), 0, ((0, 10),))
    votes = Votes(index=0, label=None, selection=chosen, estimation=(scores,), seconds=0.0)
    with pytest.raises(InputError, match="scores of class 0"):
        certify_votes([votes], get_portfolio("gaussian-soft"), alpha=0.001, smoothing=Smoothing())


def test_always_certain_gives_the_betting_bound_on_ones() -> None:
    point = certify(lambda batch: np.tile([0.0, 1000.0], (len(batch), 1)), "gaussian-soft", n=1000)
    expected = special.ndtri(betting_lower(np.ones(1000), alpha=0.001))
    assert point.radius == pytest.approx(0.5 * expected, rel=1e-9)
