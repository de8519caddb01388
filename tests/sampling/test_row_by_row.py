"""A model that looks across the rows of its batch is found out; ties and random models are left in peace."""

from __future__ import annotations

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.errors import ModelError
from smoothcert.models import as_classifier
from smoothcert.noise import from_grid
from smoothcert.records import Stage, StreamId, TallyKind
from smoothcert.sampling import Request, Sampler
from smoothcert.sampling.row_by_row import RowByRow

SIZE, LEVELS = 36, 256
HERE = from_grid(np.full((1, SIZE), 100, dtype=np.int32), LEVELS)
THERE = from_grid(np.full((1, SIZE), 116, dtype=np.int32), LEVELS)


def by_the_mean_of_the_batch(batch: np.ndarray) -> np.ndarray:
    """The rows are copies of one input, and their mean gives it away: the same answer for all of them."""
    mean = batch.reshape(len(batch), -1).mean()
    return np.full(len(batch), int(mean > 108 / 255), dtype=np.int64)


def smoothed(model) -> SmoothedClassifier:
    return SmoothedClassifier(model, sigma=0.25, num_classes=2, input_shape=(SIZE,), grid=LEVELS, batch=200, seed=1)


@pytest.mark.parametrize("certificate", ["gaussian", "dipole", "second-order"])
def test_a_mean_over_the_batch_is_found_out(certificate):
    """Without the check both are certified with radius 0.7 and two classes, 0.38 apart."""
    both = np.concatenate([HERE, THERE])
    with pytest.raises(ModelError, match="depends on the others in the batch"):
        smoothed(by_the_mean_of_the_batch).certify(both, n=10_000, certificate=certificate)


def test_normalised_by_the_batch():
    """What a network does whose batch norm was left in training mode."""

    def model(batch):
        flat = batch.reshape(len(batch), -1).sum(axis=1)
        return (flat > flat.mean()).astype(np.int64)

    with pytest.raises(ModelError, match="eval"):
        smoothed(model).predict(HERE, n=10_000)


@pytest.mark.parametrize("share", [0.5, 0.05, 0.001])
def test_random_answers_are_not_its_business(share):
    generator = np.random.default_rng(0)

    def model(batch):
        return (generator.random(len(batch)) < share).astype(np.int64)

    (point,) = smoothed(model).certify(HERE, n=50_000)
    assert point.tallies[-1].n > 0


def answers(together: int) -> dict:
    """Of a row that gets this vote in a batch, and 0 alone."""
    return {"vote": lambda row: together, "ask": lambda place, rows: 0 if rows.stop - rows.start == 1 else together}


def test_a_tie_now_and_then_is_no_offence():
    looks = RowByRow()
    for number in range(10_000):
        looks.look(256, **answers(1 if number % 1000 == 0 else 0))


def test_three_of_a_hundred_are():
    looks = RowByRow()
    for _ in range(2):
        looks.look(256, **answers(1))
    for _ in range(97):
        looks.look(256, **answers(0))
    with pytest.raises(ModelError, match="3 of 100"):
        looks.look(256, **answers(1))


def test_it_costs_one_row_in_256():
    lone = []

    def model(batch):
        if len(batch) == 1:
            lone.append(1)
        return (batch.reshape(len(batch), -1).sum(axis=1) > SIZE / 2).astype(np.int64)

    classifier = as_classifier(model, input_shape=(SIZE,), num_classes=2)
    asked = [Request(0, StreamId(0, 0, Stage.ESTIMATION), 0.25, 0, 25_600, TallyKind.VOTES, grid=LEVELS)]
    Sampler(classifier, batch=64, workers=1).tally(HERE, asked)
    assert 90 <= len(lone) <= 101
