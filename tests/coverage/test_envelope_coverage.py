"""Statistical validity where sigma varies: how often a radius is larger than the truth, by drawn tallies.

The base classifier is the worst one for the σ the envelope allows, so that the true radius is where the worst-case
probability, here from scipy's noncentral chi-square, reaches ½. Every statement is judged by `coverage_judge`; the
controls are procedures with a known mistake, which the same judge must refute.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import optimize, stats

from coverage_judge import ROUNDING, Case, Seen, Statements
from coverage_worlds import SIGMA, Line, draw_votes, false_plain_radii, false_radii
from smoothcert.certificates import envelope_radius, gaussian_radius, get_portfolio
from smoothcert.questions import describe_smoothing
from smoothcert.records import Smoothing
from smoothcert.records.envelopes import Envelope, LipschitzSigma, SemiElastic
from stored_answers import certify_votes

DIMENSION = 10
N = 300
ENVELOPES: dict[str, Envelope] = {
    "semi-elastic": SemiElastic(rate=0.3),
    "lipschitz": LipschitzSigma(constant=0.1, floor=0.4),
}


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


FORMS = ("envelope", "envelope-two-class", "renyi", "renyi-two-class")
WORST = Line.of("the worst region for its sigma, p = .9", (0, 0.9), (1, 0.1), num_classes=2)
EVEN = Line.of("even chances", (0, 0.5), (1, 0.5), num_classes=2)
THREE = Line.of("three classes", (0, 0.6), (2, 0.2), (1, 0.2), num_classes=3)


def smoothing(name: str, *, num_classes: int = 2) -> Smoothing:
    return describe_smoothing(ENVELOPES[name], dimension=DIMENSION, num_classes=num_classes)


def certified(
    world: Line, name: str, names: tuple[str, ...], *, alpha: float, radius: float | None, n: int = N,
    repetitions: int = 5000,
) -> Case:  # fmt: skip
    """radius: the true one, where the world is not that of a constant sigma."""

    def run() -> Statements:
        found = draw_votes(world, n=n, repetitions=repetitions, n0=50)
        told = smoothing(name, num_classes=world.num_classes)
        return false_radii(world, found, names, alpha=alpha, smoothing=told, radius=radius)

    return Case(f"{names[0]} …, {name}, {world}, α = {alpha:g}", alpha, run, certificates=names)


def reach_of_slices(world: Line, name: str) -> float:
    """The true radius of slices under the worst sigma in the envelope: where some level of it loses the class."""
    envelope = ENVELOPES[name]
    for a in np.arange(0.001, 2.0, 0.001):
        low, high = (float(end(np.array(SIGMA), np.array(a))) for end in (envelope.low, envelope.high))
        scales = np.linspace(low, high, 50) / SIGMA
        for move in (a, -a):
            chances = world.chances(np.full(50, move / SIGMA), scales)
            if (chances[:, 0] <= np.delete(chances, 0, axis=1).max(axis=1)).any():
                return float(a)
    raise AssertionError("the class is never lost")


CASES = [
    *(
        certified(WORST, name, FORMS, alpha=alpha, radius=true_radius(name, 0.9))
        for name in ENVELOPES
        for alpha in (0.01, 0.2)
    ),
    certified(EVEN, "semi-elastic", FORMS, alpha=0.1, radius=0.0, n=100),
    certified(THREE, "semi-elastic", FORMS, alpha=0.2, radius=reach_of_slices(THREE, "semi-elastic"), repetitions=300),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_no_more_often_than_said(case: Case) -> None:
    case.check_holds()


@pytest.mark.parametrize("name", ENVELOPES)
def test_the_truth_is_what_the_theorem_says(name: str) -> None:
    """The cases compare with the exact truth."""
    found = float(envelope_radius(0.9, sigma=SIGMA, dimension=DIMENSION, envelope=ENVELOPES[name]))
    assert found == pytest.approx(true_radius(name, 0.9), rel=1e-8)
    assert found <= true_radius(name, 0.9) * (1 + 1e-9)
    assert found < 0.97 * float(gaussian_radius(0.9, sigma=SIGMA))  # σ does vary


def radii(world: Line, certificate: str, told: Smoothing, *, alpha: float, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    found = draw_votes(world, n=n, repetitions=5000, n0=50, seed=1)
    points = certify_votes(found.votes, get_portfolio(certificate), alpha=alpha, smoothing=told)
    return np.array([point.radius for point in points]), found.times


def more_than_is_said(name: str) -> Seen:
    """Bounds made at α = 0.2 and stated as α = 0.05."""
    found, times = radii(WORST, "envelope", smoothing(name), alpha=0.2)
    return Seen.of(found > true_radius(name, 0.9) * (1 + ROUNDING), times)


def constant_level(name: str) -> Seen:
    """Cohen's radius, as if sigma were the same everywhere: too large most of the time once n is large."""
    found, times = radii(WORST, "gaussian", Smoothing(), alpha=0.001, n=3000)
    return Seen.of(found > true_radius(name, 0.9), times)


CONTROLS = [
    *(Case(f"bounds at 4α, {name}", 0.05, functools.partial(more_than_is_said, name)) for name in ENVELOPES),
    *(
        Case(f"radius for a constant sigma, {name}", 0.05, functools.partial(constant_level, name))
        for name in ENVELOPES
    ),
    *(
        Case(
            f"plain shares of votes, {name}",
            0.2,
            lambda name=name: false_plain_radii(
                WORST, draw_votes(WORST, n=100, repetitions=2000, n0=50, seed=3), FORMS, smoothing=smoothing(name)
            ),
            certificates=FORMS,
        )
        for name in ENVELOPES
    ),
]


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_control_is_caught(control: Case) -> None:
    control.check_is_caught()
