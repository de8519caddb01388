"""Noise → base classifier → tallies.

Worker threads take batches from one queue; each makes the noise into its own buffer, classifies it and counts the
votes. Noise and classifier release the interpreter lock, so on a CPU one single-threaded worker per core keeps all
cores busy. Memory is a few batches per worker, whatever the number of samples. Which worker takes which batch changes
nothing: the content of a batch is fixed by the requests and the batch size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from smoothcert.errors import InputError
from smoothcert.models.base import BaseClassifier, DeviceClassifier, FirstLayerNoise
from smoothcert.models.devices import usable_cores
from smoothcert.noise import law_of
from smoothcert.records import AnyTally, InputArray, Noise, TallyKind
from smoothcert.sampling.counters import Counter, host_counter, tallies_of
from smoothcert.sampling.picked import PickedVote
from smoothcert.sampling.plan import (
    Request,
    Slice,
    batch_slices,
    draws_per_batch,
    samples_per_draw,
    shared_kind,
)

Progress = Callable[[int], None]
"""Told the number of samples just finished; called from worker threads."""
OnPicked = Callable[[Sequence[Request], list[PickedVote]], None]
"""Told the votes of the copies that the requests of a job picked, before its tallies are handed over."""


class Tallier(Protocol):
    """Whoever counts what a base classifier answers under noise: the threads of this process, or a cluster.

    The same requests and batch size give the same tallies whoever counts, and however many do.
    """

    def tally_each(
        self,
        inputs: InputArray,
        jobs: Iterable[Sequence[Request]],
        *,
        progress: Progress | None = None,
        on_picked: OnPicked | None = None,
    ) -> Iterator[list[AnyTally]]:
        """For each job, in order, one tally per request. Jobs share no batch; a later one may be begun early."""


class Sampler:
    """Counts what a base classifier answers under noise, in the threads of this process.

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
        """`tally` for one job after the other."""
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
        """One tally per request, in order; all requests ask for the same kind, under the same kind of noise.

        inputs: (m, *input_shape) float32; a request names a row of it.
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
        told = None if progress is None else lambda done: progress(done * samples_per_draw(kind))
        if self.classifier.concurrency == 1:
            self._work(counters[0], batches, told)
        else:
            self._work_in_threads(counters, batches, told)
        sums = [counter.sums() for counter in counters]
        if on_picked is not None:
            on_picked(requests, [vote for counter in counters for vote in counter.picked()])
        return tallies_of(requests, sums)

    def _work(self, counter: Counter, batches: _SharedBatches, progress: Progress | None) -> None:
        for slices in batches:
            counter.add(slices)
            if progress is not None:
                progress(slices[-1].last_row)

    def _work_in_threads(self, counters: Sequence[Counter], batches: _SharedBatches, progress: Progress | None) -> None:
        failures: list[BaseException] = []

        def body(counter: Counter, ended: threading.Event) -> None:
            try:
                self.classifier.prepare_thread()
                self._work(counter, batches, progress)
            except BaseException as failure:
                failures.append(failure)
                batches.close()
            finally:
                ended.set()

        # Waiting for events, not for the threads: a join that an interrupt breaks off takes its thread for ended.
        workers = [(threading.Event(), counter) for counter in counters]
        threads = [threading.Thread(target=body, args=(counter, ended), daemon=True) for ended, counter in workers]
        try:
            for thread in threads:
                thread.start()
            for ended, _ in workers:
                ended.wait()
        except BaseException:
            # An interrupt. The workers finish their batch first: a process that ends while a thread is inside the
            # model's own code is aborted.
            batches.close()
            for thread, (ended, _) in zip(threads, workers, strict=True):
                if thread.ident is not None:
                    ended.wait()
            raise
        finally:
            self.classifier.release_threads()
        if failures:
            raise failures[0]


def new_counter(classifier: BaseClassifier, inputs: InputArray, requests: Sequence[Request], *, draws: int) -> Counter:
    """Counts where the classifier computes. draws: the most that one batch will hold."""
    check_can_sample(classifier, kind=requests[0].kind, noise=requests[0].noise, grid=requests[0].grid)
    if isinstance(classifier, FirstLayerNoise):
        # One by one: a product of matrices may round a row differently beside other rows, and a cluster sends fewer.
        asked = {row: classifier.hidden(inputs[row : row + 1])[0] for row in {request.row for request in requests}}
        hidden = np.zeros((len(inputs), next(iter(asked.values())).size), dtype=np.float32)
        for row, values in asked.items():
            hidden[row] = values
        return host_counter(classifier.tail, hidden, requests, draws=draws, colour=classifier.colour)
    if isinstance(classifier, DeviceClassifier):
        from smoothcert.sampling.on_device import device_counter

        return device_counter(classifier, inputs, requests)
    return host_counter(classifier, inputs, requests, draws=draws)


def check_can_sample(classifier: BaseClassifier, *, kind: TallyKind, noise: Noise, grid: int | None = None) -> None:
    """Refuse what noise in the first layer cannot give."""
    if not isinstance(classifier, FirstLayerNoise):
        return
    if grid is not None:
        raise InputError(
            "noise that is drawn in the first layer lies on no grid: use --noise float, or leave --noise-at out"
        )
    if not law_of(noise).stays_after_linear_layer:
        raise InputError(f"{noise} noise has another law after a linear layer: omit --noise-at")
    if kind is TallyKind.GRADIENTS:
        raise InputError(
            "the certificates from gradients need the noise at the input, and here it is drawn in the first layer: "
            "leave --noise-at out, or use another certificate"
        )


class _SharedBatches:
    """An iterator several threads may draw from."""

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
