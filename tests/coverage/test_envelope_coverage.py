"""Statistical validity where sigma varies: how often a radius is larger than the truth, by drawn tallies.

The base classifier is the worst one for the σ the envelope allows, so that the true radius is where the worst-case
probability, here from scipy's noncentral chi-square, reaches ½. Every test states its false-alarm rate and has a
control: a wrong procedure that the same test must catch.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from smoothcert.certificates import envelope_radius, envelope_two_class_radius, gaussian_radius, get_portfolio
from smoothcert.certification import Votes, certify_votes, smoothing_of
from smoothcert.envelopes import Envelope, LipschitzSigma, SemiElastic
from smoothcert.records import Smoothing, Stage, StreamId, Tally

TRIALS = 1000
FALSE_ALARM = 1e-6
DIMENSION = 10
SIGMA = 0.5
N = 300
ENVELOPES: dict[str, Envelope] = {
    "semi-elastic": SemiElastic(rate=0.3),
    "lipschitz": LipschitzSigma(constant=0.1, floor=0.4),
}


def too_many(failures: int, rate: float) -> bool:
    """Whether this many failures in 1000 trials contradict a failure rate of at most `rate`, at false alarm 1e-6."""
    return bool(stats.binomtest(int(failures), TRIALS, rate, alternative="greater").pvalue < FALSE_ALARM)


def worst_chance(a: float, s1: float, *, p_a: float) -> float:
    """ξ of MATH section 3: the largest probability at distance a, with level s1, of all that is not the class."""
    gap = abs(SIGMA**2 - s1**2)
    here, there = (SIGMA * a / gap) ** 2, (s1 * a / gap) ** 2
    if s1 < SIGMA:
        edge = stats.ncx2.ppf(1.0 - p_a, DIMENSION, here)
        return float(stats.ncx2.cdf(SIGMA**2 / s1**2 * edge, DIMENSION, there))
    edge = stats.ncx2.ppf(p_a, DIMENSION, here)
    return float(stats.ncx2.sf(SIGMA**2 / s1**2 * edge, DIMENSION, there))


@functools.cache
def true_radius(name: str, p_a: float) -> float:
    """Where the worst of both ends of the envelope reaches ½; independent of the code under test."""
    envelope = ENVELOPES[name]

    def excess(a: float) -> float:
        ends = (float(end(np.array(SIGMA), np.array(a))) for end in (envelope.low, envelope.high))
        return max(worst_chance(a, s1, p_a=p_a) for s1 in ends) - 0.5

    return float(optimize.brentq(excess, 0.02, float(gaussian_radius(p_a, sigma=SIGMA)), xtol=1e-12))


def drawn(chances: list[float], *, n: int = N, n0: int = 50, reuse: bool = False, seed: int = 0) -> list[Votes]:
    """1000 inputs whose votes fall on the classes with these chances. reuse: selection and proof by the same votes."""
    generator = np.random.default_rng([seed, n])
    found = []
    for index in range(TRIALS):
        proving = generator.multinomial(n, chances)
        choosing, drawn_for_it = (proving, n) if reuse else (generator.multinomial(n0, chances), n0)
        found.append(
            Votes(
                index=index,
                label=None,
                selection=Tally(
                    StreamId(1, index, Stage.SELECTION), sigma=SIGMA, counts=choosing, invalid=0,
                    ranges=((0, drawn_for_it),),
                ),
                estimation=(
                    Tally(
                        StreamId(1, index, Stage.ESTIMATION), sigma=SIGMA, counts=proving, invalid=0, ranges=((0, n),)
                    ),
                ),
                seconds=0.0,
            )
        )  # fmt: skip
    return found


def radii(votes: list[Votes], name: str, certificate: str, *, alpha: float) -> np.ndarray:
    smoothing = smoothing_of(ENVELOPES[name], dimension=DIMENSION, num_classes=3)
    points = certify_votes(votes, get_portfolio(certificate), alpha=alpha, smoothing=smoothing)
    return np.array([point.radius for point in points])


@pytest.fixture(scope="module")
def one_sided() -> list[Votes]:
    return drawn([0.9, 0.1, 0.0])


@pytest.mark.parametrize("name", ENVELOPES)
def test_the_truth_is_what_the_theorem_says(name: str) -> None:
    """So that the tests below compare with the truth, and not with something far from it."""
    found = float(envelope_radius(0.9, sigma=SIGMA, dimension=DIMENSION, envelope=ENVELOPES[name]))
    assert found == pytest.approx(true_radius(name, 0.9), rel=1e-8)
    assert found <= true_radius(name, 0.9) * (1 + 1e-9)
    assert found < 0.97 * float(gaussian_radius(0.9, sigma=SIGMA))  # σ does vary


@pytest.mark.parametrize("name", ENVELOPES)
@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.2])
def test_radii_exceed_the_truth_no_more_often_than_alpha(one_sided: list[Votes], name: str, alpha: float) -> None:
    """Six tests: a false alarm in all of them has probability below 6e-6."""
    found = radii(one_sided, name, "envelope", alpha=alpha)
    assert not too_many((found > true_radius(name, 0.9)).sum(), alpha)
    if alpha == 0.2:  # and the bound is not so loose that the test could not fail
        assert (found > true_radius(name, 0.9)).sum() > TRIALS * alpha / 3


def test_two_bounds_exceed_the_truth_no_more_often_than_alpha() -> None:
    alpha = 0.2
    votes = drawn([0.6, 0.2, 0.2], seed=1)
    envelope = ENVELOPES["semi-elastic"]
    true = float(envelope_two_class_radius(0.6, 0.2, sigma=SIGMA, dimension=DIMENSION, envelope=envelope))
    assert true > true_radius("semi-elastic", 0.6)
    found = radii(votes, "semi-elastic", "envelope-two-class", alpha=alpha)
    assert (found > 0).mean() > 0.5
    assert not too_many((found > true).sum(), alpha)


@pytest.mark.parametrize("name", ENVELOPES)
def test_control_spending_more_than_is_said(one_sided: list[Votes], name: str) -> None:
    """Bounds made at α = 0.2 and sold as α = 0.05 are caught."""
    assert too_many((radii(one_sided, name, "envelope", alpha=0.2) > true_radius(name, 0.9)).sum(), 0.05)


@pytest.mark.parametrize("name", ENVELOPES)
def test_control_the_radius_for_a_constant_level(name: str) -> None:
    """Cohen's radius from the same bound at α = 0.001 is larger than the truth most of the time at larger n."""
    votes = drawn([0.9, 0.1, 0.0], n=3000, seed=2)
    points = certify_votes(votes, get_portfolio("gaussian"), alpha=0.001, smoothing=Smoothing())
    assert too_many(sum(point.radius > true_radius(name, 0.9) for point in points), 0.05)
    fair = radii(votes, name, "envelope", alpha=0.001)
    assert not too_many((fair > true_radius(name, 0.9)).sum(), 0.001)


def test_fresh_votes_are_valid_and_reused_ones_are_not() -> None:
    """At even chances nothing is robust, so that every radius is false. Choosing on the votes that prove doubles α."""
    alpha, even = 0.1, [0.5, 0.5, 0.0]
    fresh = radii(drawn(even, n=400, seed=3), "semi-elastic", "envelope", alpha=alpha)
    reused = radii(drawn(even, n=400, reuse=True, seed=3), "semi-elastic", "envelope", alpha=alpha)
    assert not too_many((fresh > 0).sum(), alpha)
    assert (fresh > 0).any()
    assert too_many((reused > 0).sum(), alpha)


def test_the_usual_alpha_practically_never_fails(one_sided: list[Votes]) -> None:
    found = radii(one_sided, "semi-elastic", "envelope", alpha=0.001)
    assert (found > true_radius("semi-elastic", 0.9)).sum() <= 8  # more would have probability below 1e-6
    assert math.isclose(float(np.median(found)), true_radius("semi-elastic", 0.9), rel_tol=0.25)
