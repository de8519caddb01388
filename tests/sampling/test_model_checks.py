"""Checks of randomly picked noisy copies against the user's model: which, how many, and what they detect."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError, ModelMismatchError
from smoothcert.models import as_classifier
from smoothcert.models.devices import torch_threads
from smoothcert.models.original import Answer, is_tie
from smoothcert.models.torch_classifier import TorchClassifier
from smoothcert.noise import from_grid
from smoothcert.records import CheckCounts, Noise, Stage, StreamId, TallyKind
from smoothcert.sampling import ModelChecks, Request, Sampler
from smoothcert.sampling.model_checks import LEAST_ASKED, CopyMaker

SHAPE, SIZE, CLASSES, LEVELS = (2, 3), 6, 4, 256
INPUTS = from_grid(np.random.default_rng(0).integers(0, LEVELS, (3, *SHAPE)).astype(np.int32), LEVELS)


def logits_of(batch: np.ndarray) -> np.ndarray:
    flat = batch.reshape(len(batch), -1).astype(np.float64)
    return np.stack([np.sin(3 * k + flat @ np.arange(1, SIZE + 1)) for k in range(CLASSES)], axis=1)


class Pure:
    """A base classifier of the user's own that gives scores, for several threads."""

    num_classes, input_shape, digest, description, backend = CLASSES, SHAPE, "pure", "pure", "numpy"
    concurrency, gives_scores = 4, True

    def classify(self, batch: np.ndarray) -> np.ndarray:
        return logits_of(batch).argmax(axis=1)

    def votes_and_scores(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raised = np.exp(logits_of(batch))
        return self.classify(batch), raised / raised.sum(axis=1, keepdims=True)

    def prepare_thread(self) -> None: ...
    def release_threads(self) -> None: ...


class OnDevice(Pure):
    device, concurrency = torch.device("cpu"), 1

    def classify_tensor(self, batch: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.classify(batch.numpy()))


def request(row: int, kind: TallyKind, *, stop: int = 200, **changes) -> Request:
    group = tuple(range(CLASSES + 1)) if kind is TallyKind.GRADIENTS else ()
    made = Request(row, StreamId(7, 10 * row, Stage.ESTIMATION), 0.5, 0, stop, kind=kind, group=group)
    return replace(made, **changes)


@pytest.mark.parametrize("classifier", [Pure(), OnDevice()], ids=["host", "device"])
@pytest.mark.parametrize("kind", list(TallyKind))
@pytest.mark.parametrize(
    "changes",
    [{}, {"grid": LEVELS}, {"shared": True}, {"grid": LEVELS, "shared": True}, {"noise": Noise.UNIFORM}],
    ids=["float", "grid", "shared", "grid-shared", "uniform"],
)
def test_a_picked_copy_is_the_one_that_was_counted(classifier, kind, changes):
    """All copies are picked: the copies made again get the votes that were counted, and these add up to the tallies."""
    if changes.get("noise") is Noise.UNIFORM and kind in (TallyKind.PAIRS, TallyKind.GRADIENTS):
        pytest.skip("counted under Gaussian noise only")
    wanted = [request(row, kind, stop=40, **changes) for row in range(3)]
    wanted = [replace(one, picks=tuple(range(one.samples))) for one in wanted]
    found = []
    sampler = Sampler(classifier, batch=14, workers=2)
    tallies = sampler.tally(INPUTS, wanted, on_picked=lambda requests, picked: found.extend(picked))
    assert sorted((vote.request, vote.copy) for vote in found) == [
        (number, copy) for number, one in enumerate(wanted) for copy in range(one.samples)
    ]
    makers = [CopyMaker(None, INPUTS, one) for one in wanted]  # each makes all its copies, in any order
    for vote in found:
        noisy = makers[vote.request].copy(vote.copy)
        assert classifier.classify(noisy[None])[0] == vote.vote
        assert (vote.scores is not None) == (kind is TallyKind.SCORES)
        if vote.scores is not None:
            assert np.allclose(classifier.votes_and_scores(noisy[None])[1][0], vote.scores)
    if kind is not TallyKind.PAIRS:
        for number, tally in enumerate(tallies):
            counted = Counter(vote.vote for vote in found if vote.request == number)
            assert counted == {label: count for label, count in enumerate(tally.counts) if count}


def test_the_copies_of_a_pair_are_those_on_both_sides():
    one = request(0, TallyKind.PAIRS)
    plus, minus = (CopyMaker(None, INPUTS, one).copy(2 * 17 + half) for half in range(2))
    assert not np.array_equal(plus, minus)
    assert np.allclose((plus + minus) / 2, INPUTS[0], atol=1e-6)


def picks_of(checks: ModelChecks, jobs: int, copies: int) -> list[int]:
    """The number of checks in each job if the model agrees."""
    counts = []
    for _ in range(jobs):
        (picked,) = checks.pick([request(0, TallyKind.VOTES, stop=copies)])
        counts.append(len(picked.picks))
        checks.counts += CheckCounts(asked=len(picked.picks))
    return counts


def test_a_run_spreads_the_least_number_over_its_life():
    checks = ModelChecks(Pure())
    checks.expect(50_000)
    counts = picks_of(checks, 50, 1000)
    assert sum(counts) >= LEAST_ASKED
    assert max(counts) <= 41
    assert min(counts) >= 38


def test_a_long_run_asks_one_in_a_thousand():
    checks = ModelChecks(Pure())
    checks.expect(10_000_000)
    counts = picks_of(checks, 1000, 10_000)
    assert 9_900 <= sum(counts) <= 10_200
    assert max(counts[1:]) <= 11


def test_a_run_that_is_resumed_asks_what_is_missing():
    checks = ModelChecks(Pure(), earlier=CheckCounts(drawn=25_000, asked=1000))
    checks.expect(25_000)
    assert sum(picks_of(checks, 25, 1000)) in range(1000, 1030)


def test_the_first_call_asks_the_least_number_and_later_ones_are_quick():
    checks = ModelChecks(Pure())
    checks.expect(100_000)
    assert sum(picks_of(checks, 10, 10_000)) >= LEAST_ASKED
    checks.expect(100_000)
    assert 70 <= sum(picks_of(checks, 10, 10_000)) <= 110


def test_a_small_first_call_asks_about_everything_and_the_next_ones_catch_up():
    checks = ModelChecks(Pure())
    checks.expect(500)
    assert picks_of(checks, 1, 500) == [500]
    checks.expect(10_000)
    assert picks_of(checks, 1, 10_000) == [1500]


def test_every_call_asks_some():
    checks = ModelChecks(Pure(), earlier=CheckCounts(drawn=10**6, asked=5000))
    checks.expect(300)
    assert sum(picks_of(checks, 3, 100)) == 8


def test_every_copy_is_as_likely_as_every_other():
    """χ² over requests of different kinds and lengths: a false alarm in 10⁻⁶ of all runs."""
    hits = np.zeros(300, dtype=int)
    for _ in range(300):
        checks = ModelChecks(Pure())
        checks.counts = CheckCounts(drawn=1, asked=LEAST_ASKED - 30)
        checks.expect(300)
        parts = checks.pick([request(0, TallyKind.VOTES, stop=100), request(1, TallyKind.VOTES, start=100, stop=300)])
        assert sum(len(one.picks) for one in parts) == 30
        for one in parts:
            assert list(one.picks) == sorted(set(one.picks))
            hits[list(one.picks)] += 1
    expected = 300 * 30 / 300
    statistic = float(((hits - expected) ** 2 / expected).sum() / (1 - 30 / 300))
    assert statistic < 299 + 5.5 * np.sqrt(2 * 299)


@pytest.mark.parametrize(("batch", "workers"), list(itertools.product([1, 64, 4096], [1, 2])))
def test_the_share_depends_on_nothing_but_the_copies(batch, workers):
    smoothed = SmoothedClassifier(Pure(), sigma=0.5, batch=batch, workers=workers, seed=1)
    smoothed.certify(INPUTS[:2], n=2000)
    assert smoothed.checks.drawn == 2 * 2100
    assert smoothed.checks.asked == LEAST_ASKED
    assert smoothed.checks.ties == 0


class Changed(Pure):
    """Gives another class to a share of the rows, but not to rows that are asked alone."""

    def __init__(self, share: float) -> None:
        self._share = share

    def classify(self, batch):
        votes = super().classify(batch)
        if len(batch) == 1:
            return votes
        bits = np.ascontiguousarray(batch.reshape(len(batch), -1)[:, 0]).view(np.uint32)
        return np.where(bits % 1000 < 1000 * self._share, (votes + 1) % CLASSES, votes)


@pytest.mark.parametrize("certificate", ["gaussian", "dipole", "second-order"])
def test_one_vote_in_a_hundred_is_found(certificate):
    """2000 copies miss a share of 1 % with probability 2·10⁻⁹."""
    smoothed = SmoothedClassifier(Changed(0.01), sigma=0.5, batch=256, seed=1)
    with pytest.raises(ModelMismatchError, match="nothing is certified"):
        smoothed.certify(INPUTS + np.float32(1e-3), n=10_000, certificate=certificate)


def test_no_vote_in_a_hundred_is_the_control():
    smoothed = SmoothedClassifier(Changed(0.0), sigma=0.5, batch=256, seed=1)
    smoothed.certify(INPUTS + np.float32(1e-3), n=10_000)
    assert smoothed.checks.ties == 0


def test_scores_that_differ_are_found():
    class Scaled(Pure):
        def votes_and_scores(self, batch):
            votes, scores = super().votes_and_scores(batch)
            if len(batch) > 1:
                scores = 0.9 * scores + 0.1 / CLASSES  # the same votes
            return votes, scores

    smoothed = SmoothedClassifier(Scaled(), sigma=0.5, batch=256, seed=1)
    with pytest.raises(ModelMismatchError, match="scores"):
        smoothed.certify(INPUTS[:1] + np.float32(1e-3), n=1000, certificate="gaussian-soft")


def test_a_random_model_is_no_function():
    generator = np.random.default_rng(0)

    def model(batch):
        return generator.integers(0, 2, len(batch))

    smoothed = SmoothedClassifier(model, sigma=0.5, num_classes=2, seed=1)
    with pytest.raises(ModelMismatchError):
        smoothed.certify(INPUTS, n=1000)


def test_a_model_that_changes_in_the_end_is_found():
    """The model changes after all copies were counted, before they are asked again."""

    class Clock(Pure):
        late = False

        def classify(self, batch):
            return (super().classify(batch) + self.late) % CLASSES

        def votes_and_scores(self, batch):
            return self.classify(batch), super().votes_and_scores(batch)[1]

    clock = Clock()
    checks = ModelChecks(clock)
    checks.expect(1000)
    wanted = checks.pick([request(0, TallyKind.VOTES, stop=1000)])
    Sampler(clock, batch=100).tally(
        INPUTS, wanted, on_picked=lambda requests, picked: checks.compare(INPUTS, requests, picked)
    )
    clock.late = True
    with pytest.raises(ModelMismatchError, match="fixed function"):
        checks.ask_again()
    clock.late = False
    checks.ask_again()  # the control


class Margin:
    """An original with two logits whose difference is the first value of the input."""

    def answer(self, row):
        margin = float(row.reshape(-1)[0])
        return Answer(vote=int(margin < 0), logits=np.array([1.0 + margin, 1.0]))


@pytest.mark.parametrize(
    ("margin", "tie"), [(0.0, True), (5e-7, True), (-5e-7, True), (1e-4, False), (-1e-4, False), (0.5, False)]
)
def test_a_tie_is_a_difference_that_rounding_explains(margin, tie):
    row = np.full(3, margin, dtype=np.float32)
    answer = Margin().answer(row)
    assert is_tie(Margin(), row, answer, 1 - answer.vote) == tie


def test_a_large_constant_in_all_logits_excuses_nothing():
    class Shifted:
        def answer(self, row):
            margin = float(row.reshape(-1)[0])
            return Answer(vote=int(margin < 0), logits=np.array([1e4 + margin, 1e4]))

    row = np.full(3, 0.5, dtype=np.float32)
    assert not is_tie(Shifted(), row, Shifted().answer(row), 1)


def test_a_model_without_logits_ties_on_its_boundary():
    class Threshold:
        def answer(self, row):
            return Answer(vote=int(float(row[0]) > 0.5))

    below = np.array([np.nextafter(np.float32(0.5), np.float32(0)), 0.3], dtype=np.float32)
    assert is_tie(Threshold(), below, Threshold().answer(below), 1)
    away = np.array([0.499, 0.3], dtype=np.float32)
    assert not is_tie(Threshold(), away, Threshold().answer(away), 1)


def test_votes_made_by_rounding_are_refused():
    """Two classes that always tie to the last digits, so that the batch decides."""

    class Tied(Pure):
        def classify(self, batch):
            return np.full(len(batch), int(len(batch) > 1))

        gives_scores = False

    class Original:
        def answer(self, row):
            return Answer(vote=0, logits=np.array([1.0, 1.0 - 1e-7, 0.0, 0.0]))

    tied = Tied()
    tied.original = Original()
    smoothed = SmoothedClassifier(tied, sigma=0.5, seed=1)
    with pytest.raises(ModelMismatchError, match="made by rounding"):
        smoothed.certify(INPUTS, n=1000)


def test_a_module_that_was_trained_further_is_noticed():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 3))
    smoothed = SmoothedClassifier(module, sigma=0.5, seed=1)
    smoothed.certify(INPUTS, n=1000)
    with torch.no_grad():
        module[1].bias += 1.0
    with pytest.raises(ModelMismatchError, match="make a new SmoothedClassifier"):
        smoothed.certify(INPUTS, n=100)


def test_a_function_that_is_changed_between_calls_is_refused():
    """A function is not copied, so the checks call the same object that was sampled; only its digest differs."""
    side = [0]

    def model(batch):
        return np.full(len(batch), side[0])

    smoothed = SmoothedClassifier(model, sigma=0.5, num_classes=2, seed=1)
    for _ in range(2):
        assert {point.prediction for point in smoothed.certify(INPUTS, n=100)} == {0}
    side[0] = 1
    with pytest.raises(ModelMismatchError, match="changed since"):
        smoothed.certify(INPUTS, n=100)
    side[0] = 0
    assert {point.prediction for point in smoothed.certify(INPUTS, n=100)} == {0}


def test_state_inside_a_module_is_not_shared_by_threads():
    class Buffered(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(SIZE, 3)
            self.register_buffer("out", torch.zeros(4096, 3))

        def forward(self, x):
            self.out[: len(x)] = self.lin(x.flatten(1))
            return self.out[: len(x)]

    class Noted(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(SIZE, 3)

        def forward(self, x):
            self.features = x.flatten(1)
            return self.lin(self.features)

    for kind in (Buffered, Noted):
        classifier = as_classifier(kind(), input_shape=SHAPE)
        assert classifier.concurrency == 1
        assert classifier.as_given


def test_autocast_around_a_later_call_is_refused():
    smoothed = SmoothedClassifier(nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 3)), sigma=0.5, input_shape=SHAPE, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(InputError, match="autocast"):
        smoothed.certify(INPUTS, n=100)


def test_transformers_that_work_in_place_are_asked_the_same_question_twice():
    preprocessing, linear_model = (
        pytest.importorskip("sklearn.preprocessing"),
        pytest.importorskip("sklearn.linear_model"),
    )
    from sklearn.pipeline import make_pipeline

    x = np.random.default_rng(0).random((200, 4), dtype=np.float32) * 0.05
    y = (x[:, 0] > x[:, 1]).astype(int)

    def radius(copy):
        scaler = preprocessing.MaxAbsScaler(copy=copy)
        model = make_pipeline(scaler, linear_model.LogisticRegression(C=10.0)).fit(x.copy(), y)
        smoothed = SmoothedClassifier(model, sigma=0.02, seed=1)
        return smoothed.certify(np.array([[0.06, 0.02, 0.02, 0.02]], "f4"), n=2000, certificate="gaussian-soft")[
            0
        ].radius

    assert radius(False) == radius(True)


def test_the_users_module_stays_in_the_mode_it_had():
    module = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(SIZE, 3), nn.Dropout().eval()).train()
    module[3].eval()
    before = [part.training for part in module.modules()]
    smoothed = SmoothedClassifier(module, sigma=0.5, seed=1)
    smoothed.certify(INPUTS, n=1000)
    assert [part.training for part in module.modules()] == before
    assert smoothed.checks.asked == LEAST_ASKED


def test_base_classifiers_of_the_users_own_are_their_own_original():
    assert as_classifier(Pure(), input_shape=SHAPE) is not None
    smoothed = SmoothedClassifier(Pure(), sigma=0.5, seed=1)
    smoothed.predict(INPUTS, n=500)
    assert smoothed.checks.asked == 1500


def test_copies_are_asked_again_with_one_thread_of_torch(monkeypatch: pytest.MonkeyPatch):
    """Failed before: at the end the classifier was asked by all threads of torch, which wait for each other."""
    threads: list[int] = []
    asking_again: list[bool] = []
    compute, again = TorchClassifier._logits, ModelChecks.ask_again

    def watch(self: TorchClassifier, batch: np.ndarray) -> np.ndarray:
        if asking_again:
            threads.append(torch.get_num_threads())
        return compute(self, batch)

    def ask_again(self: ModelChecks) -> None:
        asking_again.append(True)
        again(self)
        asking_again.clear()

    monkeypatch.setattr(TorchClassifier, "_logits", watch)
    monkeypatch.setattr(ModelChecks, "ask_again", ask_again)
    module = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, CLASSES)).train()
    with torch_threads(2):
        smoothed = SmoothedClassifier(module, sigma=0.5, grid=LEVELS, batch=32)
        smoothed.certify(INPUTS, n0=96, n=320)
        assert torch.get_num_threads() == 2
    assert set(threads) == {1}
    assert module.training
