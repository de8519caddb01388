"""Pairs x+ε, x-ε and votes with their noise: recomputed one sample at a time, independent of batches and workers."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.errors import InputError, ModelError
from smoothcert.noise import unit_noise
from smoothcert.records import AnyTally, GradientTally, Noise, PairTally, Stage, StreamId, Tally, TallyKind, merge
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.sampling import Request, Sampler, segments

SHAPE = (2, 3)
SIZE = 6
CLASSES = 4
SIGMAS = (0.3, 0.7)  # neither is a float32: float32(0.3) is above 0.3, float32(0.7) below 0.7
ALONE = tuple(range(CLASSES + 1))
ONE_AGAINST_ALL = (1, 1, 0, 1, 1)
KINDS = (TallyKind.VOTES, TallyKind.PAIRS, TallyKind.GRADIENTS)


def votes_of(batch: np.ndarray) -> np.ndarray:
    """A deterministic classifier of single rows; some of its answers are invalid."""
    flat = batch.reshape(len(batch), -1).astype(np.float64)
    logits = np.stack([np.sin(3 * k + flat @ np.arange(1, SIZE + 1)) for k in range(CLASSES)], axis=1)
    return np.where(np.abs(flat[:, 0] - 0.5) > 0.45, CLASSES, logits.argmax(axis=1))


class Probe:
    """A base classifier for any number of threads that remembers the largest batch it saw."""

    num_classes = CLASSES
    input_shape: tuple[int, ...] = SHAPE
    digest = "probe"
    description = "probe"
    backend = "numpy"

    def __init__(self, concurrency: int = 8, answer: Callable[[np.ndarray], np.ndarray] = votes_of) -> None:
        self.concurrency = concurrency
        self.largest = 0
        self._answer = answer

    def classify(self, batch: np.ndarray) -> np.ndarray:
        self.largest = max(self.largest, len(batch))
        return self._answer(batch)

    def prepare_thread(self) -> None:
        pass

    def release_threads(self) -> None:
        pass


def inputs(m: int) -> np.ndarray:
    return np.random.default_rng(0).random((m, *SHAPE), dtype=np.float32)


def request(
    kind: TallyKind, row: int = 0, *, start: int = 0, stop: int = 100, group: tuple[int, ...] = ONE_AGAINST_ALL
) -> Request:
    return Request(
        row=row,
        stream=StreamId(2**40 + 3, 10 * row, Stage.ESTIMATION),
        sigma=SIGMAS[row % 2],
        start=start,
        stop=stop,
        kind=kind,
        group=group if kind is TallyKind.GRADIENTS else (),
    )


def tally_of(x: np.ndarray, *wanted: Request, batch: int = 16, workers: int | None = None) -> list[AnyTally]:
    return Sampler(Probe(), batch=batch, workers=workers).tally(x, wanted)


def one_vote(noisy: np.ndarray) -> int:
    return int(votes_of(noisy.reshape(1, *SHAPE))[0])


def drawn(wanted: Request) -> list[np.ndarray]:
    """The standard normals of a request, one draw at a time."""
    return [
        unit_noise(Noise.GAUSSIAN, wanted.stream, start=counter, count=1, size=SIZE)[0]
        for counter in range(wanted.start, wanted.stop)
    ]


def noise_of(z: np.ndarray, wanted: Request) -> np.ndarray:
    """sigma · z, rounded once to float32."""
    return np.array([float(value) * wanted.sigma for value in z], dtype=np.float32)


def votes_by_hand(x: np.ndarray, wanted: Request) -> Tally:
    counts = np.zeros(CLASSES + 1, dtype=np.int64)
    for z in drawn(wanted):
        counts[one_vote(x.ravel() + noise_of(z, wanted))] += 1
    return Tally(wanted.stream, wanted.sigma, counts[:-1], int(counts[-1]), ((wanted.start, wanted.stop),))


def pairs_by_hand(x: np.ndarray, wanted: Request) -> PairTally:
    both, first_only, second_only = np.zeros((3, CLASSES + 1), dtype=np.int64)
    for z in drawn(wanted):
        noise = noise_of(z, wanted)
        plus, minus = one_vote(x.ravel() + noise), one_vote(x.ravel() - noise)
        if plus == minus:
            both[plus] += 1
        else:
            first_only[plus] += 1
            second_only[minus] += 1
    return PairTally(wanted.stream, wanted.sigma, both, first_only, second_only, ((wanted.start, wanted.stop),))


def gradients_by_hand(x: np.ndarray, wanted: Request) -> GradientTally:
    votes = votes_by_hand(x, wanted)
    groups = max(wanted.group) + 1
    sums = np.zeros((2, groups, SIZE), dtype=np.int64)
    products = np.zeros(groups, dtype=np.int64)
    normals = drawn(wanted)
    for first, second in zip(normals[::2], normals[1::2], strict=True):
        fell = [wanted.group[one_vote(x.ravel() + noise_of(z, wanted))] for z in (first, second)]
        for half, z in enumerate((first, second)):
            for e in range(SIZE):
                sums[half, fell[half], e] += round(float(z[e]) / GRADIENT_UNIT)
        if fell[0] == fell[1]:
            exact = sum(float(a) * float(b) for a, b in zip(first, second, strict=True))
            products[fell[0]] += round(exact / GRADIENT_UNIT)
    return GradientTally(
        wanted.stream, wanted.sigma, votes.counts, votes.invalid, np.array(wanted.group), sums, products, votes.ranges
    )


BY_HAND: dict[TallyKind, Callable[[np.ndarray, Request], AnyTally]] = {
    TallyKind.VOTES: votes_by_hand,
    TallyKind.PAIRS: pairs_by_hand,
    TallyKind.GRADIENTS: gradients_by_hand,
}


@pytest.mark.parametrize("kind", KINDS)
def test_tallies_are_those_of_the_definition(kind: TallyKind) -> None:
    """Two derivations: the sampler, and a loop over samples written from the definition."""
    x = inputs(3)
    wanted = [request(kind, row, start=4 * row, stop=100 + 10 * row) for row in range(3)]
    assert tally_of(x, *wanted) == [BY_HAND[kind](x[one.row], one) for one in wanted]


@pytest.mark.parametrize("group", [ALONE, ONE_AGAINST_ALL, (0, 0, 0, 0, 0), (2, 0, 2, 1, 0)])
def test_classes_may_be_grouped_in_any_way(group: tuple[int, ...]) -> None:
    x = inputs(1)
    wanted = request(TallyKind.GRADIENTS, stop=60, group=group)
    assert tally_of(x, wanted) == [gradients_by_hand(x[0], wanted)]


def test_far_counters_of_a_stream_are_reached() -> None:
    """Counters beyond 32 bits use another word of the generator."""
    x = inputs(1)
    for kind in KINDS:
        wanted = request(kind, start=2**32 - 10, stop=2**32 + 10)
        assert tally_of(x, wanted, batch=6) == [BY_HAND[kind](x[0], wanted)]


@functools.cache
def reference(kind: TallyKind, m: int, n: int) -> list[AnyTally]:
    wanted = [request(kind, row, stop=n) for row in range(m)]
    return Sampler(Probe(concurrency=1), batch=2).tally(inputs(m), wanted)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    m=st.integers(1, 4),
    pairs=st.integers(1, 60),
    batch=st.one_of(st.sampled_from([1, 2, 3, 5]), st.integers(1, 300)),
    workers=st.integers(1, 4),
)
def test_batch_size_and_workers_change_nothing(kind: TallyKind, m: int, pairs: int, batch: int, workers: int) -> None:
    wanted = [request(kind, row, stop=2 * pairs) for row in range(m)]
    assert tally_of(inputs(m), *wanted, batch=batch, workers=workers) == reference(kind, m, 2 * pairs)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.permutations(range(4)), st.integers(1, 4), st.integers(1, 40))
def test_company_and_order_change_nothing(kind: TallyKind, order: Sequence[int], together: int, batch: int) -> None:
    """Tallies do not depend on the number of inputs in a call, nor on their order."""
    x = inputs(4)
    found: dict[int, AnyTally] = {}
    for at in range(0, 4, together):
        rows = order[at : at + together]
        found.update(zip(rows, tally_of(x, *(request(kind, row, stop=50) for row in rows), batch=batch), strict=True))
    assert [found[row] for row in range(4)] == reference(kind, 4, 50)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.integers(2, 100), st.data())
def test_shards_merge_to_the_whole(kind: TallyKind, pairs: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, pairs - 1), max_size=5)))
    edges = [2 * cut for cut in (0, *cuts, pairs)]
    x = inputs(1)
    parts = tally_of(x, *(request(kind, start=a, stop=b) for a, b in itertools.pairwise(edges)), batch=13)
    whole = reference(kind, 1, 2 * pairs)[0]
    assert merge(parts) == whole
    assert merge(reversed(parts)) == whole
    assert functools.reduce(lambda one, other: one + other, parts) == whole


@pytest.mark.parametrize("group", [ALONE, ONE_AGAINST_ALL])
def test_votes_of_every_kind_are_the_plain_votes(group: tuple[int, ...]) -> None:
    """A stream has one vote for each counter, for every kind of tally."""
    x = inputs(2)
    for row in range(2):
        (plain,) = tally_of(x, request(TallyKind.VOTES, row, stop=2000))
        (gradients,) = tally_of(x, request(TallyKind.GRADIENTS, row, stop=2000, group=group))
        (pairs,) = tally_of(x, request(TallyKind.PAIRS, row, stop=2000))
        assert gradients.independent_votes() == plain
        assert pairs.independent_votes() == plain
        assert (plain.n, gradients.n, pairs.n) == (2000, 2000, 4000)


def test_answers_that_are_none_are_a_class_of_their_own() -> None:
    x = inputs(1)
    (votes,) = tally_of(x, request(TallyKind.VOTES, stop=4000))
    (pairs,) = tally_of(x, request(TallyKind.PAIRS, stop=4000))
    (gradients,) = tally_of(x, request(TallyKind.GRADIENTS, stop=4000, group=ALONE))
    assert isinstance(votes, Tally)
    assert isinstance(pairs, PairTally)
    assert isinstance(gradients, GradientTally)
    assert 1000 < votes.invalid < 2000
    assert int(pairs.both[-1] + pairs.first_only[-1]) == votes.invalid == gradients.invalid
    assert pairs.both[-1] > 0
    assert pairs.first_only[-1] > 0
    assert pairs.second_only[-1] > 0
    # Nothing of the noise is lost: over all groups it adds up to that of all samples.
    normals = unit_noise(Noise.GAUSSIAN, gradients.stream, start=0, count=4000, size=SIZE).astype(np.float64)
    units = np.rint(normals / GRADIENT_UNIT).astype(np.int64)
    np.testing.assert_array_equal(gradients.sums.sum(axis=1), [units[0::2].sum(axis=0), units[1::2].sum(axis=0)])
    assert np.abs(gradients.sums[:, CLASSES]).sum() > 0


def test_a_model_that_never_answers() -> None:
    x = inputs(1)
    never = Sampler(Probe(answer=lambda batch: np.full(len(batch), CLASSES)), batch=7)
    (pairs,) = never.tally(x, [request(TallyKind.PAIRS, stop=50)])
    (gradients,) = never.tally(x, [request(TallyKind.GRADIENTS, stop=50)])
    assert isinstance(pairs, PairTally)
    assert isinstance(gradients, GradientTally)
    assert pairs.both.tolist() == [0] * CLASSES + [50]
    assert gradients.invalid == 50
    assert not gradients.sums[:, ONE_AGAINST_ALL[2]].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_model_that_answers_wrongly_is_named(kind: TallyKind, concurrency: int) -> None:
    for answer, words in (
        (lambda batch: np.full(len(batch), CLASSES + 1), "it has 4 classes"),
        (lambda batch: np.full(len(batch), -1), "it has 4 classes"),
        (lambda batch: np.zeros(len(batch) + 1, dtype=np.int64), "shape"),
    ):
        with pytest.raises(ModelError, match=words):
            Sampler(Probe(concurrency, answer), batch=8).tally(inputs(1), [request(kind)])


def test_a_batch_holds_as_many_samples_as_it_says() -> None:
    """A pair is two samples, so a batch holds half as many draws; the progress counts samples."""
    for kind, samples in ((TallyKind.VOTES, 300), (TallyKind.PAIRS, 600), (TallyKind.GRADIENTS, 300)):
        probe, seen = Probe(), []
        Sampler(probe, batch=64, workers=2).tally(
            inputs(3), [request(kind, row) for row in range(3)], progress=seen.append
        )
        assert probe.largest == 64
        assert sum(seen) == samples


def test_a_pair_is_never_cut() -> None:
    probe = Probe()
    Sampler(probe, batch=1).tally(inputs(1), [request(TallyKind.GRADIENTS)])
    assert probe.largest == 2  # the least that holds a pair
    for start, stop in ((0, 9), (1, 10), (3, 5)):
        with pytest.raises(InputError, match="splits a pair"):
            request(TallyKind.GRADIENTS, start=start, stop=stop)


def test_kinds_do_not_mix() -> None:
    x = inputs(1)
    with pytest.raises(InputError, match="cannot share batches"):
        tally_of(x, request(TallyKind.PAIRS), request(TallyKind.VOTES))
    found = [tally_of(x, request(kind))[0] for kind in KINDS]
    for one, other in itertools.permutations(found, 2):
        with pytest.raises(InputError, match="do not merge"):
            merge([one, other])
        with pytest.raises(TypeError):
            one + other
        assert one != other


@given(st.integers(1, 5 * 10**6), st.sampled_from(KINDS))
def test_segments_cover_every_sample_once(half: int, kind: TallyKind) -> None:
    n = 2 * half
    cut = segments(n, kind)
    draws = 2 if kind is TallyKind.PAIRS else 1
    assert (cut[0][0], cut[-1][1] * draws) == (0, n)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(cut))
    assert all(start < stop for start, stop in cut)
    for prefix in (1000, 10_000, 100_000, 1_000_000):
        assert prefix >= n or any(stop * draws == prefix for _, stop in cut)
    assert kind is not TallyKind.GRADIENTS or all(bound % 2 == 0 for span in cut for bound in span)


# On an accelerator, with CPU tensors standing in for it.


def on_both_paths(nan_above: float | None = None) -> tuple[object, object]:
    """One torch module as a classifier in host memory and as one on a device."""
    torch = pytest.importorskip("torch")
    from smoothcert.models import as_classifier
    from smoothcert.models.base import DeviceClassifier
    from smoothcert.models.torch_classifier import TorchDeviceClassifier

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(SIZE, CLASSES)

        def forward(self, x):  # type: ignore[no-untyped-def]
            logits = self.linear(x.flatten(1))
            return logits if nan_above is None else torch.where(x[:, :1, 0] > nan_above, torch.nan, logits)

    torch.manual_seed(0)
    module = Module()
    on_device = TorchDeviceClassifier(module, device=torch.device("cpu"), num_classes=CLASSES, input_shape=SHAPE)
    on_host = as_classifier(module, num_classes=CLASSES, input_shape=SHAPE, device="cpu")
    assert isinstance(on_device, DeviceClassifier)
    assert not isinstance(on_host, DeviceClassifier)
    return on_host, on_device


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nan_above", [None, 0.8])
@pytest.mark.parametrize("batch", [1, 37, 64, 4096])
def test_the_device_path_counts_like_the_host_path(kind: TallyKind, nan_above: float | None, batch: int) -> None:
    on_host, on_device = on_both_paths(nan_above)
    x = inputs(3)
    stop = 40 if batch == 1 else 500
    wanted = [request(kind, row, start=2 * row, stop=stop, group=(0, 2, 1, 2, 2)) for row in range(3)]
    host = Sampler(on_host, batch=64).tally(x, wanted)
    assert Sampler(on_device, batch=batch).tally(x, wanted) == host
    if nan_above is not None and batch > 1:
        assert all(tally.independent_votes().invalid > 0 for tally in host)


@pytest.mark.parametrize("kind", KINDS)
def test_the_device_path_sees_the_same_bits(kind: TallyKind) -> None:
    """Votes depend on every bit of the input, so every rounding error is detected."""
    torch = pytest.importorskip("torch")

    def from_bits(batch: np.ndarray) -> np.ndarray:
        return batch.view(np.int32).reshape(len(batch), -1).sum(axis=1, dtype=np.int64) % (CLASSES + 1)

    class OnDevice(Probe):
        device = torch.device("cpu")

        def classify_tensor(self, batch):  # type: ignore[no-untyped-def]
            return batch.view(torch.int32).flatten(1).sum(dim=1) % (CLASSES + 1)

    x = inputs(2)
    wanted = [request(kind, row, stop=300, group=ALONE) for row in range(2)]
    host = Sampler(Probe(answer=from_bits), batch=50).tally(x, wanted)
    assert Sampler(OnDevice(concurrency=1), batch=64).tally(x, wanted) == host
    assert all(tally.independent_votes().counts.min() > 20 for tally in host)


@pytest.mark.parametrize("kind", KINDS)
def test_the_device_path_reports_stray_votes(kind: TallyKind) -> None:
    torch = pytest.importorskip("torch")

    class Stray(Probe):
        device = torch.device("cpu")

        def classify_tensor(self, batch: object) -> object:
            return torch.full((len(batch),), 99)  # type: ignore[arg-type]

    with pytest.raises(ModelError, match="outside"):
        Sampler(Stray(concurrency=1), batch=8).tally(inputs(1), [request(kind, stop=20)])


# Memory, at the size of a CIFAR image.

LARGE = 3072


@functools.cache
def peak_bytes(n: int, *, batch: int) -> int:
    """Peak of what Python and numpy allocate while n samples are drawn for a gradient tally."""
    probe = Probe(answer=lambda noisy: (noisy[:, 0] > 0.5).astype(np.int64))
    probe.input_shape = (LARGE,)
    wanted = dataclasses.replace(request(TallyKind.GRADIENTS), stop=n)
    sampler = Sampler(probe, batch=batch, workers=1)
    x = np.full((1, LARGE), 0.5, dtype=np.float32)
    sampler.tally(x, [dataclasses.replace(wanted, stop=2)])
    tracemalloc.start()
    (tally,) = sampler.tally(x, [wanted])
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tally.n == n
    assert probe.largest == batch
    return largest


def test_memory_of_gradients_is_a_few_batches() -> None:
    """40000 samples of 3072 coordinates take 490 MB in float32; what is held at once is some copies of one batch."""
    batch = 64
    floats = 4 * batch * LARGE
    sums = 8 * 2 * 2 * LARGE
    assert peak_bytes(40_000, batch=batch) < 12 * floats + 10 * sums


def test_memory_of_gradients_does_not_grow_with_n() -> None:
    assert peak_bytes(40_000, batch=64) < 1.05 * peak_bytes(10_000, batch=64) + 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_batch_size_changes_nothing_for_large_inputs_either(kind: TallyKind) -> None:
    """Scalar products of long vectors are added in pieces, which must not depend on the batch size."""
    probe = Probe(answer=lambda noisy: (noisy[:, :9].sum(axis=1) > 4.5).astype(np.int64))
    x = np.full((1, LARGE), 0.5, dtype=np.float32)
    found = [Sampler(probe, batch=batch).tally(x, [request(kind, stop=300)]) for batch in (2, 7, 64, 1000)]
    assert all(tallies == found[0] for tallies in found)
