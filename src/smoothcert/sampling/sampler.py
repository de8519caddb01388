"""Noise → base classifier → tallies.

Worker threads take batches from one queue; each makes the noise into its own buffer, classifies it and counts the
votes. Noise and classifier release the interpreter lock, so on a CPU one single-threaded worker per core keeps all
cores busy. Memory is a few batches per worker, whatever the number of samples. Which worker takes which batch changes
nothing: the content of a batch is fixed by the requests and the batch size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from smoothcert.errors import InputError, ModelError
from smoothcert.models.base import BaseClassifier, DeviceClassifier
from smoothcert.models.devices import usable_cores
from smoothcert.noise import add_gaussian
from smoothcert.records import InputArray, IntArray, Tally
from smoothcert.sampling.plan import Request, Slice, batch_slices

Progress = Callable[[int], None]
"""Told the number of samples just finished; called from worker threads."""


class Sampler:
    """Counts the votes of a base classifier under noise.

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

    def tally(
        self, inputs: InputArray, requests: Sequence[Request], *, progress: Progress | None = None
    ) -> list[Tally]:
        """One tally per request, in order.

        inputs: (m, *input_shape) float32; a request names a row of it.
        """
        if not requests:
            return []
        inputs = np.ascontiguousarray(inputs, dtype=np.float32)
        batches = _SharedBatches(batch_slices(requests, batch=self.batch))
        counts = self._count(inputs, requests, batches, progress)
        return [
            Tally(
                stream=request.stream,
                sigma=request.sigma,
                counts=row[:-1],
                invalid=int(row[-1]),
                ranges=((request.start, request.stop),),
            )
            for request, row in zip(requests, counts, strict=True)
        ]

    def _count(
        self,
        inputs: InputArray,
        requests: Sequence[Request],
        batches: _SharedBatches,
        progress: Progress | None,
    ) -> IntArray:
        """(len(requests), num_classes + 1) votes, the last column holding the invalid ones."""
        total = sum(request.stop - request.start for request in requests)
        workers = max(1, min(self.workers, -(-total // self.batch)))
        rows = min(self.batch, total)
        counters = [self._new_counter(inputs, requests, rows) for _ in range(workers)]
        if self.classifier.concurrency == 1:
            self._work(counters[0], batches, progress)
        else:
            self._work_in_threads(counters, batches, progress)
        total_counts: IntArray = np.sum([counter.counts() for counter in counters], axis=0)
        return total_counts

    def _new_counter(self, inputs: InputArray, requests: Sequence[Request], rows: int) -> VoteCounter:
        if isinstance(self.classifier, DeviceClassifier):
            from smoothcert.sampling.on_device import DeviceVoteCounter

            return DeviceVoteCounter(self.classifier, inputs, requests)
        return HostVoteCounter(self.classifier, inputs, requests, rows=rows)

    def _work(self, counter: VoteCounter, batches: _SharedBatches, progress: Progress | None) -> None:
        for slices in batches:
            counter.add(slices)
            if progress is not None:
                progress(slices[-1].last_row)

    def _work_in_threads(
        self, counters: Sequence[VoteCounter], batches: _SharedBatches, progress: Progress | None
    ) -> None:
        failures: list[BaseException] = []

        def body(counter: VoteCounter, ended: threading.Event) -> None:
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


class VoteCounter(Protocol):
    """Votes gathered by one worker."""

    def add(self, slices: Sequence[Slice], /) -> None:
        """Draw, classify and count one batch."""

    def counts(self) -> IntArray:
        """(requests, num_classes + 1) so far."""


class HostVoteCounter:
    """Counts in host memory; the buffers are made once and used for every batch."""

    def __init__(
        self, classifier: BaseClassifier, inputs: InputArray, requests: Sequence[Request], *, rows: int
    ) -> None:
        self._classifier = classifier
        self._requests = requests
        self._flat_inputs = inputs.reshape(len(inputs), -1)
        self._noisy = np.empty((rows, *inputs.shape[1:]), dtype=np.float32)
        self._flat_noisy = self._noisy.reshape(rows, -1)
        self._counts = np.zeros((len(requests), classifier.num_classes + 1), dtype=np.int64)

    def add(self, slices: Sequence[Slice]) -> None:
        for piece in slices:
            request = self._requests[piece.request]
            add_gaussian(
                self._flat_noisy[piece.first_row : piece.last_row],
                self._flat_inputs[request.row],
                request.stream,
                sigma=request.sigma,
                start=piece.counter,
            )
        used = slices[-1].last_row
        votes = check_votes(self._classifier.classify(self._noisy[:used]), used, self._classifier.num_classes)
        for piece in slices:
            self._counts[piece.request] += np.bincount(
                votes[piece.first_row : piece.last_row], minlength=self._counts.shape[1]
            )

    def counts(self) -> IntArray:
        return self._counts


def check_votes(votes: IntArray, expected: int, num_classes: int) -> IntArray:
    """The votes, if they are what a base classifier must return."""
    if votes.shape != (expected,):
        raise ModelError(
            f"the model returned votes of shape {votes.shape} for {expected} inputs; one class each was expected"
        )
    if expected and not 0 <= int(votes.min()) <= int(votes.max()) <= num_classes:
        raise ModelError(
            f"the model voted for classes {int(votes.min())} … {int(votes.max())}; {num_classes} classes were announced"
        )
    return votes


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
