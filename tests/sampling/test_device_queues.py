"""Noise that is made one batch ahead, on a stream of its own: what must not overlap does not, and nothing waits."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from smoothcert.models.torch_classifier import TorchDeviceClassifier
from smoothcert.noise.device_noise import NoiseTargets, TorchNoise
from smoothcert.records import Noise, Stage, StreamId, TallyKind
from smoothcert.sampling import Request, Sampler, device_bench, device_queues
from smoothcert.sampling.device_queues import NoiseAhead
from smoothcert.sampling.on_device import device_counter
from smoothcert.sampling.requests import Slice, batch_slices

CPU, META = torch.device("cpu"), torch.device("meta")
SHAPE, CLASSES, SIZE = (2, 3), 3, 6


class Stream:
    """Knows what has certainly happened on every stream before its next work: a vector clock."""

    def __init__(self, name):
        self.name = name
        self.clock = {}

    def tick(self):
        self.clock[self.name] = self.clock.get(self.name, 0) + 1
        return dict(self.clock)

    def wait_event(self, event):
        for name, time in event.clock.items():
            self.clock[name] = max(self.clock.get(name, 0), time)


class Event:
    def __init__(self, log):
        self.clock, self.log = {}, log

    def record(self, stream):
        self.clock = stream.tick()

    def synchronize(self):
        self.log.append(self)


class Streams:
    """Two streams that record what could have been at the same time."""

    def __init__(self):
        self.main, self.sides, self.inside = Stream("main"), [], []
        self.waited, self.kept, self.works = [], [], []

    def new_stream(self):
        self.sides.append(Stream(f"side {len(self.sides)}"))
        return self.sides[-1]

    def current_stream(self):
        return self.inside[-1] if self.inside else self.main

    def new_event(self):
        return Event(self.waited)

    @contextlib.contextmanager
    def use(self, stream):
        self.inside.append(stream)
        yield
        self.inside.pop()

    def keep(self, tensor, stream):
        self.kept.append((tensor.data_ptr(), stream.name))

    def work(self, what, memory):
        """Note that this work on this memory starts now, on the current stream."""
        stream = self.current_stream()
        self.works.append((what, memory, stream.name, stream.tick()))

    def races(self):
        """Pairs of work on the same memory, one of them writing, that no event orders."""
        found = []
        for later, (what, memory, _, clock) in enumerate(self.works):
            for before, other, stream, passed in self.works[:later]:
                if memory == other and "write" in (what, before) and clock.get(stream, 0) < passed[stream]:
                    found.append((before, what, memory))
        return found


@pytest.fixture
def streams(monkeypatch):
    made = Streams()
    monkeypatch.setattr(device_bench, "streams_of", lambda device: made)

    class Noted(TorchNoise):
        def add_on_grid(self, out: NoiseTargets, *arguments, **options):
            made.work("write", out.plus.data_ptr() - out.plus.storage_offset() * out.plus.element_size())
            super().add_on_grid(out, *arguments, **options)

    monkeypatch.setattr(device_bench, "device_noise", lambda device, dtype: Noted())
    return made


class Reading(torch.nn.Module):
    def __init__(self, streams):
        super().__init__()
        self.streams = streams

    def forward(self, x):
        if x.data_ptr() and self.streams is not None:
            self.streams.work("read", x.data_ptr() - x.storage_offset() * x.element_size())
        return torch.stack([x.flatten(1).sum(1), 1.0 - x.flatten(1).sum(1), x.flatten(1)[:, 0] + 1.0], dim=1)


def classifier_of(module, streams=None):
    made = TorchDeviceClassifier(module, device=CPU, num_classes=CLASSES, input_shape=SHAPE)
    made._network.streams = streams  # its private copy
    return made


def inputs(count=2):
    return (np.arange(count * SIZE).reshape(count, *SHAPE) * 37 % 256 / np.float32(255)).astype(np.float32)


def requests(count=2, draws=333, kind=TallyKind.VOTES, grid=256, **options):
    return [
        Request(row, StreamId(5, row, Stage.ESTIMATION), 0.5, 0, draws, kind=kind, grid=grid, **options)
        for row in range(count)
    ]


def test_nothing_overlaps_that_must_not(streams):
    classifier = classifier_of(Reading(None), streams)
    Sampler(classifier, batch=50).tally(inputs(), requests())
    writes = [stream for what, _, stream, _ in streams.works if what == "write"]
    reads = [stream for what, _, stream, _ in streams.works if what == "read"]
    assert set(writes) == {"side 0"}
    assert reads == ["main"] * 14  # 666 samples in batches of 50
    assert len({memory for _, memory, _, _ in streams.works}) == 2
    assert streams.races() == []


def test_the_noise_of_a_batch_may_be_made_while_the_model_has_the_one_before(streams):
    Sampler(classifier_of(Reading(None), streams), batch=50).tally(inputs(), requests())
    reads = [work for work in streams.works if work[0] == "read"]
    writes = [work for work in streams.works if work[0] == "write"]
    last_read, last_write = reads[-2], writes[-1]
    assert last_write[3].get("main", 0) < last_read[3]["main"], "the last noise waits for the batch before it"
    assert last_read[3].get("side 0", 0) < last_write[3]["side 0"], "that batch waits for the last noise"


@pytest.mark.parametrize("forgotten", ["making", "reading"])
def test_a_forgotten_event_is_noticed(forgotten, streams, monkeypatch):
    """Negative control."""
    wait = Stream.wait_event

    def wait_sometimes(stream, event):
        if (stream.name == "main") is not (forgotten == "reading"):
            wait(stream, event)

    monkeypatch.setattr(Stream, "wait_event", wait_sometimes)
    Sampler(classifier_of(Reading(None), streams), batch=50).tally(inputs(), requests())
    assert streams.races() != []


def test_what_the_noise_stream_uses_is_kept_for_it(streams):
    Sampler(classifier_of(Reading(None), streams), batch=50).tally(inputs(), requests())
    kept = {memory for memory, name in streams.kept if name == "side 0"}
    assert {memory for _, memory, _, _ in streams.works} <= kept


def test_a_few_batches_wait_for_the_device(streams):
    Sampler(classifier_of(Reading(None), streams), batch=10).tally(inputs(), requests(draws=100))
    assert len(streams.waited) == 20 - device_queues._MOST_AHEAD


def test_buffers_take_turns():
    made = NoiseAhead(device_queues.streams_of(CPU), ["first", "second"], [])
    for number in range(5):
        with made.making(number) as written:
            pass
        with made.reading(number) as read:
            pass
        assert written == read == ("first", "second")[number % 2]


class Counting:
    """A classifier of tensors without data: whatever needs a value fails."""

    num_classes, input_shape, digest, backend, description, concurrency = CLASSES, SHAPE, "", "", "", 1
    device = META

    def classify_tensor(self, batch):
        assert batch.shape[1:] == SHAPE
        return torch.zeros(len(batch), dtype=torch.int64, device=META)

    def classify(self, batch):
        raise AssertionError("nothing is classified on the host")

    prepare_thread = release_threads = None


class Moves(TorchDispatchMode):
    """Records copies between devices for which the host waits."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        moved = options.get("device")
        if function is torch.ops.aten._to_copy.default and moved is not None and moved != arguments[0].device:
            self.waits += [] if options.get("non_blocking") else [str(function)]
        return function(*arguments, **options)


@pytest.mark.parametrize(
    ("noise", "kind"),
    [
        (Noise.GAUSSIAN, TallyKind.VOTES),
        (Noise.GAUSSIAN, TallyKind.PAIRS),
        (Noise.GAUSSIAN, TallyKind.GRADIENTS),
        (Noise.UNIFORM, TallyKind.VOTES),
    ],
)
def test_the_host_never_waits_for_a_batch(noise, kind):
    group = (0, 1, 0, 1) if kind is TallyKind.GRADIENTS else ()
    asked = requests(draws=40, kind=kind, grid=None, noise=noise, group=group, picks=(3, 10, 21))
    counter = device_counter(Counting(), inputs(), asked, draws=16)
    with Moves() as moves:
        for slices in batch_slices(asked, batch=16):
            counter.add(slices)
    assert moves.waits == []
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        counter.sums()


def test_waiting_would_be_noticed():
    """Negative control: reading a vote, and a copy from pageable memory."""
    bench = device_bench.DeviceBench(Counting(), inputs(), requests(grid=None), draws=4)
    bench.make(0, [Slice(0, 0, 4, 0)])
    with bench.reading(0) as copies, pytest.raises(RuntimeError, match="meta"):
        bench.votes(copies, 4).sum().item()
    with Moves() as moves:
        torch.ones(3).to(META)
    assert len(moves.waits) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_noise_is_written_in_the_type_of_the_model(dtype, monkeypatch):
    """The votes are those of float32 copies that the model converts itself."""
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE, CLASSES)).to(dtype)
    classifier = TorchDeviceClassifier(module, device=CPU, input_shape=SHAPE)
    seen, classify = [], classifier.classify_tensor
    monkeypatch.setattr(classifier, "classify_tensor", lambda batch: (seen.append(batch.dtype), classify(batch))[1])
    found = Sampler(classifier, batch=64).tally(inputs(), requests())
    assert set(seen) == {dtype}
    monkeypatch.setattr(TorchDeviceClassifier, "input_dtype", torch.float32)
    assert Sampler(classifier, batch=64).tally(inputs(), requests()) == found
    assert set(seen) == {dtype, torch.float32}
