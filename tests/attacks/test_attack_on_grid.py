"""Points that an attack found, moved onto the grid: on it, within the limit, and hardly weaker."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.attacks.attack_search import snap_to_grid
from smoothcert.noise import from_grid, to_grid
from smoothcert.records import Norm

SIZE = 30


def exact_length(points: np.ndarray, inputs: np.ndarray, norm: Norm, levels: int) -> np.ndarray:
    steps = (to_grid(points, levels) - to_grid(inputs, levels)).astype(np.int64)
    total = np.abs(steps).sum(axis=1) if norm is Norm.L1 else np.sqrt(np.square(steps).sum(axis=1))
    return total / (levels - 1)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    levels=st.sampled_from([2, 17, 256, 4081]),
    limit=st.floats(1e-3, 2.0),
    norm=st.sampled_from(list(Norm)),
)
def test_it_is_on_the_grid_and_inside(seed, levels, limit, norm):
    generator = np.random.default_rng(seed)
    inputs = from_grid(generator.integers(0, levels, size=(4, SIZE)).astype(np.int32), levels)
    delta = generator.normal(size=(4, SIZE))
    length = np.abs(delta).sum(axis=1) if norm is Norm.L1 else np.linalg.norm(delta, axis=1)
    points = (inputs + delta * (0.999 * limit / length)[:, None]).astype(np.float32)
    moved = snap_to_grid(points, inputs, np.full(4, limit), norm, levels)
    assert (exact_length(moved, inputs, norm, levels) <= limit).all()


@pytest.mark.parametrize("norm", list(Norm))
def test_it_uses_nearly_all_of_the_radius_where_steps_are_small(norm):
    """Cutting every step off towards the input, the naive way, would keep about half of it here."""
    generator = np.random.default_rng(0)
    inputs = from_grid(generator.integers(100, 150, size=(1, 784)).astype(np.int32), 256)
    delta = generator.normal(size=(1, 784))
    limit = 784 / 255 if norm is Norm.L1 else 28 / 255  # a step and a bit for every pixel
    length = np.abs(delta).sum() if norm is Norm.L1 else np.linalg.norm(delta)
    points = (inputs + delta * 0.999 * limit / length).astype(np.float32)
    moved = snap_to_grid(points, inputs, np.array([limit]), norm, 256)
    assert 0.9 * limit < exact_length(moved, inputs, norm, 256)[0] <= limit


def test_points_beyond_the_range_stay_there():
    inputs = np.zeros((1, 2), dtype=np.float32)
    points = np.array([[-0.1, 0.2]], dtype=np.float32)
    moved = snap_to_grid(points, inputs, np.array([1.0]), Norm.L2, 11)
    assert moved == pytest.approx(points, abs=1e-6)
