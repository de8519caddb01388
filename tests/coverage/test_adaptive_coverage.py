"""How often an answer is wrong that was sampled for until it was found: --decide and --precision.

The whole path is tested: `estimate` decides when to look and when to stop, with votes drawn from their exact law in
place of a sampler, and `answer` says what is certified. Every statement is judged by `coverage_judge`; the
controls are procedures with a known mistake, which the same judge must refute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from coverage_judge import ROUNDING, Case, Seen, Statements
from coverage_worlds import SIGMA, selection_of
from smoothcert.certificates import get_certificate, get_portfolio
from smoothcert.questions import Votes, describe_smoothing, make_inquiry
from smoothcert.questions.deciding import least_probabilities
from smoothcert.questions.sequential import SequentialInquiry, list_looks
from smoothcert.records import (
    AnyTally,
    CertifiedPoint,
    FloatArray,
    IntArray,
    Proof,
    Quantity,
    ReasonCode,
    Stage,
    StreamId,
    Tally,
)
from smoothcert.records.envelopes import ConstantSigma, SemiElastic
from smoothcert.sampling.drawing import Drawing, Draws
from smoothcert.spec import Decide, Precision, QuestionSpec
from smoothcert.statistics import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    log_threshold,
    log_wealth_above,
    one_sided_lower,
    time_uniform_upper,
)
from time_uniform import time_uniform_lower

REPETITIONS = 300
N = 300


@dataclass
class SimulatedVotes:
    """Stands for a sampler: every input has class 0 with probability p, class 1 otherwise."""

    p: float
    sigmas: dict[int, float]
    generator: np.random.Generator

    def each(self, jobs: Iterable[Draws]) -> Iterator[dict[int, list[AnyTally]]]:
        for draws in jobs:
            yield {row: [self._votes(row, *span) for span in spans] for row, spans in draws.ranges.items()}

    def _votes(self, row: int, start: int, stop: int) -> Tally:
        hits = int(self.generator.binomial(stop - start, self.p))
        stream = StreamId(1, row, Stage.ESTIMATION)
        return Tally(stream, SIGMA, np.array([hits, stop - start - hits]), 0, ((start, stop),))


def inquiry(question: QuestionSpec, name: str, *, alpha: float) -> SequentialInquiry:
    certificate = get_certificate(name)
    envelope = SemiElastic(rate=0.1) if name == "envelope" else ConstantSigma()
    smoothing = describe_smoothing(envelope, dimension=5, num_classes=2, noise=certificate.noise)
    found = make_inquiry(question, get_portfolio(name), alpha=alpha, smoothing=smoothing)
    assert isinstance(found, SequentialInquiry)
    return found


def answered(asked: SequentialInquiry, p: float, *, seed: int, choosing: int = 20) -> list[CertifiedPoint]:
    """choosing: selection votes for each input."""
    generator = np.random.default_rng([seed, N])
    drawing = SimulatedVotes(p, dict.fromkeys(range(REPETITIONS), SIGMA), generator)
    # Whatever chose the class must not have looked at these votes; here it is always class 0.
    selection = {row: selection_of(np.array([choosing, 0, 0]), row) for row in range(REPETITIONS)}
    ((rows, found),) = asked.estimate(cast(Drawing, drawing), [range(REPETITIONS)], selection)
    votes = [Votes(index=row, label=0, selection=selection[row], estimation=found[row], seconds=0.0) for row in rows]
    return asked.answer(votes)


def least(asked: SequentialInquiry, radius: float) -> float:
    """The least probability that certifies this radius: the edge of the hypothesis that is tested."""
    found = least_probabilities(asked.certificate, (radius,), sigmas=np.array([SIGMA]), smoothing=asked.smoothing)
    return float(found[0, 0])


def true_radius(asked: SequentialInquiry, p: float) -> float:
    values = {Quantity.TOP_LOWER: np.array([p])}
    return float(asked.certificate.radius(values, sigma=SIGMA, smoothing=asked.smoothing)[0])


def decided(name: str, radii: tuple[float, ...], at: int, *, alpha: float) -> Case:
    """p just below what the radius number `at` needs: a yes to it, or to a larger one, is wrong."""

    def run() -> Statements:
        asked = inquiry(Decide(radii=radii, n=N, n0=20), name, alpha=alpha)
        p = least(asked, radii[at]) * (1 - 1e-9)
        points = answered(asked, p, seed=at)
        return {"a yes": Seen.of([point.radius >= radii[at] for point in points])}

    return Case(
        f"decide {radii}, {name}, p beside number {at + 1}, α = {alpha:g}", alpha, run,
        certificates=(name,), proofs=(Proof.TOP_DECIDED,),
    )  # fmt: skip


def is_refuted(point: CertifiedPoint, radius: float) -> bool:
    reason = point.reason
    return reason is not None and reason.code is ReasonCode.RADIUS_REFUTED and reason.numbers["radius"] == radius


def refuted(radius: float, *, alpha: float) -> Case:
    """p exactly what the radius needs: a no that claims to be proved is wrong."""

    def run() -> Seen:
        asked = inquiry(Decide(radii=(radius,), n=N, n0=20), "gaussian", alpha=alpha)
        points = answered(asked, least(asked, radius), seed=7)
        return Seen.of([is_refuted(point, radius) for point in points])

    return Case(f"decide {radius}, a proved no, α = {alpha:g}", alpha, run)


def narrowed(name: str, p: float, *, width: float, alpha: float) -> Case:
    def run() -> Statements:
        asked = inquiry(Precision(width=width, n=N, n0=20), name, alpha=alpha)
        points = answered(asked, p, seed=3)
        radii = np.array([point.radius for point in points])
        bounds = np.array([max((b.value for b in v.bounds.quantities.values()), default=0.0) if
                           (v := point.verdict).bounds else 0.0 for point in points])  # fmt: skip
        return {
            "the radius": Seen.of(radii > true_radius(asked, p) * (1 + ROUNDING)),
            "the bound": Seen.of(bounds > p * (1 + ROUNDING)),
        }

    return Case(
        f"precision {width}, {name}, p = {p:g}, α = {alpha:g}", alpha, run,
        certificates=(name,), proofs=(Proof.TOP_SEQUENCE,),
    )  # fmt: skip


HORIZON = 500
TIMES = np.arange(1, HORIZON + 1)


def fewest_hits(rejects: Callable[[IntArray, IntArray], Any], times: IntArray) -> IntArray:
    """For each time the smallest number of hits at which a test that is monotone in them rejects; t+1 for none."""
    low, high = np.full(times.shape, -1), times + 1
    while (high - low > 1).any():
        middle = np.clip((low + high) // 2, 0, times)
        rejected = np.asarray(rejects(middle, times))
        high = np.where(rejected & (middle < high), middle, high)
        low = np.where(~rejected & (middle > low), middle, low)
    return high


@functools.lru_cache(maxsize=2)
def paths(p: float) -> IntArray:
    """Hits after every sample, of 5000 inputs."""
    votes = np.random.default_rng([11, round(1e6 * p)]).random((5000, HORIZON)) < p
    return np.cumsum(votes, axis=1, dtype=np.int32)


def ever(p: float, boundary: IntArray, times: IntArray = TIMES) -> FloatArray:
    return np.asarray((paths(p)[:, times - 1] >= boundary).any(axis=1))


def looked_at_always(p: float, *, alpha: float) -> Case:
    """The limits and the test themselves, with a look after every sample, at the edge of the null hypothesis."""

    def run() -> Statements:
        bar = log_threshold(alpha)
        lower = fewest_hits(lambda h, t: time_uniform_lower(h, t, alpha=alpha) > p, TIMES)
        one_sided = fewest_hits(lambda h, t: one_sided_lower(h, t, alpha=alpha) > p, TIMES)
        betting = fewest_hits(lambda h, t: log_wealth_above(h, t, p0=p) >= bar, TIMES)
        upper = TIMES - fewest_hits(lambda m, t: time_uniform_upper(t - m, t, alpha=alpha) < p, TIMES)
        below = (paths(p) <= upper).any(axis=1)
        return {
            "either time-uniform limit": Seen.of(ever(p, lower) | below),
            "the one-sided limit": Seen.of(ever(p, one_sided)),
            "the betting test": Seen.of(ever(p, betting)),
        }

    return Case(f"a look after every sample, p = {p:g}, α = {alpha:g}", alpha, run)


SEVERAL = (0.2, 0.4, 0.6)

CASES = [
    *(decided("gaussian", SEVERAL, at, alpha=0.2) for at in range(3)),
    decided("gaussian", (0.01,), 0, alpha=0.05),
    decided("gaussian", (0.8,), 0, alpha=0.3),
    decided("envelope", (0.2, 0.4), 1, alpha=0.2),
    decided("uniform-l1", (0.1, 0.3), 0, alpha=0.2),
    *(refuted(radius, alpha=0.2) for radius in (0.01, 0.4)),
    narrowed("gaussian", 0.51, width=0.05, alpha=0.05),
    narrowed("gaussian", 0.99, width=0.05, alpha=0.3),
    narrowed("uniform-l1", 0.7, width=0.1, alpha=0.2),
    *(looked_at_always(p, alpha=0.05) for p in (0.5, 0.8413, 0.99)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_no_more_often_than_said(case: Case) -> None:
    case.check_holds()


def peeking(times: IntArray) -> Seen:
    """Clopper–Pearson at every look, until it says yes."""
    return Seen.of(
        ever(0.8413, fewest_hits(lambda h, t: clopper_pearson_lower(h, t, alpha=0.05) > 0.8413, times), times)
    )


def peeking_from_both_sides() -> Seen:
    """Two Clopper–Pearson bounds at α/2 each, after every sample."""
    p, alpha = 0.8413, 0.05
    above = fewest_hits(lambda h, t: clopper_pearson_lower(h, t, alpha=alpha / 2) > p, TIMES)
    below = TIMES - fewest_hits(lambda m, t: clopper_pearson_upper(t - m, t, alpha=alpha / 2) < p, TIMES)
    return Seen.of(ever(p, above) | (paths(p) <= below).any(axis=1))


def our_looks() -> IntArray:
    return np.array([at for at in list_looks(N) if at <= HORIZON])


def fixed_bound_after_stopping() -> Seen:
    """Votes that were drawn until a test said yes, or to the end, then bounded as if their number had been fixed."""
    p, alpha = 0.8413, 0.05
    times = our_looks()
    hits = paths(p)[:, times - 1]
    lower = clopper_pearson_lower(hits, times, alpha=alpha)
    stopped = np.where((lower > p - 0.01).any(axis=1), (lower > p - 0.01).argmax(axis=1), len(times) - 1)
    return Seen.of(np.take_along_axis(lower, stopped[:, None], axis=1)[:, 0] > p)


def radii_tested_from_the_largest() -> Seen:
    """Ten radii, each with a fresh test at α, the largest yes taken without those below it."""
    p, alpha = 0.8413, 0.05
    nulls = np.linspace(p, p + 0.001, 10)
    generator = np.random.default_rng(12)
    hits = generator.binomial(500, p, size=(5000, 10))
    return Seen.of((clopper_pearson_lower(hits, 500, alpha=alpha) > nulls).any(axis=1))


def wealth_that_starts_again() -> Seen:
    """The game restarts with new capital after every 25 samples."""
    p, bar = 0.8413, log_threshold(0.05)
    hits = np.diff(paths(p)[:1500, 24::25], axis=1, prepend=0)
    return Seen.of((log_wealth_above(hits, 25, p0=p) >= bar).any(axis=1))


def selection_votes_in_the_game() -> Seen:
    """The class is the one that leads after 60 samples, and the bet goes on from there with those votes in it."""
    bar = log_threshold(0.05)
    hits = paths(0.5)
    turned = np.where((hits[:, 59] > 30)[:, None], hits, TIMES - hits)
    boundary = fewest_hits(lambda h, t: log_wealth_above(h, t, p0=0.5) >= bar, TIMES)
    return Seen.of((turned >= boundary).any(axis=1))


CONTROLS = [
    Case("looking at Clopper–Pearson after every sample", 0.05, lambda: peeking(TIMES)),
    Case("looking at Clopper–Pearson at our looks", 0.05, lambda: peeking(our_looks())),
    Case("two-sided Clopper–Pearson after every sample", 0.05, peeking_from_both_sides),
    Case("a bound for a fixed number after stopping early", 0.05, fixed_bound_after_stopping),
    Case("ten radii tested apart, the largest yes taken", 0.05, radii_tested_from_the_largest),
    Case("wealth that starts again", 0.05, wealth_that_starts_again),
    Case("selection votes kept in the game", 0.05, selection_votes_in_the_game),
]


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_control_is_caught(control: Case) -> None:
    control.check_is_caught()


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_the_games_spend_their_alpha(p: float) -> None:
    """Tests that never reject would pass all of the above."""
    bar = log_threshold(0.05)
    boundary = fewest_hits(lambda h, t: log_wealth_above(h, t, p0=p) >= bar, TIMES)
    assert ever(p, boundary).mean() > 0.1 * 0.05
