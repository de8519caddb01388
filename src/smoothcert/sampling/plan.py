"""What is to be sampled: requests, segments and shards, all pure arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from smoothcert.errors import InputError
from smoothcert.records import StreamId

_SHARD_BATCHES = 16
_MAX_SHARD_INPUTS = 64


@dataclass(frozen=True, slots=True)
class Request:
    """Samples start … stop-1 of `stream`, drawn around row `row` of the inputs with noise level `sigma`."""

    row: int
    stream: StreamId
    sigma: float
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise InputError(f"a request for samples {self.start} … {self.stop} is empty or negative")


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of rows of one batch that belongs to one request."""

    request: int
    first_row: int
    last_row: int
    counter: int


def segments(n: int) -> list[tuple[int, int]]:
    """Counter ranges [0, n) cut at 1, 2 and 5 times the powers of ten.

    The votes of each segment are stored apart, so that the tally of the first 100, 200, 500, 1000, … samples can be
    had later exactly as a run with that n would have made it.
    """
    cuts = [0, *(c * 10**e for e in range(1, 19) for c in (1, 2, 5) if c * 10**e < n), n]
    return list(itertools.pairwise(cuts))


def batch_slices(requests: Sequence[Request], *, batch: int) -> Iterator[list[Slice]]:
    """Lay the requests end to end and cut them into batches; one batch may serve many inputs."""
    current: list[Slice] = []
    used = 0
    for number, request in enumerate(requests):
        counter = request.start
        while counter < request.stop:
            take = min(batch - used, request.stop - counter)
            current.append(Slice(request=number, first_row=used, last_row=used + take, counter=counter))
            counter += take
            used += take
            if used == batch:
                yield current
                current, used = [], 0
    if current:
        yield current


def inputs_per_shard(*, samples_per_input: int, batch: int) -> int:
    """How many inputs are sampled together: enough to fill about sixteen batches, one if a single input does that
    alone.

    A pure function of the settings of the run, so a resumed run cuts the same shards.
    """
    return max(1, min(_MAX_SHARD_INPUTS, _SHARD_BATCHES * batch // samples_per_input))
