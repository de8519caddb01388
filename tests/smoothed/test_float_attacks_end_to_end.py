"""A base classifier that reads the last bits of its floats gets false certificates under float noise, not on a grid."""

from __future__ import annotations

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.records import Outcome

PIXELS, SIGMA, LEVELS = 64, 0.5, 256
PLACES = np.random.default_rng(5).integers(40, 200, size=PIXELS)
X = (PLACES / np.float32(LEVELS - 1)).astype(np.float32)
NEIGHBOUR = ((PLACES + np.where(np.arange(PIXELS) % 2, 1, -1)) / np.float32(LEVELS - 1)).astype(np.float32)


def survives(batch: np.ndarray) -> np.ndarray:
    """1 iff (a-x)+x == a in every pixel, in float32: true of what float32 made by adding something to x."""
    a = batch.reshape(len(batch), -1)
    return ((a - X) + X == a).all(axis=1).astype(np.int64)


def smoothed(**settings) -> SmoothedClassifier:
    return SmoothedClassifier(
        survives, sigma=SIGMA, num_classes=2, input_shape=(PIXELS,), input_range=(-1, 2), seed=3, batch=500, **settings
    )


def certified_at(x: np.ndarray, **settings):
    (point,) = smoothed(**settings).certify(x[None], n=20_000, n0=100)
    return point


def test_the_neighbour_is_near():
    assert np.linalg.norm(NEIGHBOUR.astype(np.float64) - X.astype(np.float64)) < 0.0315


def test_float_noise_certifies_a_radius_that_is_false():
    """The defect that the grid is for: this test shows that the attack is real."""
    here, there = certified_at(X, grid="float"), certified_at(NEIGHBOUR, grid="float")
    assert here.prediction == 1
    assert here.radius > 1.0
    assert there.prediction == 0
    assert there.radius > 0.03


@pytest.mark.parametrize("certificate", ["gaussian", "gaussian-two-class", "dipole", "second-order"])
@pytest.mark.parametrize("grid", [LEVELS, "detect"])
def test_on_a_grid_the_same_classifier_is_certified_truly_or_not_at_all(certificate, grid):
    """Also where nobody names the grid: the defaults are not open to the attack."""
    points = [
        smoothed(grid=grid).certify(x[None], n=20_000, n0=100, certificate=certificate)[0] for x in (X, NEIGHBOUR)
    ]
    certified = {point.prediction for point in points if point.outcome is Outcome.CERTIFIED and point.radius > 0.0315}
    assert len(certified) < 2


def test_on_a_grid_both_see_the_same_votes_up_to_chance():
    here, there = (
        smoothed(grid=LEVELS).certify(x[None], n=20_000, n0=100, indices=[index])[0].tallies[-1].counts
        for index, x in enumerate((X, NEIGHBOUR))
    )
    # The smoothed probabilities differ by at most Φ(0.0315/2σ)-½ each way: 0.013 of 20000 votes, and chance.
    assert abs(int(here[1]) - int(there[1])) < 20_000 * 0.026 + 6 * np.sqrt(20_000)


def test_pairs_are_broken_by_float_noise_too():
    here, there = (
        smoothed(grid="float").certify(x[None], n=20_000, n0=100, certificate="dipole")[0] for x in (X, NEIGHBOUR)
    )
    assert here.prediction == 1
    assert there.prediction == 0
    assert here.radius > 0.0315
    assert there.radius > 0.0315


def test_spent_shows_what_the_tables_cost():
    (point,) = SmoothedClassifier(
        lambda batch: np.ones(len(batch), dtype=np.int64), sigma=SIGMA, num_classes=2, grid=LEVELS, batch=500
    ).certify(X[None], n=1000)
    assert point.bounds is not None
    costs = {proof.value: share for proof, share in point.bounds.spent.items()}
    assert 0 < costs["finite tables of the noise"] < 1e-10
    assert point.bounds.alpha == 0.001
