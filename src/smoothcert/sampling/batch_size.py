"""Choosing the batch size by a short measurement: the best one depends on the model and the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from smoothcert.errors import BatchTooLargeError
from smoothcert.models.base import BaseClassifier
from smoothcert.records import Noise, Stage, StreamId
from smoothcert.sampling.requests import Request
from smoothcert.sampling.sampler import Sampler

_clock = time.perf_counter

_CANDIDATES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_LARGEST_BATCH_BYTES = 256 * 2**20
_USUAL = 128
_SHARE_OF_THE_WORK = 0.03
_LEAST_SECONDS, _LEAST_AGAIN, _MOST_SECONDS = 0.25, 0.1, 4.0
"""The least is spent once: with a fast model it is enough to measure every size that matters. Later choices spend less,
on the sizes that were close to the best.
"""
_SHORT_TURN, _LONG_TURN = 0.004, 0.1
_TURNS = 24
_LARGEST_STEP = 16
_INPUTS_SHARING = 8
_LONG_BATCH_SECONDS = 0.25
_HARDLY_FASTER = 1.05
_CONTENDERS = 0.5, 0.7, 0.9
"""The shares of the best rate that get a size measured once more, in each round."""
_GOOD_ENOUGH = 0.98
"""The smallest batch that reaches this share of the best rate is chosen."""


def measure_batch(
    classifier: BaseClassifier,
    input_shape: tuple[int, ...],
    *,
    samples: int,
    workers: int | None = None,
    noise: Noise = Noise.GAUSSIAN,
    shared: bool = False,
    grid: int | None = None,
) -> int:
    """The batch size at which that many votes under this noise are sampled fastest on this machine."""
    tuner = BatchTuner(classifier, input_shape, workers=workers, noise=noise, shared=shared, grid=grid)
    return tuner.choose(samples=samples)


class BatchTuner:
    """Measures batch sizes, and chooses one by the number of samples that will be drawn.

    The rates are kept. So a second choice, for more samples, measures only what the first one had no time for.
    """

    def __init__(
        self,
        classifier: BaseClassifier,
        input_shape: tuple[int, ...],
        *,
        workers: int | None = None,
        noise: Noise = Noise.GAUSSIAN,
        shared: bool = False,
        grid: int | None = None,
    ) -> None:
        row_bytes = 4 * max(1, int(np.prod(input_shape)))
        self._candidates = [b for b in _CANDIDATES if b * row_bytes <= _LARGEST_BATCH_BYTES] or [1]
        self._usual = min(_USUAL, self._candidates[-1])
        self._classifier = classifier
        self._input_shape = input_shape
        self._requested_workers = workers
        self._workers = Sampler(classifier, batch=self._usual, workers=workers).workers
        stream = StreamId(seed=0, index=0, stage=Stage.SELECTION)
        self._example = Request(0, stream, sigma=1.0, start=0, stop=1, noise=noise, shared=shared, grid=grid)
        self._rates: dict[int, float] = {}
        self._passed_the_best = False

    def choose(self, *, samples: int) -> int:
        """The batch size for that many samples; 128 if there is too little work to measure anything.

        The measurement takes 3 % of the time that the samples need, at most a few seconds. The first one may take a
        quarter of a second in any case. Sizes are measured upwards, two turns each, while that is faster, then the best
        ones again. The best turn of each counts: other programs can only make a measurement slower.
        """
        if samples > self._usual:
            self._explore(samples)
        if self._usual not in self._rates and not self._passed_the_best:
            return self._usual
        useful = {batch: rate / self._idling(batch, samples) for batch, rate in self._rates.items()}
        return min(batch for batch, rate in useful.items() if rate >= _GOOD_ENOUGH * max(useful.values()))

    def _idling(self, batch: int, samples: int) -> float:
        """The factor by which sampling takes longer because, at its end, the other workers wait for the last batch.

        The wait is between nothing and one batch for each of them; half of it is expected.
        """
        return 1.0 + batch * (self._workers - 1) / (2 * samples)

    def _explore(self, samples: int) -> None:
        """Measure as many sizes as the time allows."""
        if not self._rates:
            self._measure(self._candidates[0], _SHORT_TURN)
        share = _SHARE_OF_THE_WORK * samples / max(self._rates.values())
        least = _LEAST_SECONDS if len(self._rates) == 1 else _LEAST_AGAIN
        seconds = max(least, min(_MOST_SECONDS, share))
        turn = min(_LONG_TURN, max(_SHORT_TURN, seconds / _TURNS))
        for batch in self._plan(deadline=_clock() + seconds):
            try:
                self._measure(batch, turn)
            except BatchTooLargeError:
                self._candidates = [size for size in self._candidates if size < batch]
                self._usual = min(self._usual, max(self._rates))

    def measure(self, batch: int, *, seconds: float) -> float:
        """Samples per second at this batch size, in one turn of about so many seconds."""
        sampler = Sampler(self._classifier, batch=batch, workers=self._requested_workers)
        return _rate(sampler, self._input_shape, self._example, seconds)

    def _measure(self, batch: int, seconds: float) -> None:
        self._rates[batch] = max(self.measure(batch, seconds=seconds), self._rates.get(batch, 0.0))

    def _plan(self, *, deadline: float) -> Iterator[int]:
        """The sizes to measure, one by one; each depends on the rates found before."""
        yield from self._climb(deadline)
        for share in _CONTENDERS:
            best = max(self._rates.values())
            contenders = [size for size in sorted(self._rates) if self._rates[size] >= share * best]
            if len(contenders) > 1:
                yield from (size for size in contenders if self._fits(size, deadline))

    def _climb(self, deadline: float) -> Iterator[int]:
        """Sizes that are not measured yet, upwards, until two in a row gain nothing, or one that takes long.

        The usual size is passed in any case, if there is time: there may be a plateau below it.
        """
        best, misses = 0.0, 0
        for size in tuple(self._candidates):
            if size not in self._rates or size == self._candidates[0]:
                for _ in range(2):
                    if size in self._candidates and self._fits(size, deadline):
                        yield size
            if size not in self._rates:
                return
            rate = self._rates[size]
            misses = 0 if rate >= _HARDLY_FASTER * best else misses + 1
            takes_long = size * self._workers > _LONG_BATCH_SECONDS * rate
            if (misses >= 2 and size > self._usual) or (misses and takes_long):
                self._passed_the_best = True
                return
            best = max(best, rate)

    def _fits(self, batch: int, deadline: float) -> bool:
        """Whether there is time to measure this size: to warm up, and once more."""
        rate = self._rates[max(size for size in self._rates if size <= batch)]
        return _clock() + 2 * batch * self._workers * _inputs_of(self._example) / rate <= deadline


def _inputs_of(example: Request) -> int:
    return _INPUTS_SHARING if example.shared else 1


def _rate(sampler: Sampler, input_shape: tuple[int, ...], example: Request, seconds: float) -> float:
    """Samples per second with requests like the example, after a warm-up round."""
    count = _inputs_of(example)
    inputs = np.zeros((count, *input_shape), dtype=np.float32)
    streams = [replace(example.stream, index=index) for index in range(count)]
    draws = sampler.batch * sampler.workers

    def draw() -> None:
        requests = [replace(example, row=row, stream=stream, stop=draws) for row, stream in enumerate(streams)]
        sampler.tally(inputs, requests)

    draw()
    while True:
        began = _clock()
        draw()
        elapsed = _clock() - began
        if elapsed >= seconds / 2:  # long enough: starting the threads hardly counts
            return draws * count / elapsed
        draws *= int(min(_LARGEST_STEP, max(2.0, seconds / elapsed)))
