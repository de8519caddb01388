"""Noise shared between inputs: the same draws for all inputs, made once."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smoothcert.sampling.noisy_copies as noisy_copies
from smoothcert.errors import InputError
from smoothcert.models import as_classifier
from smoothcert.noise import scale_noise, unit_noise
from smoothcert.records import Noise, Stage, StreamId, TallyKind, merge
from smoothcert.sampling import Request, Sampler, inputs_per_shard, segments
from smoothcert.sampling.requests import SHARED_INDEX, batch_slices

SHAPE, CLASSES = (2, 3), 4
INPUTS = np.random.default_rng(0).random((5, *SHAPE), dtype=np.float32)


def logits(batch):
    flat = batch.reshape(len(batch), -1).astype(np.float64)
    return np.stack([np.sin(3 * k + flat @ np.arange(1, 7)) for k in range(CLASSES)], axis=1)


CLASSIFIER = as_classifier(logits, num_classes=CLASSES, input_shape=SHAPE)


def requests(rows, ranges, **settings):
    return [
        Request(row, StreamId(3, 10 * row, Stage.ESTIMATION), 0.5, start, stop, shared=True, **settings)
        for row in rows
        for start, stop in ranges
    ]


@given(
    batch=st.integers(1, 40),
    rows=st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=3, unique=True).map(sorted),
)
def test_batches_hold_every_draw_of_every_request_once_and_one_block_of_draws_each(batch, rows, cuts):
    asked = requests(rows, list(itertools.pairwise([0, *cuts])))
    batches = list(batch_slices(asked, batch=batch))
    seen = [[] for _ in asked]
    for slices in batches:
        assert slices[0].first_row == 0
        assert slices[-1].last_row <= batch
        assert all(a.last_row == b.first_row for a, b in itertools.pairwise(slices))
        assert len({(s.counter, s.last_row - s.first_row) for s in slices}) == 1
        for piece in slices:
            seen[piece.request].extend(range(piece.counter, piece.counter + piece.last_row - piece.first_row))
    assert [sorted(found) for found in seen] == [list(range(r.start, r.stop)) for r in asked]
    blocks = [(slices[0].counter, slices[0].last_row - slices[0].first_row) for slices in batches]
    assert len(list(itertools.groupby(blocks))) == len(set(blocks)), "batches with the same draws follow each other"


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("batch", [7, 64])
@pytest.mark.parametrize("noise", [noise for noise in Noise if noise.sampled])
def test_the_votes_are_those_of_one_noise_added_to_every_input(noise, batch, workers):
    n = 230
    stream = StreamId(3, SHARED_INDEX, Stage.ESTIMATION)
    added = scale_noise(unit_noise(noise, stream, start=0, count=n, size=6), sigma=0.5).reshape(n, *SHAPE)
    asked = requests(range(5), segments(n), noise=noise)
    tallies = iter(Sampler(CLASSIFIER, batch=batch, workers=workers).tally(INPUTS, asked))
    for row in range(5):
        found = merge([next(tallies) for _ in segments(n)])
        votes = logits(INPUTS[row] + added).argmax(axis=1)
        assert found.counts.tolist() == np.bincount(votes, minlength=CLASSES).tolist()
        assert found.stream.index == 10 * row


@pytest.mark.parametrize("kind", [TallyKind.PAIRS, TallyKind.GRADIENTS, TallyKind.SCORES])
def test_other_tallies_are_those_of_noise_of_their_own_from_the_shared_stream(kind):
    settings = {"kind": kind, "group": (0, 1, 1, 1, 1) if kind is TallyKind.GRADIENTS else ()}
    shared = requests(range(3), [(0, 100)], **settings)
    alone = [replace(r, shared=False, stream=replace(r.stream, index=SHARED_INDEX)) for r in shared]
    sampler = Sampler(CLASSIFIER, batch=32, workers=2)
    for one, request in zip(sampler.tally(INPUTS, shared), alone, strict=True):
        (expected,) = sampler.tally(INPUTS, [request])
        assert replace(one, stream=expected.stream) == expected


@settings(max_examples=20, deadline=None)
@given(sigmas=st.lists(st.floats(0.1, 2.0), min_size=2, max_size=5))
def test_every_input_may_have_its_own_sigma(sigmas):
    asked = [replace(r, sigma=sigma) for r, sigma in zip(requests(range(5), [(0, 50)]), sigmas, strict=False)]
    together = Sampler(CLASSIFIER, batch=16, workers=1).tally(INPUTS, asked)
    assert together == [Sampler(CLASSIFIER, batch=16, workers=1).tally(INPUTS, [one])[0] for one in asked]


def test_the_noise_of_a_block_is_made_once_for_all_inputs(monkeypatch):
    made = []
    usual = noisy_copies.add_noise

    def counted(noise, out, *arguments, **settings):
        made.append(len(out))
        usual(noise, out, *arguments, **settings)

    monkeypatch.setattr(noisy_copies, "add_noise", counted)
    Sampler(CLASSIFIER, batch=50, workers=1).tally(INPUTS, requests(range(5), [(0, 200)]))
    assert made == [50] * 4


def test_shared_and_own_noise_do_not_mix():
    first, second = requests(range(2), [(0, 10)])
    with pytest.raises(InputError, match="shared noise"):
        Sampler(CLASSIFIER, batch=8).tally(INPUTS, [first, replace(second, shared=False)])


def test_shards_hold_enough_inputs_to_make_sharing_worth_it():
    assert inputs_per_shard(samples_per_input=100_000, batch=256) == 1
    assert inputs_per_shard(samples_per_input=100_000, batch=256, shared=True) == 32
    assert inputs_per_shard(samples_per_input=100, batch=1024, shared=True) == 64
