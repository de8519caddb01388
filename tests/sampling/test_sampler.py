"""Counting votes: correct for every batch size, number of workers and order; bounded memory; clear errors."""

import itertools
import threading
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.errors import BatchTooLargeError, InputError, ModelError
from smoothcert.models import as_classifier
from smoothcert.noise import unit_noise
from smoothcert.records import Noise, Stage, StreamId, merge
from smoothcert.sampling import Request, Sampler, inputs_per_shard, measure_batch, segments
from smoothcert.sampling.requests import batch_slices

SHAPE = (2, 3)
CLASSES = 4


def logits(batch: np.ndarray) -> np.ndarray:
    """An arbitrary deterministic classifier that computes each row by itself."""
    flat = batch.reshape(len(batch), -1).astype(np.float64)
    return np.stack([np.sin(3 * k + flat @ np.arange(1, 7)) for k in range(CLASSES)], axis=1)


class Probe:
    """A base classifier that runs in any number of threads and remembers the largest batch it saw."""

    num_classes = CLASSES
    input_shape = SHAPE
    digest = "probe"
    description = "probe"
    backend = "numpy"

    def __init__(self, concurrency: int = 8, answer: Callable[[np.ndarray], np.ndarray] | None = None) -> None:
        self.concurrency = concurrency
        self.largest = 0
        self.prepared: list[int] = []
        self.released = 0
        self._answer = answer or (lambda batch: logits(batch).argmax(axis=1))

    def classify(self, batch: np.ndarray) -> np.ndarray:
        self.largest = max(self.largest, len(batch))
        return self._answer(batch)

    def prepare_thread(self) -> None:
        self.prepared.append(threading.get_ident())

    def release_threads(self) -> None:
        self.released += 1


def requests(m: int, n: int, *, seed: int = 3) -> list[Request]:
    return [
        Request(row=i, stream=StreamId(seed, 10 * i, Stage.ESTIMATION), sigma=0.5, start=0, stop=n) for i in range(m)
    ]


def inputs(m: int) -> np.ndarray:
    return np.random.default_rng(0).random((m, *SHAPE), dtype=np.float32)


def test_counts_are_those_of_the_definition() -> None:
    """Two derivations: the sampler, and a loop over samples written from the definition."""
    x = inputs(3)
    tallies = Sampler(Probe(), batch=16).tally(x, requests(3, 100))
    for i, tally in enumerate(tallies):
        noise = unit_noise(Noise.GAUSSIAN, StreamId(3, 10 * i, Stage.ESTIMATION), start=0, count=100, size=6)
        noisy = x[i].reshape(-1) + np.float32(0.5) * noise
        expected = np.bincount(logits(noisy.reshape(-1, *SHAPE)).argmax(axis=1), minlength=CLASSES)
        np.testing.assert_array_equal(tally.counts, expected)
        assert (tally.n, tally.invalid) == (100, 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 200), st.integers(1, 300), st.integers(1, 4))
def test_batch_size_and_workers_change_nothing(m: int, n: int, batch: int, workers: int) -> None:
    x = inputs(m)
    reference = Sampler(Probe(concurrency=1), batch=7).tally(x, requests(m, n))
    assert Sampler(Probe(), batch=batch, workers=workers).tally(x, requests(m, n)) == reference


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 300), st.data())
def test_shards_merge_to_the_whole(n: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=5)))
    edges = [0, *cuts, n]
    stream = StreamId(9, 4, Stage.ESTIMATION)
    sampler = Sampler(Probe(concurrency=1), batch=13)
    x = inputs(1)
    whole = sampler.tally(x, [Request(row=0, stream=stream, sigma=0.5, start=0, stop=n)])[0]
    parts = sampler.tally(
        x,
        [Request(row=0, stream=stream, sigma=0.5, start=a, stop=b) for a, b in itertools.pairwise(edges)],
    )
    assert merge(parts) == whole
    assert merge(reversed(parts)) == whole


def test_small_requests_share_batches() -> None:
    probe = Probe(concurrency=1)
    Sampler(probe, batch=64).tally(inputs(20), requests(20, 10))
    assert probe.largest == 64


def test_memory_does_not_grow_with_n() -> None:
    """Peak of what Python and numpy allocate, for a hundred times as many samples."""

    def peak(n: int) -> int:
        probe = Probe(answer=lambda batch: np.zeros(len(batch), dtype=np.int64))
        sampler = Sampler(probe, batch=32, workers=2)
        tracemalloc.start()
        sampler.tally(inputs(1), requests(1, n))
        largest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert probe.largest == 32
        return largest

    peak(1000)
    assert peak(100_000) < 1.5 * peak(1000) + 20_000


def test_every_worker_thread_is_prepared() -> None:
    probe = Probe()
    Sampler(probe, batch=8, workers=3).tally(inputs(1), requests(1, 400))
    assert len(probe.prepared) == 3
    assert threading.get_ident() not in probe.prepared
    assert probe.released == 1


def test_invalid_votes_are_counted_apart() -> None:
    def answer(batch: np.ndarray) -> np.ndarray:
        return np.where(batch.reshape(len(batch), -1)[:, 0] > 0.5, CLASSES, 1)

    (tally,) = Sampler(Probe(answer=answer), batch=50).tally(np.full((1, *SHAPE), 0.5, np.float32), requests(1, 1000))
    assert 400 < tally.invalid < 600
    assert tally.counts[1] + tally.invalid == 1000


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (lambda batch: np.full(len(batch), CLASSES + 1), "it has 4 classes"),
        (lambda batch: np.full(len(batch), -1), "it has 4 classes"),
        (lambda batch: np.zeros(len(batch) + 1, dtype=np.int64), "shape"),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_model_that_answers_wrongly_is_named(answer: Callable[..., np.ndarray], match: str, concurrency: int) -> None:
    with pytest.raises(ModelError, match=match):
        Sampler(Probe(concurrency, answer), batch=8).tally(inputs(1), requests(1, 100))


def test_a_failing_model_stops_all_workers() -> None:
    calls = 0

    def answer(batch: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        raise RuntimeError("the model broke")

    with pytest.raises(RuntimeError, match="the model broke"):
        Sampler(Probe(answer=answer), batch=1, workers=4).tally(inputs(1), requests(1, 10_000))
    assert calls <= 4


def test_progress_adds_up() -> None:
    seen: list[int] = []
    Sampler(Probe(), batch=16, workers=2).tally(inputs(3), requests(3, 33), progress=seen.append)
    assert sum(seen) == 99


def test_device_path_counts_like_the_host_path() -> None:
    """The accelerator code on CPU tensors: same noise, same votes, same counts."""
    torch = pytest.importorskip("torch")
    from smoothcert.models.base import DeviceClassifier
    from smoothcert.models.torch_classifier import TorchDeviceClassifier

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, CLASSES))
    on_device = TorchDeviceClassifier(module, device=torch.device("cpu"), num_classes=CLASSES, input_shape=SHAPE)
    assert isinstance(on_device, DeviceClassifier)
    on_host = as_classifier(module, num_classes=CLASSES, input_shape=SHAPE, device="cpu")
    assert not isinstance(on_host, DeviceClassifier)
    x = inputs(4)
    assert Sampler(on_device, batch=50).tally(x, requests(4, 333)) == Sampler(on_host, batch=64).tally(
        x, requests(4, 333)
    )


def test_device_path_reports_stray_votes() -> None:
    torch = pytest.importorskip("torch")

    class Stray(Probe):
        device = torch.device("cpu")

        def classify_tensor(self, batch: object) -> object:
            return torch.full((len(batch),), 99)  # type: ignore[arg-type]

    with pytest.raises(ModelError, match="outside"):
        Sampler(Stray(concurrency=1), batch=8).tally(inputs(1), requests(1, 20))


@given(st.integers(1, 10**7))
def test_segments_cover_everything_once(n: int) -> None:
    cut = segments(n)
    assert cut[0][0] == 0
    assert cut[-1][1] == n
    assert all(a[1] == b[0] for a, b in itertools.pairwise(cut))
    assert all(start < stop for start, stop in cut)
    for prefix in (100, 1000, 10_000, 100_000):
        assert prefix >= n or any(stop == prefix for _, stop in cut)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 40))
def test_batches_are_full_but_the_last(sizes: list[int], batch: int) -> None:
    wanted = [
        Request(row=0, stream=StreamId(0, i, Stage.SELECTION), sigma=1.0, start=0, stop=s) for i, s in enumerate(sizes)
    ]
    batches = list(batch_slices(wanted, batch=batch))
    fills = [b[-1].last_row for b in batches]
    assert all(fill == batch for fill in fills[:-1])
    assert sum(fills) == sum(sizes)


def test_shard_sizes() -> None:
    assert inputs_per_shard(samples_per_input=100_000, batch=128) == 1
    assert inputs_per_shard(samples_per_input=100, batch=128) == 20
    assert inputs_per_shard(samples_per_input=1, batch=2048) == 64


def test_measured_batch_is_one_of_the_candidates() -> None:
    assert measure_batch(Probe(), SHAPE, samples=100) == 128  # too little work to be worth a measurement
    assert measure_batch(Probe(), SHAPE, samples=10**9) in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@pytest.mark.parametrize("bad", [{"batch": 0}, {"batch": 8, "workers": 0}])
def test_bad_settings(bad: dict[str, int]) -> None:
    with pytest.raises(InputError):
        Sampler(Probe(), **bad)


def test_empty_requests() -> None:
    assert Sampler(Probe(), batch=4).tally(inputs(1), []) == []
    with pytest.raises(InputError):
        Request(row=0, stream=StreamId(0, 0, Stage.SELECTION), sigma=1.0, start=5, stop=5)


def test_a_batch_too_large_for_memory_is_not_chosen() -> None:
    def answer(batch: np.ndarray) -> np.ndarray:
        if len(batch) > 256:
            raise BatchTooLargeError("no room")
        return np.zeros(len(batch), dtype=np.int64)

    assert measure_batch(Probe(answer=answer), SHAPE, samples=10**9) <= 256


def test_a_slow_model_is_not_asked_for_large_batches_when_size_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand samples a second at any size: batches above 256 take long, and are not tried."""
    from smoothcert.sampling import batch_size

    asked: list[int] = []

    def rate(sampler: Sampler, *_: object) -> float:
        asked.append(sampler.batch)
        return 1000.0

    monkeypatch.setattr(batch_size, "_rate", rate)
    assert measure_batch(Probe(), SHAPE, samples=10**9, workers=1) == 16
    assert max(asked) == 256


def test_a_model_whose_calls_cost_more_than_their_rows_gets_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second a call: the smallest batch takes long, but every larger one gains."""
    from smoothcert.sampling import batch_size

    monkeypatch.setattr(batch_size, "_rate", lambda sampler, *_: sampler.batch / 0.5)
    assert measure_batch(Probe(), SHAPE, samples=10**9, workers=1) == 4096
