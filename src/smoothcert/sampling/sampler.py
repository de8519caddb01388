"""Noise → base classifier → tallies.

Worker threads take batches from one queue; each fills its own buffer with noisy copies, classifies them and counts the
votes. Noise and classifier release the GIL, so on a CPU one single-threaded worker per core keeps all cores busy.
Memory is a few batches per worker, independent of the number of samples. The content of a batch is fixed by the
requests and the batch size, so it does not matter which worker takes which batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from smoothcert.errors import InputError
from smoothcert.models.base import BaseClassifier, is_first_layer_noise, is_on_device
from smoothcert.models.devices import usable_cores
from smoothcert.noise import law_of
from smoothcert.records import AnyTally, InputArray, Noise, TallyKind
from smoothcert.sampling.counters import Counter, host_counter, tallies_of
from smoothcert.sampling.picked import PickedVote
from smoothcert.sampling.requests import (
    Request,
    Slice,
    batch_slices,
    draws_per_batch,
    samples_per_draw,
    shared_kind,
)
from smoothcert.sampling.worker_threads import start_work

Progress = Callable[[int], None]
"""Called from worker threads with the number of samples just finished."""
OnPicked = Callable[[Sequence[Request], list[PickedVote]], None]
"""Called with the requests of a job and the votes of their picked copies, before its tallies are returned."""


class Tallier(Protocol):
    """Counts the answers of a base classifier under noise: in the threads of this process, or on a cluster.

    The same requests and batch size give the same tallies, independent of the number of workers.
    """

    def tally_each(
        self,
        inputs: InputArray,
        jobs: Iterable[Sequence[Request]],
        *,
        progress: Progress | None = None,
        on_picked: OnPicked | None = None,
    ) -> Iterator[list[AnyTally]]:
        """For each job, in order, one tally per request. Jobs do not share batches; later jobs may be started early."""


class Sampler:
    """Counts the answers of a base classifier under noise, in the threads of this process.

    batch: samples classified at once. workers: threads; None means one per core, or one on an accelerator.
    """

    def __init__(self, classifier: BaseClassifier, *, batch: int, workers: int | None = None) -> None:
        if batch < 1:
            raise InputError(f"batch={batch} must be at least 1")
        if workers is not None and workers < 1:
            raise InputError(f"workers={workers} must be at least 1")
        self.classifier = classifier
        self.batch = batch
        self.workers = min(workers or usable_cores(), classifier.concurrency)

    def tally_each(
        self,
        inputs: InputArray,
        jobs: Iterable[Sequence[Request]],
        *,
        progress: Progress | None = None,
        on_picked: OnPicked | None = None,
    ) -> Iterator[list[AnyTally]]:
        """Call `tally` for each job."""
        for requests in jobs:
            yield self.tally(inputs, requests, progress=progress, on_picked=on_picked)

    def tally(
        self,
        inputs: InputArray,
        requests: Sequence[Request],
        *,
        progress: Progress | None = None,
        on_picked: OnPicked | None = None,
    ) -> list[AnyTally]:
        """One tally per request, in order; all requests have the same kind of tally and of noise.

        inputs: (m, *input_shape) float32.
        """
        if not requests:
            return []
        kind = shared_kind(requests)
        draws = draws_per_batch(kind, batch=self.batch)
        inputs = np.ascontiguousarray(inputs, dtype=np.float32)
        total = sum(request.stop - request.start for request in requests)
        workers = max(1, min(self.workers, -(-total // draws)))
        counters = [new_counter(self.classifier, inputs, requests, draws=min(draws, total)) for _ in range(workers)]
        batches = _SharedBatches(batch_slices(requests, batch=draws))
        on_draws = None if progress is None else lambda draws: progress(draws * samples_per_draw(kind))
        if self.classifier.concurrency == 1:
            self._work(counters[0], batches, on_draws)
        elif workers == 1 and (in_calling_thread := getattr(self.classifier, "in_calling_thread", None)) is not None:
            with in_calling_thread():  # starting a thread for a single batch takes longer than a small model
                self._work(counters[0], batches, on_draws)
        else:
            self._work_in_threads(counters, batches, on_draws)
        sums = [counter.sums() for counter in counters]
        if on_picked is not None:
            on_picked(requests, [vote for counter in counters for vote in counter.picked_votes()])
        return tallies_of(requests, sums)

    def _work(self, counter: Counter, batches: _SharedBatches, progress: Progress | None) -> None:
        for slices in batches:
            counter.add(slices)
            if progress is not None:
                progress(slices[-1].last_row)

    def _work_in_threads(self, counters: Sequence[Counter], batches: _SharedBatches, progress: Progress | None) -> None:
        failures: list[BaseException] = []

        def work(counter: Counter) -> None:
            try:
                self.classifier.prepare_thread()
                self._work(counter, batches, progress)
            except BaseException as failure:
                failures.append(failure)
                batches.close()

        ends: list[threading.Event] = []
        try:
            for counter in counters:
                ends.append(start_work(partial(work, counter)))
            for ended in ends:
                ended.wait()
        except BaseException:
            # An interrupt. Let the workers finish their batch: a process that exits while a thread runs the model's
            # native code is aborted.
            batches.close()
            for ended in ends:
                ended.wait()
            raise
        finally:
            self.classifier.release_threads()
        if failures:
            raise failures[0]


def new_counter(classifier: BaseClassifier, inputs: InputArray, requests: Sequence[Request], *, draws: int) -> Counter:
    """A counter on the device of the classifier. draws: the largest number in one batch."""
    check_can_sample(classifier, kind=requests[0].kind, noise=requests[0].noise, grid=requests[0].grid)
    if is_first_layer_noise(classifier):
        # One by one: a matrix product may round a row differently in another batch, and a cluster sends fewer rows.
        needed = {row: classifier.hidden(inputs[row : row + 1])[0] for row in {request.row for request in requests}}
        hidden = np.zeros((len(inputs), next(iter(needed.values())).size), dtype=np.float32)
        for row, values in needed.items():
            hidden[row] = values
        return host_counter(classifier.tail, hidden, requests, draws=draws, colour=classifier.colour)
    if is_on_device(classifier):
        from smoothcert.sampling.on_device import device_counter

        return device_counter(classifier, inputs, requests, draws=draws)
    return host_counter(classifier, inputs, requests, draws=draws)


def check_can_sample(classifier: BaseClassifier, *, kind: TallyKind, noise: Noise, grid: int | None = None) -> None:
    """Raise an InputError for tallies and noise that are not supported with noise in the first layer."""
    if not is_first_layer_noise(classifier):
        return
    if grid is not None:
        raise InputError(
            "noise that is drawn in the first layer lies on no grid: use --noise float, or leave --noise-at out"
        )
    if not law_of(noise).stays_after_linear_layer:
        raise InputError(f"{noise} noise has another law after a linear layer: leave --noise-at out")
    if kind is TallyKind.GRADIENTS:
        raise InputError(
            "certificates from gradients need the noise at the input, but it is drawn in the first layer: leave "
            "--noise-at out, or use another certificate"
        )


class _SharedBatches:
    """An iterator that several threads may use."""

    def __init__(self, batches: Iterator[list[Slice]]) -> None:
        self._batches = batches
        self._lock = threading.Lock()
        self._closed = False

    def __iter__(self) -> _SharedBatches:
        return self

    def __next__(self) -> list[Slice]:
        with self._lock:
            if self._closed:
                raise StopIteration
            return next(self._batches)

    def close(self) -> None:
        with self._lock:
            self._closed = True
