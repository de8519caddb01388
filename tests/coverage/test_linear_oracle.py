"""Statistical validity on linear classifiers, whose exact radius is known whatever sigma is.

Here the real sampler draws. Every statement is judged by `coverage_judge`, and so are the controls.
"""

import numpy as np
import pytest
from scipy import stats

from coverage_judge import Seen
from sample_models import at_distance
from smoothcert.certificates import get_portfolio
from smoothcert.records import CertifiedPoint, Outcome, Quantity, Smoothing, Stage, merge
from smoothcert.smoothed import SmoothedClassifier
from stored_answers import recertify_points

TRIALS = 1000
SIGMA = 0.25
DISTANCE = 0.3


@pytest.fixture(scope="module")
def points() -> list[CertifiedPoint]:
    """1000 certificates of one input, each with its own noise."""
    model, x = at_distance(DISTANCE)
    smoothed = SmoothedClassifier(model, sigma=SIGMA, num_classes=2, seed=2024, batch=2000)
    return smoothed.certify(np.repeat(x[None], TRIALS, axis=0), n0=20, n=1000, alpha=0.001)


def too_many(failures: int, rate: float) -> bool:
    return Seen(int(failures), TRIALS).refutes(rate)


@pytest.mark.parametrize("name", ["gaussian", "gaussian-two-class"])
@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.2])
def test_radii_exceed_the_truth_no_more_often_than_alpha(points: list[CertifiedPoint], name: str, alpha: float) -> None:
    radii = [
        point.radius for point in recertify_points(points, get_portfolio(name), alpha=alpha, smoothing=Smoothing())
    ]
    failures = sum(radius > DISTANCE for radius in radii)
    assert not too_many(failures, alpha)


@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.2])
def test_each_bound_fails_no_more_often_than_its_share(points: list[CertifiedPoint], alpha: float) -> None:
    truth = stats.norm.cdf(DISTANCE / SIGMA)
    again = recertify_points(points, get_portfolio("gaussian-two-class"), alpha=alpha, smoothing=Smoothing())
    found = [point.bounds.quantities for point in again if point.bounds is not None]
    assert len(found) == TRIALS
    assert all(bounds[q].alpha == alpha / 2 for bounds in found for q in bounds)
    assert not too_many(sum(bounds[Quantity.TOP_LOWER].value > truth for bounds in found), alpha / 2)
    assert not too_many(sum(bounds[Quantity.RUNNER_UP_UPPER].value < 1 - truth for bounds in found), alpha / 2)


def test_at_alpha_of_a_thousandth_practically_never(points: list[CertifiedPoint]) -> None:
    assert sum(point.radius > DISTANCE for point in points) <= 8  # more would have probability below 1e-6
    assert all(point.outcome is Outcome.CERTIFIED for point in points)


def test_control_the_plain_estimate_fails(points: list[CertifiedPoint]) -> None:
    """The share of votes put in the formula as if it were the probability: wrong half of the time."""
    shares = [merge(p.tallies[1:]).counts[1] / 1000 for p in points]
    failures = sum(SIGMA * stats.norm.ppf(share) > DISTANCE for share in shares)
    assert too_many(failures, 0.2)


def test_control_spending_more_than_is_said_fails(points: list[CertifiedPoint]) -> None:
    """Bounds made at α = 0.2 and stated as α = 0.05 are caught."""
    radii = [
        point.radius for point in recertify_points(points, get_portfolio("gaussian"), alpha=0.2, smoothing=Smoothing())
    ]
    assert too_many(sum(radius > DISTANCE for radius in radii), 0.05)


def test_the_radius_comes_within_two_percent_at_the_usual_n() -> None:
    ratios = []
    for seed in range(12):
        model, x = at_distance(0.375, seed=seed)
        smoothed = SmoothedClassifier(model, sigma=SIGMA, num_classes=2, seed=seed, batch=4000)
        (point,) = smoothed.certify(x[None], n=100_000)
        exact = model.exact_radius(x)
        assert exact == pytest.approx(0.375, abs=1e-6)
        ratios.append(point.radius / exact)
    assert max(ratios) <= 1.0
    assert np.mean(ratios) >= 0.98


def test_the_truth_does_not_depend_on_sigma() -> None:
    model, x = at_distance(0.3)
    for sigma in (0.1, 0.25, 0.5):
        (point,) = SmoothedClassifier(model, sigma=sigma, num_classes=2, seed=1, batch=4000).certify(x[None], n=100_000)
        assert 0.95 * 0.3 <= point.radius <= 0.3


def test_doubling_the_resolution_doubles_the_radius() -> None:
    """Proposition 6: classifying the 2x2 block means of an image of twice the side doubles the exact radius."""
    model, x = at_distance(0.1)

    def pooled(batch: np.ndarray) -> np.ndarray:
        return model(batch.reshape(len(batch), 8, 4).mean(axis=2))

    large = np.repeat(x, 4)
    smoothed = SmoothedClassifier(pooled, sigma=0.2, num_classes=2, seed=1, batch=4000)
    (point,) = smoothed.certify(large[None], n=100_000)
    assert 0.95 * 0.2 <= point.radius <= 0.2


MIXED = np.array([0.34, 0.33, 0.33])


def winner_rate(reuse_selection: bool, *, alpha: float) -> float:
    """How often a class with probability at most ½ is 'certified' when three classes are nearly tied at n = 40."""
    generator = np.random.default_rng(5)
    failures = 0
    from smoothcert.statistics import clopper_pearson_lower

    for _ in range(TRIALS):
        selection = generator.multinomial(40, MIXED)
        label = int(selection.argmax())
        votes = selection if reuse_selection else generator.multinomial(40, MIXED)
        failures += bool(clopper_pearson_lower(int(votes[label]), 40, alpha=alpha) > MIXED[label])
    return failures


def test_fresh_votes_are_valid_and_reused_ones_are_not() -> None:
    assert not too_many(winner_rate(False, alpha=0.05), 0.05)
    assert too_many(winner_rate(True, alpha=0.05), 0.05)


def test_predict_is_wrong_no_more_often_than_alpha() -> None:
    """At p = 0.52 against 0.48 the other class must not come out more often than α."""
    model, x = at_distance(SIGMA * stats.norm.ppf(0.52))
    smoothed = SmoothedClassifier(model, sigma=SIGMA, num_classes=2, seed=77, batch=2000)
    answers = smoothed.predict(np.repeat(x[None], TRIALS, axis=0), n=100, alpha=0.05)
    wrong = sum(point.prediction == 0 for point in answers)
    assert not too_many(wrong, 0.05)
    # Control: the plain majority, which never abstains, is wrong far more often.
    tallies = [point.tally(Stage.PREDICTION) for point in answers]
    assert too_many(sum(t is not None and bool(t.counts[0] > t.counts[1]) for t in tallies), 0.05)
