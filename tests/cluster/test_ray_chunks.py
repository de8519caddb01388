"""Jobs cut into chunks: the same batches as in one process, and the same sums, however they are dealt out."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_models import digits_by_brightness
from smoothcert.cluster.ray_chunks import ChunkPiece, OpenJob
from smoothcert.cluster.ray_engine import Pace
from smoothcert.models import as_classifier
from smoothcert.records import Noise, Stage, StreamId, TallyKind
from smoothcert.sampling import Request, Sampler
from smoothcert.sampling.requests import batch_slices
from smoothcert.sampling.sampler import new_counter

CLASSIFIER = as_classifier(digits_by_brightness, num_classes=10, input_shape=(64,))
INPUTS = np.random.default_rng(0).random((5, 64), dtype=np.float32)


def requests_for(
    kind: TallyKind, ranges: list[tuple[int, int, int]], noise: Noise = Noise.GAUSSIAN, *, shared: bool = False
) -> list[Request]:
    """ranges: row, first draw, number of draws; gradients in whole pairs."""
    double = 2 if kind is TallyKind.GRADIENTS else 1
    return [
        Request(
            row=row,
            stream=StreamId(seed=7, index=row, stage=Stage.ESTIMATION),
            sigma=0.25,
            start=double * start,
            stop=double * (start + draws),
            kind=kind,
            group=tuple(int(place == row) for place in range(11)),
            label=row,
            noise=noise,
            shared=shared,
        )
        for row, start, draws in ranges
    ]


def counted(piece: ChunkPiece) -> tuple[np.ndarray, ...]:
    """What an actor does."""
    chunk = piece.chunk
    counter = new_counter(CLASSIFIER, chunk.inputs, chunk.requests, draws=chunk.draws)
    for slices in chunk.batches():
        counter.add(slices)
    return counter.sums()


@given(
    kind=st.sampled_from(TallyKind),
    ranges=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99), st.integers(1, 60)), min_size=1, max_size=6),
    batch=st.integers(1, 40),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
    shared=st.booleans(),
)
def test_chunks_come_to_the_tallies_of_one_process(
    kind: TallyKind,
    ranges: list[tuple[int, int, int]],
    batch: int,
    sizes: list[int],
    order: random.Random,
    shared: bool,
) -> None:
    requests = requests_for(kind, ranges, shared=shared)
    next_size = itertools.cycle(sizes)
    job = OpenJob(INPUTS, requests, batch=batch)
    pieces = list(job.pieces(lambda: next(next_size)))
    assert sum(piece.samples for piece in pieces) == sum(request.samples for request in requests)
    order.shuffle(pieces)
    for piece in pieces:
        assert not job.is_done
        job.add(piece, counted(piece))
    assert job.is_done
    assert job.tallies() == Sampler(CLASSIFIER, batch=batch).tally(INPUTS, requests)


def test_uniform_noise_too() -> None:
    requests = requests_for(TallyKind.VOTES, [(0, 0, 90), (3, 10, 33)], Noise.UNIFORM)
    job = OpenJob(INPUTS, requests, batch=16)
    for piece in job.pieces(lambda: 2):
        job.add(piece, counted(piece))
    assert job.tallies() == Sampler(CLASSIFIER, batch=16).tally(INPUTS, requests)


def test_a_chunk_holds_the_batches_and_nothing_else() -> None:
    requests = requests_for(TallyKind.VOTES, [(4, 0, 10), (1, 5, 30), (4, 10, 8), (2, 0, 20)])
    job = OpenJob(INPUTS, requests, batch=8)
    whole = [
        [(requests[piece.request], piece.first_row, piece.last_row, piece.counter) for piece in slices]
        for slices in batch_slices(requests, batch=8)
    ]
    found = []
    for piece in job.pieces(lambda: 3):
        chunk = piece.chunk
        assert len(chunk.requests) == len(piece.request_numbers) <= len(requests)
        assert len(chunk.inputs) == len({request.row for request in chunk.requests})
        for place, number in enumerate(piece.request_numbers):
            assert (chunk.inputs[chunk.requests[place].row] == INPUTS[requests[number].row]).all()
        found += [
            [
                (requests[piece.request_numbers[each.request]], each.first_row, each.last_row, each.counter)
                for each in slices
            ]
            for slices in chunk.batches()
        ]
    assert found == whole


def test_rows_that_are_adjacent_are_not_copied() -> None:
    """Fails where every chunk copies its inputs: an image of 600 kB may take thousands of chunks."""
    requests = [Request(row, StreamId(0, row, Stage.ESTIMATION), 0.5, 0, 16) for row in range(3)]
    job = OpenJob(INPUTS, requests, batch=8)
    chunks = [piece.chunk for piece in job.pieces(lambda: 2)]
    assert len(chunks) == 3
    for row, chunk in enumerate(chunks):
        assert np.shares_memory(chunk.inputs, INPUTS)
        assert np.array_equal(chunk.inputs, INPUTS[row : row + 1])


def test_a_job_without_requests_is_done_at_once() -> None:
    job = OpenJob(INPUTS, [], batch=8)
    assert list(job.pieces(lambda: 1)) == []
    assert job.is_done
    assert job.tallies() == []


@pytest.mark.parametrize(
    ("seconds", "batches", "actors", "size"),
    [
        (0.01, 10_000, 2, 100),  # a second of work
        (0.01, 100, 10, 5),  # a share for everybody, twice
        (0.001, 100, 50, 50),  # not less than a twentieth of a second
        (3.0, 100, 2, 1),  # never less than a batch
        (0.01, 10_000, 400, 40),  # so much that a chunk can be sent to every actor meanwhile
        (0.01, 10_000, 4000, 400),  # which may be more than a second
    ],
)
def test_how_much_is_dealt_out_at_once(seconds: float, batches: int, actors: int, size: int) -> None:
    pace = Pace()
    assert pace.chunk_size(batches=batches, actors=actors) == 1  # nothing is known yet
    pace.add(seconds=7 * seconds, batches=7)
    assert pace.chunk_size(batches=batches, actors=actors) == size
