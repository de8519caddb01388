"""Planning what to sample: requests, segments, batches and shards. Pure arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from smoothcert.errors import InputError
from smoothcert.noise import law_of
from smoothcert.records import Noise, StreamId, TallyKind

_SHARD_BATCHES = 16
_MAX_SHARD_INPUTS = 64
_INPUTS_SHARING = 32

SHARED_INDEX = 2**32 - 1
"""The index of the stream that inputs draw from when they share their noise."""


@dataclass(frozen=True, slots=True)
class Request:
    """Draws start … stop-1 of `stream`, added to row `row` of the inputs with noise level `sigma`.

    kind: what is counted. With PAIRS every draw ε is used twice, at x+ε and x-ε. With GRADIENTS start and stop are
    even, and `group` holds the group of each class and, last, of samples without a finite answer. With SCORES `label`
    is the class whose scores are counted. shared: all inputs draw from one stream; samples of one input are still
    independent, results of different inputs are not. grid: number of levels of the input in [0, 1], for noise in whole
    steps of it; None for noise in float32. picks: numbers of the noisy copies whose votes are also returned one by one,
    in ascending order: the number of the draw, or with PAIRS 2·draw for x+ε and 2·draw + 1 for x-ε.
    """

    row: int
    stream: StreamId
    sigma: float
    start: int
    stop: int
    kind: TallyKind = TallyKind.VOTES
    group: tuple[int, ...] = ()
    label: int = 0
    noise: Noise = Noise.GAUSSIAN
    shared: bool = False
    grid: int | None = None
    picks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise InputError(f"a request for samples {self.start} … {self.stop} is empty or negative")
        if self.kind is TallyKind.GRADIENTS and (self.start % 2 or self.stop % 2):
            raise InputError(f"a request for samples {self.start} … {self.stop} splits a pair")
        supported = law_of(self.noise).tallies
        if self.kind not in supported:
            raise InputError(
                f"{self.kind} cannot be counted under {self.noise} noise: no certificate for this noise uses them. "
                f"Count {' or '.join(kind for kind in TallyKind if kind in supported)}"
            )

    @property
    def noise_stream(self) -> StreamId:
        """The stream that the noise is drawn from."""
        return replace(self.stream, index=SHARED_INDEX) if self.shared else self.stream

    @property
    def tally_fields(self) -> dict[str, Any]:
        """The fields that every kind of tally of this request has."""
        return {"stream": self.stream, "sigma": self.sigma, "ranges": ((self.start, self.stop),)}

    @property
    def samples(self) -> int:
        """The number of noisy copies that the model classifies."""
        return (self.stop - self.start) * samples_per_draw(self.kind)


def samples_per_draw(kind: TallyKind) -> int:
    return 2 if kind is TallyKind.PAIRS else 1


def shared_kind(requests: Sequence[Request]) -> TallyKind:
    """The kind of tally of these requests; an InputError if they cannot share batches."""
    kind, noise = requests[0].kind, requests[0].noise
    if any(request.kind is not kind for request in requests):
        raise InputError("requests for different kinds of tallies cannot share batches")
    if any(request.noise is not noise for request in requests):
        raise InputError("requests for different kinds of noise cannot share batches")
    if any(request.grid != requests[0].grid for request in requests):
        raise InputError("requests for noise on different grids cannot share batches")
    if any(request.shared is not requests[0].shared for request in requests):
        raise InputError("requests for shared noise and for separate noise cannot share batches")
    return kind


def draws_per_batch(kind: TallyKind, *, batch: int) -> int:
    """The number of draws whose samples fill a batch. A pair of draws is never split."""
    if kind is TallyKind.PAIRS:
        return max(1, batch // 2)
    return max(2, batch // 2 * 2) if kind is TallyKind.GRADIENTS else batch


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive rows of one batch that belong to one request."""

    request: int
    first_row: int
    last_row: int
    counter: int


def segments(n: int, kind: TallyKind = TallyKind.VOTES) -> list[tuple[int, int]]:
    """Ranges of draws that make n samples, cut at 1, 2 and 5 times the powers of ten samples.

    The votes of each segment are stored separately, so the tally of the first 100, 200, 500, 1000, … samples is exactly
    that of a run with this n. Gradients and scores take more space and are cut at the powers of ten from 1000 on.
    """
    steps, least = ((1,), 1000) if kind in (TallyKind.GRADIENTS, TallyKind.SCORES) else ((1, 2, 5), 10)
    cuts = [0, *(c * 10**e for e in range(1, 19) for c in steps if least <= c * 10**e < n), n]
    return [(a // samples_per_draw(kind), b // samples_per_draw(kind)) for a, b in itertools.pairwise(cuts)]


def batch_slices(requests: Sequence[Request], *, batch: int) -> Iterator[list[Slice]]:
    """Cut the requests into batches of at most `batch` draws; one batch may serve many inputs.

    With shared noise, all slices of a batch have the same draws, and batches with the same draws are adjacent, so the
    noise is made once for many inputs.
    """
    return _batch_shared(requests, batch) if requests and requests[0].shared else _batch_in_order(requests, batch)


def _batch_in_order(requests: Sequence[Request], batch: int) -> Iterator[list[Slice]]:
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


def _batch_shared(requests: Sequence[Request], batch: int) -> Iterator[list[Slice]]:
    alike: dict[tuple[StreamId, int, int], list[int]] = {}
    for number, request in enumerate(requests):
        alike.setdefault((request.noise_stream, request.start, request.stop), []).append(number)
    for (_, start, stop), numbers in alike.items():
        for counter in range(start, stop, batch):
            take = min(batch, stop - counter)
            at_once = batch // take
            for first in range(0, len(numbers), at_once):
                yield [
                    Slice(request=number, first_row=place * take, last_row=(place + 1) * take, counter=counter)
                    for place, number in enumerate(numbers[first : first + at_once])
                ]


def inputs_per_shard(*, samples_per_input: int, batch: int, shared: bool = False) -> int:
    """The number of inputs sampled together: enough to fill about sixteen batches, and at least 32 with shared noise.

    A pure function of the settings of the run, so a resumed run has the same shards.
    """
    least = _INPUTS_SHARING if shared else 1
    return max(least, min(_MAX_SHARD_INPUTS, _SHARD_BATCHES * batch // samples_per_input))
