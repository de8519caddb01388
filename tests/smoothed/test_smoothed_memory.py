"""A memory behind the smoothed classifier: what it promises, and that nobody can make it contradict itself."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from memory_models import in_unit_ball, right_half
from smoothcert.certificates import get_certificate
from smoothcert.certificates.certificate import FormulaCertificate
from smoothcert.errors import InputError, RegionMemoryError
from smoothcert.memory import RegionMemory, list_memories, open_memory
from smoothcert.records import CertifiedPoint, Noise, Norm, Outcome, Quantity, Reason, ReasonCode, Settlement
from smoothcert.sigma import GridSearch, OptimisedSigma, SignSearch
from smoothcert.smoothed import SmoothedClassifier

FAR, ORIGIN = np.array([[50.0, 0.0]], dtype=np.float32), np.zeros((1, 2), dtype=np.float32)
SEARCH = GridSearch(points=9, noises=32, check=16)
MOST = {Noise.GAUSSIAN: 40.0, Noise.UNIFORM: 100.0}


def searching(noise: Noise = Noise.GAUSSIAN) -> OptimisedSigma:
    """From 0.25 as in the paper; the range has room for radii above 50."""
    return OptimisedSigma(0.25, search=SEARCH, least=0.05, most=MOST[noise], noise=noise)


def plane(
    model: Any = in_unit_ball,
    *,
    sigma: Any = None,
    memory: Any = None,
    noise: Noise = Noise.GAUSSIAN,
    seed: int = 1,
    **more: Any,
) -> SmoothedClassifier:
    sigma = searching(noise) if sigma is None else sigma
    settings = {"num_classes": 2, "input_shape": (2,), "batch": 256, "input_range": None} | more
    return SmoothedClassifier(model, sigma=sigma, memory=memory, noise=noise, seed=seed, **settings)


def unanimous(*, n: int, alpha: float = 0.001) -> float:
    """The quantile of the Clopper-Pearson bound when all n votes agree."""
    return float(special.ndtri(alpha ** (1 / n)))


class TestUnitBall:
    """Súkeník et al. 2022, appendix C.2. The chance of a wrong vote is below 2e-4 a sample wherever it matters."""

    @staticmethod
    def naive() -> CertifiedPoint:
        """What one would certify at (50, 0) with the sigma found there, as if it were that everywhere."""
        sigma = float(searching().for_model(plane().classifier).sigmas(FAR)[0])
        (point,) = plane(sigma=sigma).certify(FAR, n=1000)
        return point

    def test_without_a_memory_the_naive_certificate_is_false(self) -> None:
        naive = self.naive()
        assert naive.prediction == 0
        assert naive.radius > 50.0  # so it speaks of the origin
        (answer,) = plane().predict(ORIGIN, n=1000)
        assert answer.prediction == 1

    def test_certify_without_a_memory_is_refused_and_names_both_ways_out(self) -> None:
        asked: list[int] = []

        def watched(batch: np.ndarray) -> np.ndarray:
            asked.append(len(batch))
            return in_unit_ball(batch)

        with pytest.raises(InputError) as caught:
            plane(watched).certify(FAR, n=1000)
        message = str(caught.value)
        assert "this sigma has no envelope" in message
        for way in ("an envelope", "a memory", "--memory", "memory="):
            assert way in message
        assert sum(asked) <= 2  # nothing was sampled

    def test_far_first(self, tmp_path: Path) -> None:
        """The first promise stands, and the origin has to follow."""
        smoothed = plane(memory=tmp_path / "memory.sqlite")
        (far,) = smoothed.certify(FAR, n=1000)
        assert (far.prediction, far.radius) == (0, self.naive().radius)
        assert far.promise is not None
        assert far.promise.settlement is Settlement.WHOLE
        (origin,) = smoothed.certify(ORIGIN, n=1000)
        assert origin.promise is not None
        assert origin.promise.settlement is Settlement.OVERRULED
        assert (origin.promise.asked_label, origin.prediction) == (1, 0)
        assert Fraction(origin.radius) + 50 <= Fraction(far.radius)
        assert smoothed.predict(ORIGIN, n=1000)[0].prediction == 0

    def test_origin_first(self, tmp_path: Path) -> None:
        """The origin keeps its class, and the far region stops short of its region."""
        smoothed = plane(memory=tmp_path / "memory.sqlite")
        (origin,) = smoothed.certify(ORIGIN, n=1000)
        assert origin.prediction == 1
        assert 0 < origin.radius <= 1.0
        (far,) = smoothed.certify(FAR, n=1000)
        assert far.promise is not None
        assert far.promise.settlement is Settlement.CUT
        assert far.prediction == 0
        assert Fraction(far.radius) + Fraction(origin.radius) < 50
        above = math.nextafter(far.radius, math.inf)
        assert Fraction(above) + Fraction(origin.radius) >= 50  # no larger one would do
        assert smoothed.predict(ORIGIN, n=1000)[0].prediction == 1

    def test_the_order_within_a_batch_is_that_of_the_inputs(self, tmp_path: Path) -> None:
        both = np.concatenate([FAR, ORIGIN])
        for name, order in (("far", [0, 1]), ("origin", [1, 0])):
            points = plane(memory=tmp_path / name).certify(both[order], n=1000, indices=order)
            assert [point.promise.position for point in points if point.promise] == [1, 2]
            settled = [point.promise.settlement for point in points if point.promise]
            assert settled == [Settlement.WHOLE, Settlement.OVERRULED if name == "far" else Settlement.CUT]


@dataclasses.dataclass(frozen=True)
class Granted:
    x: np.ndarray
    label: int
    radius: float


def squared_or_l1(x: np.ndarray, y: np.ndarray, norm: Norm) -> Fraction:
    """The exact distance in l1, the exact square of it in l2."""
    parts = [abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(x.ravel(), y.ravel(), strict=True)]
    return sum(parts, Fraction(0)) if norm is Norm.L1 else sum((part**2 for part in parts), Fraction(0))


def within(x: np.ndarray, y: np.ndarray, radius: Fraction, norm: Norm) -> bool:
    """d(x, y) ≤ radius, exactly."""
    return squared_or_l1(x, y, norm) <= (radius if norm is Norm.L1 else radius**2)


@dataclasses.dataclass
class Judge:
    """Everything that was granted so far; every later answer is held against it in exact arithmetic."""

    norm: Norm
    granted: list[Granted] = dataclasses.field(default_factory=list)
    contradictions: list[str] = dataclasses.field(default_factory=list)
    inside: int = 0

    def hear(self, x: np.ndarray, point: CertifiedPoint) -> None:
        around = [ball for ball in self.granted if within(x, ball.x, Fraction(ball.radius), self.norm)]
        self.inside += bool(around)
        # On the very border nothing is left to certify: then the promise has the class, and predict answers with it.
        kept = point.promise is not None and point.promise.radius == 0.0
        answer = point.promise.label if point.promise is not None and kept else point.prediction
        self.contradictions += [f"{answer} at {x}, promised {ball}" for ball in around if answer != ball.label]
        if point.outcome is not Outcome.CERTIFIED or point.prediction is None:
            return
        for ball in self.granted:
            if ball.label != point.prediction and within(
                x, ball.x, Fraction(ball.radius) + Fraction(point.radius), self.norm
            ):
                self.contradictions.append(f"{point.prediction} within {point.radius} of {x} meets {ball}")
        self.granted.append(Granted(x.copy(), point.prediction, point.radius))


def near_border(chance: random.Random, ball: Granted, norm: Norm) -> np.ndarray:
    """A float32 point as close to the border of a ball as can be written down, inside or outside."""
    angle = chance.uniform(0, 2 * math.pi)
    direction = np.array([math.cos(angle), math.sin(angle)])
    direction /= np.abs(direction).sum() if norm is Norm.L1 else 1.0
    stretch = 1 + chance.choice([0.0, 1e-7, -1e-7, 1e-5, -1e-5, 0.01, -0.01])
    point = (ball.x.ravel() + direction * ball.radius * stretch).astype(np.float32)
    step = chance.choice([-math.inf, 0.0, math.inf])
    return point if step == 0.0 else np.nextafter(point, np.float32(step)).astype(np.float32)


def chosen_point(chance: random.Random, granted: list[Granted], norm: Norm) -> np.ndarray:
    kind = chance.random()
    if granted and kind < 0.45:
        return near_border(chance, chance.choice(granted), norm)
    if granted and kind < 0.55:
        return chance.choice(granted).x.ravel()
    size = 1.5 if kind < 0.8 else 60.0
    return np.array([chance.uniform(-size, size), chance.uniform(-size, size)], dtype=np.float32)


Answer = Callable[[np.ndarray], CertifiedPoint]


def drive(certifiers: Iterator[tuple[Answer, Answer]], judge: Judge, *, rounds: int, seed: int) -> None:
    """A long sequence of questions. certifiers: for each round the certify and the predict to use.

    It begins inside the unit ball: a large region of class 0 in the beginning would leave no other class to meet.
    """
    chance = random.Random(seed)
    for turn, (certify, predict) in enumerate(itertools.islice(certifiers, rounds)):
        if turn < 2:
            x = np.array([[chance.uniform(-0.4, 0.4), 0.8 * turn - 0.4]], dtype=np.float32)
            judge.hear(x, certify(x))
            continue
        x = chosen_point(chance, judge.granted, judge.norm)[np.newaxis]
        judge.hear(x, (certify if chance.random() < 0.5 else predict)(x))


def with_memory(path: Path, noise: Noise, *, seed: int) -> Iterator[tuple[Answer, Answer]]:
    """Three classifiers over one file, each with a seed of its own; now and then one is opened anew."""
    chance = random.Random(seed)
    open_ones: dict[int, SmoothedClassifier] = {}
    for turn in itertools.count():
        who = chance.randrange(3)
        if who not in open_ones or chance.random() < 0.1:
            open_ones[who] = plane(memory=path, noise=noise, seed=1000 * seed + turn)
        one = open_ones[who]
        n = chance.choice([50, 200, 500])
        yield (
            lambda x, one=one, n=n: one.certify(x, n0=20, n=n)[0],
            lambda x, one=one, n=n: one.predict(x, n=n)[0],
        )


def without_memory(noise: Noise, *, seed: int) -> Iterator[tuple[Answer, Answer]]:
    """The naive way: certify as if the sigma found at an input were everywhere; predict with that of each input."""
    rule = searching(noise).for_model(plane(noise=noise).classifier)

    def certify(x: np.ndarray) -> CertifiedPoint:
        return plane(sigma=float(rule.sigmas(x)[0]), noise=noise, seed=seed).certify(x, n0=20, n=200)[0]

    def predict(x: np.ndarray) -> CertifiedPoint:
        return plane(noise=noise, seed=seed).predict(x, n=200)[0]

    while True:
        yield certify, predict


@pytest.mark.parametrize("noise", [noise for noise in Noise if noise.sampled])
class TestNoContradictionCanBeProduced:
    @pytest.mark.parametrize("seed", [1, 2])
    def test_with_a_memory(self, tmp_path: Path, noise: Noise, seed: int) -> None:
        """Holds whatever is drawn: no sampling error is excused."""
        judge = Judge(noise.norm)
        drive(with_memory(tmp_path / "memory.sqlite", noise, seed=seed), judge, rounds=150, seed=seed)
        assert judge.contradictions == []
        assert judge.inside > 30  # questions that could have been answered wrongly
        assert {ball.label for ball in judge.granted} == {0, 1}
        smoothed = plane(memory=tmp_path / "memory.sqlite", noise=noise)
        memory = memory_of(smoothed)
        audit = memory.audit()
        assert audit.consistent, audit.problems
        assert memory.key.norm is judge.norm

    def test_without_one_there_are_contradictions(self, noise: Noise) -> None:
        """The negative control: the same questions, the same judge."""
        judge = Judge(noise.norm)
        drive(without_memory(noise, seed=1), judge, rounds=60, seed=1)
        assert judge.contradictions

    def test_borders_are_exact(self, tmp_path: Path, noise: Noise) -> None:
        """Every float32 neighbour of points on the border of a granted region: inside the class, or anything."""
        path, norm = tmp_path / "memory.sqlite", noise.norm
        first = plane(memory=path, noise=noise)
        judge = Judge(norm)
        for x in (ORIGIN, FAR, np.array([[0.0, 3.0]], dtype=np.float32)):
            judge.hear(x, first.certify(x, n0=20, n=200)[0])
        assert len({ball.label for ball in judge.granted}) == 2
        stranger = plane(memory=path, noise=noise, seed=77)
        chance = random.Random(3)
        for ball in tuple(judge.granted):
            for _ in range(15):
                x = near_border(chance, ball, norm)[np.newaxis]
                judge.hear(x, stranger.predict(x, n=50)[0])
                judge.hear(x, stranger.certify(x, n0=10, n=50)[0])
        assert judge.contradictions == []


SIGMA, N = 0.5, 1000
ASKED = SIGMA * unanimous(n=N)
"""What x = (3, 0) claims: the border is six sigma away, so all votes agree (but for 1e-6 over all samples)."""
X = np.array([[3.0, 0.0]], dtype=np.float32)
DOUBT = np.array([[0.0, 0.0]], dtype=np.float32)
"""On the border: half of the votes for each class. It certifies by mistake with probability below alpha."""


@pytest.fixture
def smoothed(tmp_path: Path) -> SmoothedClassifier:
    return plane(right_half, sigma=SIGMA, memory=tmp_path / "memory.sqlite")


def memory_of(smoothed: SmoothedClassifier) -> RegionMemory:
    smoothed.open_memory()
    assert smoothed.memory is not None
    return smoothed.memory


class TestSettlements:
    def certified(self, smoothed: SmoothedClassifier, x: np.ndarray = X, **more: Any) -> CertifiedPoint:
        (point,) = smoothed.certify(x, n=N, **more)
        return point

    def test_whole(self, smoothed: SmoothedClassifier) -> None:
        point = self.certified(smoothed)
        promise = point.promise
        assert promise is not None
        assert (promise.label, promise.asked_label, promise.position) == (1, 1, 1)
        assert promise.settlement is Settlement.WHOLE
        assert promise.radius == promise.asked_radius == point.radius == pytest.approx(ASKED, rel=1e-9)
        assert promise.memory == memory_of(smoothed).identity
        assert (point.outcome, point.prediction, point.reason) == (Outcome.CERTIFIED, 1, None)
        assert point.guarantee is not None
        assert point.guarantee.alpha == 0.001
        sentence = str(point.guarantee)
        assert sentence.startswith(f"From position 1 of the memory {promise.memory[:12]} on")
        for words in (
            "as long as that memory is kept and consulted",
            "class 1",
            repr(point.radius),
            "l2",
            "at most 0.001",
        ):
            assert words in sentence

    def test_cut(self, smoothed: SmoothedClassifier) -> None:
        memory_of(smoothed).claim(X + np.float32([[1, 0]]), 0, 0.25)
        point = self.certified(smoothed)
        promise = point.promise
        assert promise is not None
        assert (promise.settlement, promise.position) == (Settlement.CUT, 2)
        assert point.radius == promise.radius == math.nextafter(0.75, 0.0)  # open towards the other region
        assert promise.asked_radius == pytest.approx(ASKED, rel=1e-9)
        assert (promise.label, promise.asked_label, point.prediction) == (1, 1, 1)
        assert point.reason == Reason(ReasonCode.REGION_CUT, {})
        assert point.guarantee is not None
        assert point.guarantee.alpha == 0.001
        assert point.guarantee.radius == point.radius

    def test_a_neighbour_of_the_same_class_cuts_nothing(self, smoothed: SmoothedClassifier) -> None:
        memory_of(smoothed).claim(X + np.float32([[1, 0]]), 1, 0.25)
        point = self.certified(smoothed)
        assert point.promise is not None
        assert point.promise.settlement is Settlement.WHOLE
        assert point.radius == pytest.approx(ASKED, rel=1e-9)

    @pytest.mark.parametrize(("around", "left"), [(1.0, 0.75), (8.0, None)])
    def test_overruled(self, smoothed: SmoothedClassifier, around: float, left: float | None) -> None:
        memory_of(smoothed).claim(X + np.float32([[0, 0.25]]), 0, around)
        point = self.certified(smoothed)
        promise = point.promise
        assert promise is not None
        assert (promise.settlement, promise.position) == (Settlement.OVERRULED, 2)
        assert (promise.label, promise.asked_label, point.prediction) == (0, 1, 0)
        assert point.radius == promise.radius == (promise.asked_radius if left is None else left)
        assert (point.outcome, point.reason) == (Outcome.CERTIFIED, Reason(ReasonCode.REGION_OVERRULED, {}))
        # The bounds are those of the votes, about the class that was asked for.
        assert point.bounds is not None
        assert point.bounds.label == 1
        assert point.bounds.quantities[Quantity.TOP_LOWER].value == pytest.approx(0.001 ** (1 / N), rel=1e-9)
        assert point.guarantee is not None
        assert point.guarantee.alpha is None
        sentence = str(point.guarantee)
        assert "An earlier claim promised it" in sentence
        assert "probability" not in sentence
        assert "class 0" in sentence

    def test_inherited(self, smoothed: SmoothedClassifier) -> None:
        memory_of(smoothed).claim(DOUBT + np.float32([[0, 0.25]]), 0, 1.0)
        point = self.certified(smoothed, DOUBT)
        promise = point.promise
        assert promise is not None
        assert (promise.settlement, promise.position) == (Settlement.INHERITED, 1)
        assert (promise.asked_label, promise.asked_radius) == (None, 0.0)
        assert (point.prediction, point.radius, point.outcome) == (0, 0.75, Outcome.CERTIFIED)
        assert point.reason == Reason(ReasonCode.REGION_INHERITED, {})
        assert point.bounds is not None
        assert point.guarantee is not None
        assert point.guarantee.alpha is None
        assert "An earlier claim promised it" in str(point.guarantee)
        assert len(memory_of(smoothed)) == 1  # an abstention claims nothing

    def test_an_abstention_outside_all_regions_stays_one_and_claims_nothing(self, smoothed: SmoothedClassifier) -> None:
        memory_of(smoothed).claim(X, 1, 1.0)
        point = self.certified(smoothed, DOUBT)
        assert (point.outcome, point.promise, point.guarantee) == (Outcome.ABSTAINED, None, None)
        assert len(memory_of(smoothed)) == 1

    @pytest.mark.parametrize("x", [X, DOUBT], ids=["votes", "doubt"])
    def test_no_room_left(self, smoothed: SmoothedClassifier, x: np.ndarray) -> None:
        """Exactly on the border of a closed region of another class."""
        memory_of(smoothed).claim(x + np.float32([[0, 0.5]]), 0, 0.5)
        point = self.certified(smoothed, x)
        assert (point.outcome, point.prediction, point.radius) == (Outcome.PREDICTED, 0, 0.0)
        assert point.reason == Reason(ReasonCode.NO_ROOM_IN_MEMORY, {})
        assert "no room" in str(point.reason)
        assert point.promise is not None
        assert (point.promise.label, point.promise.radius) == (0, 0.0)
        assert point.guarantee is None
        (answer,) = smoothed.predict(x, n=100)
        assert answer.prediction == 0  # the border belongs to the region

    def test_a_failure_stays_one_inside_a_region(self, tmp_path: Path) -> None:
        def broken(batch: np.ndarray) -> np.ndarray:
            return np.full((len(batch), 2), np.nan)

        smoothed = plane(broken, sigma=SIGMA, memory=tmp_path / "memory.sqlite")
        assert self.certified(smoothed).outcome is Outcome.FAILED
        assert len(memory_of(smoothed)) == 0
        memory_of(smoothed).claim(X, 1, 0.5)
        point = self.certified(smoothed)
        assert (point.outcome, point.prediction, point.radius) == (Outcome.FAILED, None, 0.0)
        assert point.reason is not None
        assert point.reason.code is ReasonCode.NO_FINITE_ANSWER
        assert "no finite answer" in str(point.reason)
        assert smoothed.predict(X, n=100)[0].prediction == 1  # which is looked up, not computed

    def test_the_same_again_is_the_same_promise(self, smoothed: SmoothedClassifier) -> None:
        one = self.certified(smoothed, indices=[7])
        again = self.certified(smoothed, indices=[7])
        assert one.promise == again.promise
        assert len(memory_of(smoothed)) == 1

    def test_any_sigma_and_every_theorem_for_a_constant_one(self, tmp_path: Path) -> None:
        """A plain function of the input is refused without a memory, and certified with one."""

        def level(x: np.ndarray) -> float:
            return 0.25 + 0.05 * abs(float(x[0]))

        with pytest.raises(InputError, match="this sigma has no envelope"):
            plane(right_half, sigma=level).certify(X, n=N)
        for certificate in (None, "gaussian", "gaussian-two-class", "dipole"):
            with_memory = plane(right_half, sigma=level, memory=tmp_path / f"{certificate}.sqlite")
            (point,) = with_memory.certify(X, n=N, certificate=certificate)
            assert point.sigma == pytest.approx(0.4)
            assert point.verdict.certificate == (certificate or "gaussian")
            assert point.promise is not None
            assert point.promise.radius == point.radius > 0


class Watched:
    """`right_half`, with the number of inputs it has seen in batches and something to do when it is called."""

    def __init__(self) -> None:
        self.seen = 0
        self.meanwhile: Callable[[], object] | None = None

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.seen += len(batch) if len(batch) > 1 else 0  # now and then a row is asked again alone
        if self.meanwhile is not None:
            task, self.meanwhile = self.meanwhile, None
            task()
        return right_half(batch)


class TestPredict:
    def test_inside_a_region_nothing_is_sampled(self, tmp_path: Path) -> None:
        model = Watched()
        smoothed = plane(model, sigma=searching(), memory=tmp_path / "memory.sqlite")
        promise = memory_of(smoothed).claim(X, 0, 1.0)
        model.seen = 0
        (point,) = smoothed.predict(X + np.float32([[0.5, 0]]), n=1000, labels=[1])
        assert model.seen == 0  # not even to look for sigma
        assert (point.outcome, point.prediction, point.radius) == (Outcome.PREDICTED, 0, 0.0)
        assert point.promise is not None
        assert (point.promise.position, point.promise.label) == (promise.position, 0)
        assert point.reason == Reason(ReasonCode.IN_PROMISED_REGION, {"position": 1})
        assert "position 1" in str(point.reason)
        assert math.isnan(point.sigma)
        assert point.tallies == ()
        assert not point.correct

    def test_only_the_open_questions_are_sampled(self, tmp_path: Path) -> None:
        model = Watched()
        smoothed = plane(model, sigma=SIGMA, memory=tmp_path / "memory.sqlite")
        memory_of(smoothed).claim(X, 0, 1.0)
        inputs = np.concatenate([X + np.float32([[shift, 0]]) for shift in (5, 0, 6, 0.5, -8)])
        model.seen = 0
        heard: list[int] = []
        points = smoothed.predict(inputs, n=200, progress=heard.append)
        assert model.seen == 3 * 200
        assert [point.prediction for point in points] == [1, 0, 1, 0, 0]
        assert [point.index for point in points] == list(range(5))
        assert [point.promise is not None for point in points] == [False, True, False, True, False]
        assert sum(heard) == 5 * 200

    def test_votes_outside_are_those_without_a_memory(self, smoothed: SmoothedClassifier) -> None:
        memory_of(smoothed).claim(X, 0, 1.0)
        inputs = np.concatenate([X, -X])
        answers = smoothed.predict(inputs, n=200)
        plain = plane(right_half, sigma=SIGMA).predict(inputs, n=200)
        assert answers[1].tallies == plain[1].tallies

    def test_predict_promises_nothing(self, smoothed: SmoothedClassifier) -> None:
        smoothed.predict(X, n=200)
        assert len(memory_of(smoothed)) == 0

    def test_a_claim_made_during_the_sampling_wins(self, tmp_path: Path) -> None:
        """Somebody else claims the input for class 0 after the first look and before the answer."""
        model = Watched()
        smoothed = plane(model, sigma=SIGMA, memory=tmp_path / "memory.sqlite")
        other = open_memory(tmp_path / "memory.sqlite", memory_of(smoothed).key)
        model.meanwhile = lambda: other.claim(X, 0, 1.0)
        (point,) = smoothed.predict(X, n=1000)
        assert model.meanwhile is None
        assert (point.prediction, point.outcome) == (0, Outcome.PREDICTED)
        assert point.promise is not None
        other.close()

    def test_certify_too(self, tmp_path: Path) -> None:
        model = Watched()
        smoothed = plane(model, sigma=SIGMA, memory=tmp_path / "memory.sqlite")
        other = open_memory(tmp_path / "memory.sqlite", memory_of(smoothed).key)
        model.meanwhile = lambda: other.claim(X, 0, 1.0)
        (point,) = smoothed.certify(X, n=N)
        assert point.promise is not None
        assert point.promise.settlement is Settlement.OVERRULED
        assert (point.prediction, point.radius) == (0, 1.0)
        other.close()


def other_model(batch: np.ndarray) -> np.ndarray:
    return 1 - right_half(batch)


class TestKeys:
    def test_what_makes_another_memory(self, tmp_path: Path) -> None:
        """All in one file; none knows of the regions of another."""
        path = tmp_path / "memory.sqlite"
        grid = OptimisedSigma(0.5, search=SEARCH)
        classifiers = [
            plane(right_half, sigma=0.5, memory=path),
            plane(other_model, sigma=0.5, memory=path),
            plane(right_half, sigma=0.6, memory=path),
            plane(right_half, sigma=0.5, noise=Noise.UNIFORM, memory=path),
            plane(right_half, sigma=0.5, input_range=(-10.0, 10.0), memory=path),
            plane(right_half, sigma=grid, memory=path),
            plane(right_half, sigma=OptimisedSigma(0.6, search=SEARCH), memory=path),
            plane(right_half, sigma=OptimisedSigma(0.5, search=SEARCH, seed=1), memory=path),
            plane(right_half, sigma=OptimisedSigma(0.5, search=SEARCH, most=1.0), memory=path),
            plane(right_half, sigma=OptimisedSigma(0.5, search=SEARCH, selection=10), memory=path),
            plane(right_half, sigma=OptimisedSigma(0.5, search=GridSearch(points=9, noises=33)), memory=path),
            plane(right_half, sigma=OptimisedSigma(0.5, search=SignSearch(starts=2, moves=2)), memory=path),
            plane(other_model, sigma=grid, memory=path),
            plane(right_half, sigma=0.5, num_classes=3, memory=path),
            plane(right_half, sigma=0.5, input_shape=(2, 1), memory=path),
        ]
        for label, one in enumerate(classifiers):
            promise = memory_of(one).claim(X, label, 1.0)
            assert (promise.label, promise.position) == (label, 1)
        keys = {memory_of(one).key.digest for one in classifiers}
        assert len(keys) == len(classifiers)
        assert {summary.digest for summary in list_memories(path)} == keys

    def test_other_weights(self, tmp_path: Path) -> None:
        """The same class of model, trained otherwise."""
        from sklearn.linear_model import LogisticRegression

        x, y = np.array([[-1.0, 0.0], [-2.0, 1.0], [1.0, 0.5], [3.0, -1.0]]), [0, 0, 1, 1]
        models = [LogisticRegression(C=strength).fit(x, y) for strength in (1.0, 2.0, 1.0)]
        keys = [memory_of(plane(one, sigma=0.5, memory=tmp_path / "m.sqlite", num_classes=None)).key for one in models]
        assert keys[0] == keys[2] != keys[1]

    def test_what_does_not(self, tmp_path: Path) -> None:
        """How answers are computed is no part of what was promised."""
        path = tmp_path / "memory.sqlite"
        one = plane(right_half, sigma=0.5, memory=path)
        memory_of(one).claim(X, 0, 1.0)
        others = [
            plane(right_half, sigma=0.5, memory=path, seed=99),
            plane(right_half, sigma=0.5, memory=path, batch=17, workers=1),
            plane(right_half, sigma=0.5, memory=str(path)),
            plane(right_half, sigma=0.5, memory=memory_of(one)),
        ]
        for other in others:
            assert memory_of(other).key == memory_of(one).key
            assert other.predict(X, n=100)[0].prediction == 0

    @pytest.mark.parametrize("given", [(-10, 10), (np.float32(-10), np.float32(10)), [-10.0, 10.0]], ids=repr)
    def test_a_range_is_the_same_however_its_numbers_are_written(self, tmp_path: Path, given: Any) -> None:
        """Otherwise two processes that answer for one classifier keep two memories and contradict each other."""
        path = tmp_path / "memory.sqlite"
        one = plane(right_half, sigma=0.5, memory=path, input_range=(-10.0, 10.0))
        other = plane(right_half, sigma=0.5, memory=path, input_range=given)
        assert memory_of(other).key == memory_of(one).key

    @pytest.mark.parametrize("given", [1, np.float64(1.0)], ids=repr)
    def test_so_is_a_level(self, tmp_path: Path, given: Any) -> None:
        path = tmp_path / "memory.sqlite"
        one, other = (plane(right_half, sigma=level, memory=path) for level in (1.0, given))
        assert memory_of(other).key == memory_of(one).key
        one, other = (
            plane(right_half, sigma=OptimisedSigma(level, search=SEARCH), memory=path) for level in (1.0, given)
        )
        assert memory_of(other).key == memory_of(one).key

    def test_a_memory_with_another_key_is_refused(self, tmp_path: Path) -> None:
        one = plane(right_half, sigma=0.5, memory=tmp_path / "memory.sqlite")
        other = plane(right_half, sigma=0.6, memory=memory_of(one))
        for question in (other.predict, other.certify):
            with pytest.raises(InputError, match=r"regions of another classifier.*open_memory"):
                question(X, n=N)
        assert len(memory_of(one)) == 0

    def test_the_memory_of_uniform_noise_is_in_l1(self, tmp_path: Path) -> None:
        smoothed = plane(right_half, sigma=1.0, noise=Noise.UNIFORM, memory=tmp_path / "memory.sqlite")
        assert memory_of(smoothed).key.norm is Norm.L1
        memory_of(smoothed).claim(X + np.float32([[0.5, 0.5]]), 0, 0.25)
        (point,) = smoothed.certify(X, n=N)
        # At l1 distance 1 (l2: 0.71); asked for 2·0.001^(1/1000) - 1 = 0.986.
        assert point.promise is not None
        assert point.promise.settlement is Settlement.CUT
        assert (point.radius, point.norm) == (math.nextafter(0.75, 0), Norm.L1)
        assert "l1 distance" in str(point.guarantee)


class TestRefusals:
    @pytest.mark.parametrize("several", ["gaussian,gaussian-two-class", "best-of(gaussian,gaussian-two-class)"])
    def test_several_certificates(self, smoothed: SmoothedClassifier, several: str) -> None:
        with pytest.raises(InputError, match=r"one region for an input.*name one certificate"):
            smoothed.certify(X, n=N, certificate=several)
        assert len(memory_of(smoothed)) == 0

    def test_noise_that_sigma_was_not_optimised_for(self) -> None:
        with pytest.raises(InputError, match="optimised for gaussian noise, but the noise here is uniform"):
            plane(sigma=searching(Noise.GAUSSIAN), noise=Noise.UNIFORM)

    def test_noise_may_be_a_word_in_both_places(self, tmp_path: Path) -> None:
        sigma = OptimisedSigma(0.25, search=SEARCH, noise="uniform")  # type: ignore[arg-type]
        smoothed = SmoothedClassifier(
            in_unit_ball, sigma=sigma, noise="uniform", memory=tmp_path / "m.sqlite", num_classes=2, input_range=None
        )
        (point,) = smoothed.certify(FAR, n=100)
        assert point.norm is Norm.L1

    def test_a_search_that_needs_scores(self, tmp_path: Path) -> None:
        from smoothcert.sigma import Ascent

        smoothed = plane(sigma=OptimisedSigma(0.25, search=Ascent()), memory=tmp_path / "memory.sqlite")
        with pytest.raises(InputError, match=r"gives only votes; choose grid or signs"):
            smoothed.certify(X, n=N)

    @pytest.mark.parametrize(
        "address",
        [
            "postgresql://user:geheim@db.example/regions",
            "postgres://user:geheim@db.example:5433/regions?sslmode=require",
            "postgresql://db.example/regions?user=me&password=geheim",
            "POSTGRESQL://user:geheim@db.example/regions",
            "postgresql://user:geheim#geheim@db.example/regions",
            "postgresql://user:geheim?geheim@db.example/regions",
            "postgresql://user:geheim@geheim@db.example/regions",
            "postgresql://user:[geheim@db.example/regions",
        ],
    )
    def test_no_password_is_shown(self, address: str) -> None:
        """libpq takes everything up to the last @ before a slash for user and password."""
        from smoothcert.memory import resolve_location

        assert "geheim" not in repr(plane(memory=address))
        assert "geheim" not in resolve_location(address)


class InL2(FormulaCertificate):
    """A user's own certificate for uniform noise, with radii in another norm than ours."""

    @property
    def norm(self) -> Norm:
        return Norm.L2


def test_a_theorem_in_another_norm_is_refused(tmp_path: Path) -> None:
    """Regions are balls in the norm of the noise; a radius in another one would promise points outside of them."""
    uniform = get_certificate("uniform-l1")
    assert isinstance(uniform, FormulaCertificate)
    settings = {field.name: getattr(uniform, field.name) for field in dataclasses.fields(uniform)}
    euclidean = InL2(**(settings | {"name": "mine"}))
    smoothed = plane(right_half, sigma=0.5, noise=Noise.UNIFORM, memory=tmp_path / "memory.sqlite")
    with pytest.raises(InputError, match="l2 norm, and with uniform noise a memory keeps regions in the l1 norm"):
        smoothed.certify(X, n=N, certificate=euclidean)


def test_a_memory_of_the_callers_own_stays_open(tmp_path: Path) -> None:
    with plane(right_half, sigma=SIGMA, memory=tmp_path / "memory.sqlite") as first:
        first.certify(X, n=N)
        key = first.memory_key
    with pytest.raises(RegionMemoryError, match="was closed"):
        len(memory_of(first))
    with open_memory(tmp_path / "memory.sqlite", key) as mine:
        with plane(right_half, sigma=SIGMA, memory=mine) as smoothed:
            smoothed.predict(X, n=100)
        assert len(mine) == 1
