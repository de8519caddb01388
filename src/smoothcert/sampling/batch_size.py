"""Choosing the batch size by a short measurement: the best one depends on the model and the machine."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from smoothcert.errors import BatchTooLargeError
from smoothcert.models.base import BaseClassifier
from smoothcert.records import Noise, Stage, StreamId
from smoothcert.sampling.requests import Request
from smoothcert.sampling.sampler import Sampler

_CANDIDATES = (16, 32, 64, 128, 256, 512, 1024, 2048)
_LARGEST_BATCH_BYTES = 256 * 2**20
_ROUNDS = 4
_SECONDS_PER_TURN = 0.1
_SECONDS_IN_ALL = 6.0
_SHARE_OF_THE_WORK = 0.05
_INPUTS_SHARING = 8
_USUAL = 128
_LONG_BATCH_SECONDS = 0.25
_HARDLY_FASTER = 1.05
_GOOD_ENOUGH = 0.98
"""The smallest batch that reaches this share of the best rate is chosen: it wastes least at the end of a shard."""


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
    """The batch size at which sampling votes under this noise is fastest on this machine.

    samples: the number that will be drawn. The measurement takes a twentieth of the time they need, at most a few
    seconds; if that is too short, the default of 128 is returned. The candidates are measured in turn, several times,
    and the best time of each counts: other programs can only make a measurement slower.
    """
    row_bytes = 4 * max(1, int(np.prod(input_shape)))
    candidates = [b for b in _CANDIDATES if b * row_bytes <= _LARGEST_BATCH_BYTES] or [1]
    usual = min(_USUAL, candidates[-1])
    threads = Sampler(classifier, batch=usual, workers=workers).workers
    rates: dict[int, float] = {}

    stream = StreamId(seed=0, index=0, stage=Stage.SELECTION)
    example = Request(0, stream, sigma=1.0, start=0, stop=1, noise=noise, shared=shared, grid=grid)

    def measure(batch: int) -> None:
        rate = _rate(Sampler(classifier, batch=batch, workers=workers), input_shape, example)
        rates[batch] = max(rate, rates.get(batch, 0.0))

    measure(candidates[0])
    if usual * threads < _LONG_BATCH_SECONDS * rates[candidates[0]]:
        measure(usual)
    seconds = min(_SECONDS_IN_ALL, _SHARE_OF_THE_WORK * samples / max(rates.values()))
    if seconds < 2 * _SECONDS_PER_TURN * len(candidates):
        return usual
    deadline = time.perf_counter() + seconds
    for batch in candidates * _ROUNDS:
        if any(_is_pointless(rates, smaller, threads=threads) for smaller in candidates if smaller < batch):
            continue
        try:
            measure(batch)
        except BatchTooLargeError:
            break
        if time.perf_counter() > deadline:
            break
    return _smallest_good(rates)


def _is_pointless(rates: dict[int, float], batch: int, *, threads: int) -> bool:
    """Whether a batch takes long and is hardly faster than one of half its size: larger ones need not be tried."""
    if batch not in rates or batch // 2 not in rates:
        return False
    long = batch * threads > _LONG_BATCH_SECONDS * rates[batch]
    return long and rates[batch] < _HARDLY_FASTER * rates[batch // 2]


def _smallest_good(rates: dict[int, float]) -> int:
    best = max(rates.values())
    return min(batch for batch, rate in rates.items() if rate >= _GOOD_ENOUGH * best)


def _rate(sampler: Sampler, input_shape: tuple[int, ...], example: Request) -> float:
    """Samples per second with requests like the example, after a warm-up round."""
    count = _INPUTS_SHARING if example.shared else 1
    inputs = np.zeros((count, *input_shape), dtype=np.float32)
    streams = [replace(example.stream, index=index) for index in range(count)]
    draws = sampler.batch * sampler.workers

    def draw() -> None:
        requests = [replace(example, row=row, stream=stream, stop=draws) for row, stream in enumerate(streams)]
        sampler.tally(inputs, requests)

    draw()
    finished, began = 0, time.perf_counter()
    while True:
        draw()
        finished += draws
        elapsed = time.perf_counter() - began
        if elapsed >= _SECONDS_PER_TURN:
            return finished * count / elapsed
        draws = min(draws * 2, max(draws, int(finished / elapsed * _SECONDS_PER_TURN)))
