"""Noise in steps of a grid: recounted one sample at a time, for every kind of tally and every batch size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.models import as_classifier
from smoothcert.noise import from_grid, grid_draws, grid_law
from smoothcert.records import GradientTally, Noise, PairTally, Stage, StreamId, Tally, TallyKind
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.sampling import Request, Sampler, measure_batch

SHAPE, SIZE, CLASSES = (2, 3), 6, 4
LEVELS = 256
PLACES = np.random.default_rng(1).integers(0, LEVELS, size=(3, SIZE)).astype(np.int32)
INPUTS = from_grid(PLACES, LEVELS).reshape(3, *SHAPE)
WEIGHTS = np.random.default_rng(0).normal(size=(SIZE, CLASSES))


def scores(batch: np.ndarray) -> np.ndarray:
    flat = batch.reshape(len(batch), -1).astype(np.float64)
    return np.sin(3 * flat @ WEIGHTS)


CLASSIFIER = as_classifier(scores, input_shape=SHAPE, num_classes=CLASSES)


def request(row: int, kind: TallyKind = TallyKind.VOTES, *, sigma: float = 0.3, n: int = 100, **more) -> Request:
    return Request(
        row=row,
        stream=StreamId(7, 10 + row, Stage.ESTIMATION),
        sigma=sigma,
        start=0,
        stop=n,
        kind=kind,
        group=(0, 1, 1, 1, 1) if kind is TallyKind.GRADIENTS else (),
        grid=LEVELS,
        **more,
    )


def steps(asked: Request, *, stream: StreamId | None = None) -> np.ndarray:
    law = grid_law(asked.noise, sigma=asked.sigma, levels=LEVELS)
    return grid_draws(law, stream or asked.stream, start=asked.start, count=asked.stop - asked.start, size=SIZE)


def votes_at(places: np.ndarray) -> np.ndarray:
    """The votes for whole numbers on the grid, divided once."""
    return scores((places / np.float32(LEVELS - 1)).astype(np.float32)).argmax(axis=1)


@pytest.mark.parametrize("noise", [noise for noise in Noise if noise.sampled])
@pytest.mark.parametrize("batch", [7, 64])
def test_votes_are_those_of_whole_numbers(noise, batch):
    asked = [request(row, noise=noise) for row in range(3)]
    for row, tally in enumerate(Sampler(CLASSIFIER, batch=batch, workers=2).tally(INPUTS, asked)):
        assert isinstance(tally, Tally)
        expected = np.bincount(votes_at(PLACES[row] + steps(asked[row])), minlength=CLASSES)
        assert tally.counts.tolist() == expected.tolist()


def test_pairs_are_the_same_steps_up_and_down():
    asked = request(1, TallyKind.PAIRS)
    (tally,) = Sampler(CLASSIFIER, batch=24, workers=1).tally(INPUTS, [asked])
    assert isinstance(tally, PairTally)
    up, down = votes_at(PLACES[1] + steps(asked)), votes_at(PLACES[1] - steps(asked))
    assert tally.both[:CLASSES].tolist() == np.bincount(up[up == down], minlength=CLASSES).tolist()
    assert tally.first_only[:CLASSES].tolist() == np.bincount(up[up != down], minlength=CLASSES).tolist()


def test_gradients_sum_the_conditional_mean_of_the_noise():
    asked = request(2, TallyKind.GRADIENTS)
    (tally,) = Sampler(CLASSIFIER, batch=24, workers=1).tally(INPUTS, [asked])
    assert isinstance(tally, GradientTally)
    law = grid_law(Noise.GAUSSIAN, sigma=asked.sigma, levels=LEVELS)
    drawn = steps(asked)
    means = np.rint(law.means[drawn - law.least] / GRADIENT_UNIT).astype(np.int64)
    first = votes_at(PLACES[2] + drawn) == 0
    assert (tally.sums[0, 0] == means[0::2][first[0::2]].sum(axis=0)).all()
    assert (tally.sums[1, 1] == means[1::2][~first[1::2]].sum(axis=0)).all()


@settings(max_examples=15, deadline=None)
@given(batch=st.integers(1, 130), workers=st.integers(1, 3), cut=st.integers(1, 99))
def test_no_batch_worker_or_cut_changes_a_vote(batch, workers, cut):
    whole = request(0)
    parts = [replace(whole, stop=cut), replace(whole, start=cut)]
    first, second = Sampler(CLASSIFIER, batch=batch, workers=workers).tally(INPUTS, parts)
    (expected,) = Sampler(CLASSIFIER, batch=33, workers=1).tally(INPUTS, [whole])
    assert first + second == expected


def test_shared_noise_has_the_steps_of_one_stream():
    asked = [request(row, shared=True, sigma=sigma) for row, sigma in ((0, 0.3), (1, 0.3), (2, 0.5))]
    tallies = Sampler(CLASSIFIER, batch=40, workers=1).tally(INPUTS, asked)
    for row, tally in enumerate(tallies):
        drawn = steps(asked[row], stream=asked[row].noise_stream)
        assert tally.counts.tolist() == np.bincount(votes_at(PLACES[row] + drawn), minlength=CLASSES).tolist()


def test_an_input_beside_the_grid_is_refused():
    beside = INPUTS.copy()
    beside[1, 0, 0] += np.float32(1e-4)
    with pytest.raises(InputError, match="grid"):
        Sampler(CLASSIFIER, batch=8).tally(beside, [request(1)])


def test_different_grids_do_not_share_a_batch():
    with pytest.raises(InputError, match="different grids"):
        Sampler(CLASSIFIER, batch=8).tally(INPUTS, [request(0), replace(request(1), grid=None)])


def test_the_batch_size_can_be_measured_on_a_grid():
    assert measure_batch(CLASSIFIER, SHAPE, samples=1000, workers=1, grid=LEVELS) >= 1


class OnDevice:
    """A device classifier on CPU tensors, to compare the torch noise with that of host memory."""

    num_classes, input_shape, digest, description, backend, concurrency = CLASSES, SHAPE, "d", "d", "torch", 1

    def __init__(self) -> None:
        import torch

        self.device = torch.device("cpu")

    def classify(self, batch: np.ndarray) -> np.ndarray:
        return scores(batch).argmax(axis=1)

    def classify_tensor(self, batch):
        import torch

        return torch.from_numpy(self.classify(batch.numpy()))

    def prepare_thread(self) -> None: ...

    def release_threads(self) -> None: ...


@pytest.mark.parametrize("kind", [TallyKind.VOTES, TallyKind.PAIRS, TallyKind.GRADIENTS])
@pytest.mark.parametrize("shared", [False, True])
def test_a_device_counts_what_the_host_counts(kind, shared):
    pytest.importorskip("torch")
    asked = [request(row, kind, shared=shared) for row in range(3)]
    on_host = Sampler(CLASSIFIER, batch=24, workers=1).tally(INPUTS, asked)
    assert Sampler(OnDevice(), batch=24, workers=1).tally(INPUTS, asked) == on_host
