"""Noise on a grid through `SmoothedClassifier`: what is refused, what is paid, and what σ of a rule is taken at."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError
from smoothcert.noise import from_grid
from smoothcert.questions import describe_smoothing
from smoothcert.questions.smoothing_setup import SIGMA_SLACK
from smoothcert.records import Outcome, Proof
from smoothcert.records.envelopes import LipschitzSigma, SemiElastic, Widened, envelope_from_json

SIZE, LEVELS = 16, 256
X = from_grid(np.arange(0, 2 * SIZE, dtype=np.int32).reshape(2, SIZE), LEVELS)


def brighter(batch: np.ndarray) -> np.ndarray:
    return (batch.reshape(len(batch), -1).sum(axis=1) > -10).astype(np.int64)


def smoothed(**settings) -> SmoothedClassifier:
    usual = {"sigma": 0.25, "num_classes": 2, "input_shape": (SIZE,), "grid": LEVELS, "batch": 100, "seed": 1}
    return SmoothedClassifier(brighter, **(usual | settings))


def test_inputs_beside_the_grid_are_refused_by_every_verb():
    beside = X + np.float32(1e-4)
    for ask in (smoothed().certify, smoothed().predict):
        with pytest.raises(InputError, match="--noise float"):
            ask(beside, n=200)


def test_float64_values_of_the_grid_are_taken():
    (first, _) = smoothed().certify(np.arange(0, 2 * SIZE).reshape(2, SIZE) / 255, n=200)
    assert first.outcome is Outcome.CERTIFIED


@pytest.mark.parametrize("verb", ["certify", "predict"])
def test_an_alpha_that_the_noise_would_eat_is_refused_before_anything_is_sampled(verb):
    asked = []

    def never(batch):
        asked.append(len(batch))
        return np.ones(len(batch), dtype=np.int64)

    watched = SmoothedClassifier(never, sigma=0.25, num_classes=2, input_shape=(SIZE,), grid=LEVELS, batch=100)
    with pytest.raises(InputError, match="too small for noise on a grid"):
        getattr(watched, verb)(X, n=10_000, alpha=1e-12)
    assert set(asked) <= {2}  # what it answers at all is tried on two rows


def test_a_level_that_the_grid_cannot_carry_names_its_input():
    def rule(x):
        return 1e-5 if x.sum() > 0.7 else 0.25

    with pytest.raises(InputError, match=r"input 1 cannot be smoothed.*almost always 0"):
        smoothed(sigma=rule).predict(X, n=200)


def test_alpha_is_spent_on_the_tables_once_for_each_draw():
    (point, _) = smoothed().certify(X, n=1000, certificate=["dipole", "gaussian"], best_of=True)
    (plain, _) = smoothed().certify(X, n=500)
    assert point.bounds is not None
    assert plain.bounds is not None
    # 500 draws are used twice for 1000 samples.
    assert point.bounds.spent[Proof.NOISE_TABLES] == plain.bounds.spent[Proof.NOISE_TABLES]
    assert point.bounds.alpha == plain.bounds.alpha == 0.001


def test_a_rule_is_taken_where_float32_is_and_the_certificate_where_the_grid_is():
    envelope = describe_smoothing(SemiElastic(rate=2.0), dimension=SIZE, num_classes=2, grid=LEVELS).envelope
    moved = Widened(SemiElastic(rate=2.0), slack=SIGMA_SLACK, shift=2.0 * 2.0**-25 * math.sqrt(SIZE))
    assert envelope == moved
    here, far = np.array([0.25]), np.array([0.5])
    assert float(moved.low(here, far)[0]) < float(dataclasses.replace(moved, shift=0.0).low(here, far)[0])
    assert float(moved.high(here, far)[0]) > float(dataclasses.replace(moved, shift=0.0).high(here, far)[0])
    assert envelope_from_json(moved.to_json()) == moved
    assert describe_smoothing(SemiElastic(rate=2.0), dimension=SIZE, num_classes=2).envelope == Widened(
        SemiElastic(rate=2.0), slack=SIGMA_SLACK
    )


@pytest.mark.parametrize("levels", [256, 4081, 65536])
def test_the_envelope_covers_two_inputs_on_the_grid_that_are_both_rounded(levels: int):
    """How much further apart than two levels their float32 numbers may be; more than one rounding, but for 256."""
    exact = np.arange(levels, dtype=np.int32)
    errors = [
        Fraction(float(x)) - Fraction(int(k), levels - 1) for k, x in zip(exact, from_grid(exact, levels), strict=True)
    ]
    apart = max(error - least for error, least in zip(errors, itertools.accumulate(errors, min), strict=True))
    envelope = describe_smoothing(
        LipschitzSigma(constant=1.0, floor=0.1), dimension=1, num_classes=2, grid=levels
    ).envelope
    assert isinstance(envelope, Widened)
    assert apart <= Fraction(envelope.shift)
    assert (apart > Fraction(2.0**-25)) == (levels != 256)
