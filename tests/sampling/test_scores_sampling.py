"""Scores: recomputed one sample at a time, independent of batches and workers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.errors import ModelError
from smoothcert.models import as_classifier
from smoothcert.noise import add_noise
from smoothcert.records import AnyTally, Noise, ScoreTally, Stage, StreamId, TallyKind, merge
from smoothcert.records.score_cells import SCORE_CELLS, score_cell
from smoothcert.sampling import Request, Sampler, segments

SHAPE = (2, 3)
SIZE = 6
CLASSES = 4


def logits_of(batch: np.ndarray) -> np.ndarray:
    """Logits of each row alone; some answers are invalid."""
    flat = batch.reshape(len(batch), -1).astype(np.float64)
    logits = np.stack([3 * np.sin(3 * k + flat @ np.arange(1, SIZE + 1)) for k in range(CLASSES)], axis=1)
    logits[np.abs(flat[:, 0] - 0.5) > 0.45] = np.nan
    return logits


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits)
    return raised / raised.sum(axis=-1, keepdims=True)


class Probe:
    """A base classifier for any number of threads that gives scores and remembers the largest batch it saw."""

    num_classes = CLASSES
    input_shape: tuple[int, ...] = SHAPE
    digest = "probe"
    description = "probe"
    backend = "numpy"
    gives_scores = True

    def __init__(self, concurrency: int = 8) -> None:
        self.concurrency = concurrency
        self.largest = 0

    def classify(self, batch: np.ndarray) -> np.ndarray:
        return self.votes_and_scores(batch)[0]

    def votes_and_scores(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.largest = max(self.largest, len(batch))
        logits = logits_of(batch)
        missing = np.isnan(logits).any(axis=1)
        return np.where(missing, CLASSES, logits.argmax(axis=1)), softmax(logits)

    def prepare_thread(self) -> None:
        pass

    def release_threads(self) -> None:
        pass


def inputs(m: int) -> np.ndarray:
    return np.random.default_rng(0).random((m, *SHAPE), dtype=np.float32)


def request(row: int = 0, *, start: int = 0, stop: int = 100, kind: TallyKind = TallyKind.SCORES) -> Request:
    return Request(
        row=row,
        stream=StreamId(2**40 + 3, 10 * row, Stage.ESTIMATION),
        sigma=(0.3, 0.7)[row % 2],
        start=start,
        stop=stop,
        kind=kind,
        label=(row + 2) % CLASSES,
    )


def tally_of(x: np.ndarray, *wanted: Request, batch: int = 16, workers: int | None = None) -> list[AnyTally]:
    return Sampler(Probe(), batch=batch, workers=workers).tally(x, wanted)


def by_hand(x: np.ndarray, wanted: Request) -> ScoreTally:
    """A loop over samples written from the definition."""
    counts = np.zeros(CLASSES + 1, dtype=np.int64)
    filled: dict[int, int] = {}
    for counter in range(wanted.start, wanted.stop):
        noisy = np.empty((1, SIZE), dtype=np.float32)
        add_noise(Noise.GAUSSIAN, noisy, x.ravel(), wanted.stream, sigma=wanted.sigma, start=counter)
        (logits,) = logits_of(noisy.reshape(1, *SHAPE))
        if np.isnan(logits).any():
            counts[-1] += 1
            continue
        counts[logits.argmax()] += 1
        scores = softmax(logits)
        largest = max(scores[c] for c in range(CLASSES) if c != wanted.label)
        for row, score in enumerate((scores[wanted.label], largest)):
            cell = row * SCORE_CELLS + int(score_cell(np.array([score]))[0])
            filled[cell] = filled.get(cell, 0) + 1
    cells = sorted(filled)
    return ScoreTally(
        wanted.stream,
        wanted.sigma,
        counts[:-1],
        int(counts[-1]),
        wanted.label,
        np.array(cells),
        np.array([filled[cell] for cell in cells]),
        ((wanted.start, wanted.stop),),
    )


def test_tallies_are_those_of_the_definition() -> None:
    x = inputs(3)
    wanted = [request(row, start=4 * row, stop=200 + 10 * row) for row in range(3)]
    found = tally_of(x, *wanted)
    assert found == [by_hand(x[one.row], one) for one in wanted]
    assert all(tally.independent_votes().invalid > 10 for tally in found)


@functools.cache
def reference(m: int, n: int) -> list[AnyTally]:
    return Sampler(Probe(concurrency=1), batch=2).tally(inputs(m), [request(row, stop=n) for row in range(m)])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 100),
    st.one_of(st.sampled_from([1, 2, 3, 5]), st.integers(1, 300)),
    st.integers(1, 4),
)
def test_batch_size_and_workers_change_nothing(m: int, n: int, batch: int, workers: int) -> None:
    wanted = [request(row, stop=n) for row in range(m)]
    assert tally_of(inputs(m), *wanted, batch=batch, workers=workers) == reference(m, n)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(4)), st.integers(1, 4), st.integers(1, 40))
def test_company_and_order_change_nothing(order: Sequence[int], together: int, batch: int) -> None:
    x = inputs(4)
    found: dict[int, AnyTally] = {}
    for at in range(0, 4, together):
        rows = order[at : at + together]
        found.update(zip(rows, tally_of(x, *(request(row, stop=50) for row in rows), batch=batch), strict=True))
    assert [found[row] for row in range(4)] == reference(4, 50)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 100), st.data())
def test_shards_merge_to_the_whole(n: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=5)))
    parts = tally_of(inputs(1), *(request(start=a, stop=b) for a, b in itertools.pairwise((0, *cuts, n))), batch=13)
    whole = reference(1, n)[0]
    assert merge(parts) == merge(reversed(parts)) == whole


def test_votes_beside_scores_are_the_plain_votes() -> None:
    x = inputs(2)
    for row in range(2):
        (plain,) = tally_of(x, request(row, stop=1000, kind=TallyKind.VOTES))
        (scores,) = tally_of(x, request(row, stop=1000))
        assert scores.independent_votes() == plain


def test_a_batch_holds_as_many_samples_as_it_says() -> None:
    probe, seen = Probe(), []
    Sampler(probe, batch=64, workers=2).tally(inputs(3), [request(row) for row in range(3)], progress=seen.append)
    assert (probe.largest, sum(seen)) == (64, 300)


def test_segments_are_those_of_gradients() -> None:
    for n in (10, 1000, 2001, 100_000):
        assert segments(n, TallyKind.SCORES) == segments(n, TallyKind.GRADIENTS)
    assert segments(20_001, TallyKind.SCORES) == [(0, 1000), (1000, 10_000), (10_000, 20_001)]


def answering(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]], **fields: object) -> Probe:
    class Changed(Probe):
        def votes_and_scores(self, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return change(*super().votes_and_scores(batch))

    probe = Changed()
    for name, value in fields.items():
        setattr(probe, name, value)
    return probe


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda votes, scores: (votes, 2 * scores), "more than 1"),
        (lambda votes, scores: (votes, scores - 0.5), r"outside \[0, 1\]"),
        (lambda votes, scores: (votes, np.full_like(scores, np.nan)), r"outside \[0, 1\]"),
        (lambda votes, scores: (votes, scores[:, :-1]), "scores of shape"),
        (lambda votes, scores: (votes, scores[:-1]), "scores of shape"),
        (lambda votes, scores: (votes[:-1], scores), "votes of shape"),
        (lambda votes, scores: (votes + 9, scores), "it has 4 classes"),
    ],
)
def test_a_model_that_answers_wrongly_is_named(change: object, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        Sampler(answering(change), batch=8).tally(inputs(1), [request()])  # type: ignore[arg-type]


def test_a_model_without_scores_is_told_what_to_do() -> None:
    for probe in (answering(lambda votes, scores: (votes, scores), gives_scores=False), OnlyVotes()):
        with pytest.raises(ModelError, match=r"probe gives only votes; use a model that answers with logits"):
            Sampler(probe, batch=8).tally(inputs(1), [request()])


class OnlyVotes:
    num_classes, input_shape, concurrency = CLASSES, SHAPE, 1
    digest = description = backend = "probe"

    def classify(self, batch: np.ndarray) -> np.ndarray:
        return np.zeros(len(batch), dtype=np.int64)

    def prepare_thread(self) -> None:
        pass

    def release_threads(self) -> None:
        pass


# On an accelerator, with CPU tensors standing in for it.


@pytest.mark.parametrize("nan_above", [None, 0.8])
@pytest.mark.parametrize("batch", [1, 37, 64, 4096])
def test_the_device_path_counts_like_the_host_path(nan_above: float | None, batch: int) -> None:
    torch = pytest.importorskip("torch")
    from smoothcert.models.torch_classifier import TorchDeviceClassifier

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(SIZE, CLASSES)

        def forward(self, x):  # type: ignore[no-untyped-def]
            logits = 4 * self.linear(x.flatten(1))
            return logits if nan_above is None else torch.where(x[:, :1, 0] > nan_above, torch.nan, logits)

    torch.manual_seed(0)
    module = Module()
    on_device = TorchDeviceClassifier(module, device=torch.device("cpu"), num_classes=CLASSES, input_shape=SHAPE)
    on_host = as_classifier(module, num_classes=CLASSES, input_shape=SHAPE, device="cpu")
    x = inputs(3)
    stop = 40 if batch == 1 else 500
    wanted = [request(row, start=2 * row, stop=stop) for row in range(3)]
    host = Sampler(on_host, batch=64).tally(x, wanted)
    device = Sampler(on_device, batch=batch).tally(x, wanted)
    for one, other in zip(host, device, strict=True):
        assert isinstance(one, ScoreTally)
        assert isinstance(other, ScoreTally)
        assert one.independent_votes() == other.independent_votes()
        # The two engines may round a logit differently; a score then moves to the next cell at most.
        assert np.abs(scores_of(one) - scores_of(other)).max() <= 1
        assert (np.concatenate([one.cells, other.cells]) < 2 * SCORE_CELLS).all()
    if nan_above is not None and batch > 1:
        assert all(tally.independent_votes().invalid > 0 for tally in host)


def scores_of(tally: ScoreTally) -> np.ndarray:
    return np.repeat(tally.cells, tally.hits)


def test_the_device_path_without_scores_and_with_scores_in_host_memory_only() -> None:
    torch = pytest.importorskip("torch")

    class OnDevice(Probe):
        device = torch.device("cpu")

        def classify_tensor(self, batch):  # type: ignore[no-untyped-def]
            return torch.from_numpy(self.classify(batch.numpy()))

    x, wanted = inputs(2), [request(row) for row in range(2)]
    assert Sampler(OnDevice(concurrency=1), batch=33).tally(x, wanted) == tally_of(x, *wanted)
    silent = OnDevice(concurrency=1)
    silent.gives_scores = False
    with pytest.raises(ModelError, match="gives only votes"):
        Sampler(silent, batch=33).tally(x, wanted)
