"""How often bounds on the certified accuracy of a test set are wrong, and what a memory of regions promises.

Test sets: g of m inputs are truly robust and claimed as such; of the others each is claimed wrongly with probability
α, independently. That is the hardest case the bounds allow for. Every statement is judged by `coverage_judge`; the
controls are procedures with a known mistake, which the same judge must refute.
"""

from __future__ import annotations

import functools
import itertools
import math
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from coverage_judge import ROUNDING, Case, Seen, Statements
from coverage_worlds import selection_of, votes_of
from smoothcert.analysis.intervals import certified_accuracy_lower_bound, envelope_lower_bound
from smoothcert.analysis.table_choices import BoundChoice, BoundMethod
from smoothcert.certificates import get_portfolio
from smoothcert.memory import MemoryKey, open_memory
from smoothcert.memory.claims import claim_region
from smoothcert.questions import Votes
from smoothcert.records import CertifiedPoint, IntArray, Norm, Outcome, Smoothing
from smoothcert.runs.result_columns import NO_CLASS, ResultColumns, outcome_code
from smoothcert.statistics.testset import bernstein_lower_bound, exact_lower_bound
from stored_answers import certify_votes

RADIUS = 0.5


def claims(
    m: int, good: int, alpha: float, *, runs: int = 1, repetitions: int = 20_000, seed: int = 0
) -> tuple[IntArray, IntArray]:
    """How many inputs are claimed to be robust, in runs of many repetitions, and how often each outcome was drawn."""
    wrong = np.random.default_rng([seed, m, good]).binomial(m - good, alpha, size=(repetitions, runs))
    return np.unique(good + wrong, axis=0, return_counts=True)


@functools.cache
def results(claimed: int, m: int, alpha: float) -> ResultColumns:
    """A run in which so many inputs are certified with the radius that is asked about."""
    certified = np.arange(m) < claimed
    return ResultColumns(
        name="simulated", index=np.arange(m), label=np.zeros(m, dtype=np.int64),
        prediction=np.where(certified, 0, NO_CLASS),
        outcome=np.where(certified, outcome_code(Outcome.CERTIFIED), outcome_code(Outcome.ABSTAINED)).astype(np.int8),
        radius=np.where(certified, RADIUS, 0.0), has_radius=True, sigma=np.full(m, 0.25), seconds=np.zeros(m),
        p_a=np.full(m, np.nan), alpha=alpha,
    )  # fmt: skip


def bounded(m: int, good: int, *, alpha: float, rho: float) -> Case:
    """The bounds themselves, and as the analysis of a run gives them."""

    def run() -> Statements:
        outcomes, times = claims(m, good, alpha)
        claimed = outcomes[:, 0]
        by_run = {
            method: [
                float(
                    certified_accuracy_lower_bound(
                        results(int(count), m, alpha), RADIUS, choice=BoundChoice(method, rho)
                    )
                )
                for count in claimed
            ]
            for method in BoundMethod
        }
        limit = good / m * (1 + ROUNDING)
        return {
            "Theorem 5": Seen.of(bernstein_lower_bound(claimed, trials=m, alpha=alpha, rho=rho) > limit, times),
            "exact": Seen.of(exact_lower_bound(claimed, trials=m, alpha=alpha, rho=rho) > good, times),
        } | {f"{method} of a run": Seen.of(np.array(found) > limit, times) for method, found in by_run.items()}

    return Case(f"test set, {good} of {m} robust, α = {alpha:g}, ρ = {rho:g}", rho, run)


def best_run(m: int, good: int, *, alpha: float, rho: float) -> Case:
    """The best of three runs over the same inputs, the bounds shared among them."""

    def run() -> Seen:
        outcomes, times = claims(m, good, alpha, runs=3, repetitions=4000)
        bounds = [
            float(
                envelope_lower_bound(
                    [results(int(count), m, alpha) for count in row], RADIUS, choice=BoundChoice(BoundMethod.EXACT, rho)
                )
            )
            for row in outcomes
        ]
        return Seen.of(np.array(bounds) > good / m * (1 + ROUNDING), times)

    return Case(f"test set, the best of three runs, {good} of {m} robust, ρ = {rho:g}", rho, run)


@dataclass(frozen=True)
class Claimed:
    """Inputs in the order they were claimed: what was certified, what the memory promised, and the truth."""

    certified: list[CertifiedPoint]
    points: list[CertifiedPoint]
    places: list[float]
    problems: tuple[str, ...]

    def true_radius(self, index: int, label: int) -> float:
        """Of the classifier smoothed with the σ of this input, for that class: it answers 1 from 0 on, else 0."""
        side = 1 if self.places[index] > 0 else 0
        return abs(self.places[index]) if label == side else 0.0


INPUTS = 300


@functools.cache
def claimed(alpha: float) -> Claimed:
    """Random places on a line, close to the boundary at 0, each with a σ of its own; claims in one memory."""
    generator = np.random.default_rng(21)
    places = np.float32(generator.normal(scale=0.3, size=INPUTS)).astype(np.float64)
    sigmas = generator.uniform(0.1, 1.0, size=INPUTS)
    votes = []
    for i, (x, sigma) in enumerate(zip(places, sigmas, strict=True)):
        p = float(special.ndtr(x / sigma))
        chose, proves = (generator.multinomial(n, [1 - p, p, 0.0]) for n in (20, 60))
        votes.append(
            Votes(
                index=i, label=None, seconds=0.0, selection=selection_of(chose, i, sigma=float(sigma)),
                estimation=(votes_of(proves, i, sigma=float(sigma)),),
            )
        )  # fmt: skip
    smoothing = Smoothing(dimension=1, num_classes=2, remembered=True)
    points = certify_votes(votes, get_portfolio("gaussian"), alpha=alpha, smoothing=smoothing)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_memory(Path(folder) / "m.sqlite", MemoryKey("m", "s", "gaussian", Norm.L2, "p", 1)) as memory,
    ):
        kept = [claim_region(point, np.float32([x]), memory) for point, x in zip(points, places, strict=True)]
        problems = memory.audit().problems
    return Claimed(points, kept, [float(x) for x in places], problems)


def promised(alpha: float) -> Case:
    """What a guarantee gives an α for is wrong no more often than that. The memory itself is never wrong."""

    def run() -> Statements:
        found = claimed(alpha)
        assert found.problems == ()
        wrong = []
        for point in found.points:
            guarantee = point.guarantee
            if guarantee is None or guarantee.alpha is None:
                wrong.append(False)  # nothing is said of the votes
            else:
                assert guarantee.alpha <= alpha
                truth = found.true_radius(point.index, guarantee.label)
                wrong.append(guarantee.radius > truth * (1 + ROUNDING))
        return {"promises that stand for votes": Seen.of(wrong)}

    return Case(f"memory, claims near the boundary, α = {alpha:g}", alpha, run, certificates=("gaussian",))


def contradictions(points: list[CertifiedPoint], places: list[float]) -> Seen:
    """Pairs of answers whose regions meet although they are of different classes, in exact arithmetic."""
    balls = [(Fraction(places[p.index]), Fraction(p.radius), p.prediction) for p in points if p.prediction is not None]
    meets = [abs(x - y) <= r + s and a != b for (x, r, a), (y, s, b) in itertools.combinations(balls, 2)]
    return Seen.of(meets)


def claims_with_memory() -> Seen:
    found = claimed(0.2)
    return contradictions(found.points, found.places)


NEVER = 1e-12
"""A rate that a single failure refutes."""


CASES = [
    *(
        bounded(m, good, alpha=alpha, rho=rho)
        for m, good, alpha, rho in [
            (500, 300, 0.001, 0.05), (500, 0, 0.01, 0.05), (1000, 0, 0.1, 0.01), (100, 50, 0.05, 0.2), (7, 3, 0.5, 0.2),
            (1, 0, 0.2, 0.2),
        ]
    ),
    *(best_run(m, good, alpha=0.1, rho=0.2) for m, good in [(50, 0), (50, 30)]),
    *(promised(alpha) for alpha in (0.05, 0.2)),
    Case("memory, answers that contradict each other", NEVER, claims_with_memory),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_no_more_often_than_said(case: Case) -> None:
    case.check_holds()


def forgotten_factor() -> Seen:
    """Theorem 5 as it is often coded, without the 2 under the root."""
    m, alpha, rho = 10_000, 0.1, 0.001
    outcomes, times = claims(m, 0, alpha)
    deviation = math.sqrt(alpha * (1 - alpha) * math.log(1 / rho) / m) + math.log(1 / rho) / (3 * m)
    return Seen.of(outcomes[:, 0] / m - alpha - deviation > 0, times)


def no_false_claims() -> Seen:
    """The certified accuracy itself, as if no certificate could be wrong."""
    outcomes, times = claims(500, 300, 0.001)
    return Seen.of(outcomes[:, 0] > 300, times)


def best_run_unpaid() -> Seen:
    """The largest bound of ten runs, each at the whole of ρ."""
    outcomes, times = claims(100, 0, 0.1, runs=10)
    return Seen.of((exact_lower_bound(outcomes, trials=100, alpha=0.1, rho=0.05) > 0).any(axis=1), times)


def average_only() -> Seen:
    """The expected number of false claims is taken off, and nothing for chance."""
    outcomes, times = claims(1000, 0, 0.1)
    return Seen.of((outcomes[:, 0] / 1000 - 0.1) / 0.9 > 0, times)


def claims_without_memory() -> Seen:
    """The same claims, each answered by itself."""
    found = claimed(0.2)
    return contradictions(found.certified, found.places)


def plain_claims() -> Seen:
    """Regions claimed by plain shares of votes."""
    found, wrong = claimed(0.2), []
    for point in found.certified:
        counts = point.tallies[1].independent_votes().counts
        label = int(counts.argmax())
        radius = point.sigma * special.ndtri(counts[label] / counts.sum())
        wrong.append(radius > found.true_radius(point.index, label))
    return Seen.of(wrong)


def no_memory() -> Seen:
    """A σ for each input and no memory (Súkeník et al., F): class 1 is the unit ball; at 50 σ is large, at 0 small.

    At 50 class 0 is certified with a radius above 50, which holds the origin, where class 1 is the answer.
    """
    generator = np.random.default_rng(22)
    far_sigma, near_sigma = 40.0, 0.3
    inside = float(special.ndtr(51 / far_sigma) - special.ndtr(49 / far_sigma))
    misses = generator.binomial(2000, 1 - inside, size=2000)
    votes = [
        Votes(
            index=i, label=None, seconds=0.0, selection=selection_of(np.array([20, 0, 0]), i, sigma=far_sigma),
            estimation=(votes_of(np.array([k, 2000 - k, 0]), i, sigma=far_sigma),),
        )
        for i, k in enumerate(misses)
    ]  # fmt: skip
    points = certify_votes(votes, get_portfolio("gaussian"), alpha=0.05, smoothing=Smoothing())
    at_zero = 2 * special.ndtr(1 / near_sigma) - 1
    assert at_zero > 0.99
    return Seen.of([point.radius > 50 for point in points])


CONTROLS = [
    Case("Theorem 5 without its factor 2", 0.001, forgotten_factor),
    Case("certified accuracy taken as the truth", 0.05, no_false_claims),
    Case("best of ten runs, unpaid", 0.05, best_run_unpaid),
    Case("only the expected false claims taken off", 0.05, average_only),
    Case("claims answered without a memory", NEVER, claims_without_memory),
    Case("regions claimed by plain shares of votes", 0.2, plain_claims),
    Case("a sigma for each input without a memory", 0.05, no_memory),
]


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_control_is_caught(control: Case) -> None:
    control.check_is_caught()
