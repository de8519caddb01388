"""Cut jobs into chunks of whole batches, the same batches as in one process, and add up their sums."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from smoothcert.records import AnyTally, InputArray, IntArray, TallyKind
from smoothcert.sampling.counters import tallies_of
from smoothcert.sampling.picked import PickedVote
from smoothcert.sampling.requests import Request, Slice, batch_slices, draws_per_batch, samples_per_draw, shared_kind

_FIELDS = tuple(field.name for field in dataclasses.fields(Slice))
_values = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some whole batches of a job, with everything needed to count them.

    inputs: (m, *input_shape) float32, the rows used by `requests`. places: (slices, 1 + fields) int64, for each slice
    the number of its batch and its fields; the field `request` is a position in `requests`. draws: the most per batch.
    """

    inputs: InputArray
    requests: tuple[Request, ...]
    places: IntArray
    draws: int

    def batches(self) -> Iterator[list[Slice]]:
        """The slices of each batch."""
        for _, rows in itertools.groupby(self.places.tolist(), key=lambda row: row[0]):
            yield [Slice(**dict(zip(_FIELDS, row[1:], strict=True))) for row in rows]


@dataclass(frozen=True, slots=True)
class ChunkPiece:
    """A chunk and its place in the job. request_numbers: of its requests in the job. samples: number it draws."""

    chunk: Chunk
    request_numbers: tuple[int, ...]
    batches: int
    samples: int


class OpenJob:
    """The requests of one job while actors count them.

    batch: samples per forward pass. Batches are never cut and sums are integers, so the tallies do not depend on how
    batches are distributed.
    """

    def __init__(self, inputs: InputArray, requests: Sequence[Request], *, batch: int) -> None:
        self._inputs = inputs
        self.requests = requests
        self._kind = shared_kind(requests) if requests else TallyKind.VOTES
        self._draws = draws_per_batch(self._kind, batch=batch)
        self._batches = batch_slices(requests, batch=self._draws)
        self._totals: tuple[IntArray, ...] | None = None
        self.picked: list[PickedVote] = []
        self._pending = 0
        self._all_cut = False
        total = sum(request.stop - request.start for request in requests)
        self.number_of_batches = -(-total // self._draws)

    def pieces(self, size: Callable[[], int]) -> Iterator[ChunkPiece]:
        """Cut the job into pieces. size: called for each piece, gives its number of batches."""
        while batches := list(itertools.islice(self._batches, size())):
            self._pending += 1
            yield self._cut_piece(batches)
        self._all_cut = True

    def _cut_piece(self, batches: Sequence[Sequence[Slice]]) -> ChunkPiece:
        request_numbers = tuple(sorted({piece.request for slices in batches for piece in slices}))
        position = {number: place for place, number in enumerate(request_numbers)}
        rows = sorted({self.requests[number].row for number in request_numbers})
        requests = (self.requests[number] for number in request_numbers)
        places = np.array(
            [(number, *_values(piece)) for number, slices in enumerate(batches) for piece in slices], dtype=np.int64
        )
        column = 1 + _FIELDS.index("request")
        places[:, column] = [position[number] for number in places[:, column].tolist()]
        draws = [slices[-1].last_row for slices in batches]
        chunk = Chunk(
            inputs=np.ascontiguousarray(self._take(rows), dtype=np.float32),
            requests=tuple(dataclasses.replace(request, row=rows.index(request.row)) for request in requests),
            places=places,
            draws=max(draws),
        )
        samples = sum(draws) * samples_per_draw(self._kind)
        return ChunkPiece(chunk=chunk, request_numbers=request_numbers, batches=len(batches), samples=samples)

    def _take(self, rows: Sequence[int]) -> InputArray:
        """These rows; without a copy if they are adjacent, because one large image may take many chunks."""
        first, last = rows[0], rows[-1] + 1
        found: InputArray = self._inputs[first:last] if last - first == len(rows) else self._inputs[rows]
        return found

    def add(self, piece: ChunkPiece, sums: Sequence[IntArray], picked: Sequence[PickedVote] = ()) -> None:
        """Add the results of a piece."""
        self.picked += [dataclasses.replace(vote, request=piece.request_numbers[vote.request]) for vote in picked]
        if self._totals is None:
            self._totals = tuple(np.zeros((len(self.requests), *part.shape[1:]), dtype=np.int64) for part in sums)
        for total, part in zip(self._totals, sums, strict=True):
            total[list(piece.request_numbers)] += part
        self._pending -= 1

    @property
    def is_done(self) -> bool:
        return self._all_cut and self._pending == 0

    def tallies(self) -> list[AnyTally]:
        """One tally per request. The job must be done."""
        assert self.is_done
        if self._totals is None:  # the job has no requests
            return []
        return tallies_of(self.requests, [self._totals])
