"""Proposals for k and the offset, on data whose best answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from smoothcert.errors import InputError
from smoothcert.sigma.knn_fitting import (
    LADDER,
    LadderStep,
    OffsetChoice,
    measure_neighbours,
    propose_k,
    propose_offset,
    select_ladder,
)


def brute(points, k):
    """Distances to the k nearest others, by differences."""
    values = points.astype(np.float64)
    apart = np.sqrt(((values[:, None] - values[None]) ** 2).sum(axis=2))
    return np.sort(apart, axis=1)[:, 1 : k + 1]


def clusters(*, scales, each, dimension=8, seed=0):
    """Clusters far apart, each with its own width: mean distances differ by cluster, whatever k."""
    generator = np.random.default_rng(seed)
    parts = [100 * i + scale * generator.normal(size=(each, dimension)) for i, scale in enumerate(scales)]
    return np.concatenate(parts).astype(np.float32)


def test_statistics_leave_the_point_itself_out():
    points = clusters(scales=[1.0, 3.0], each=40)
    points = np.concatenate([points, points[:1]])  # a true duplicate is another point and stays
    statistics = measure_neighbours(points, most_neighbours=7)
    expected = brute(points, 7)
    # The sample is a permutation of all 81 points here; compare as sets of rows.
    found = statistics.distances[np.lexsort(statistics.distances.T)]
    np.testing.assert_allclose(found, expected[np.lexsort(expected.T)], rtol=1e-12, atol=1e-12)
    assert (statistics.distances[:, 0] == 0).sum() == 2


def test_the_halves_are_disjoint_and_together_everything():
    points = clusters(scales=[1.0], each=30)
    statistics = measure_neighbours(points, most_neighbours=29)
    everything = np.sort(np.concatenate([statistics.first, statistics.second], axis=1), axis=1)
    assert np.isfinite(everything).sum(axis=1).tolist() == [29] * 30
    assert np.array_equal(everything[:, :29], statistics.distances)


def test_stable_where_the_data_says_much_and_not_where_it_says_nothing():
    """Both halves agree on clusters whose widths differ by a factor of ten, and not on a uniform torus."""
    clustered = measure_neighbours(clusters(scales=[1, 3, 10], each=100), most_neighbours=10).step(10)
    assert clustered.stability > 0.95
    assert clustered.scatter > 0.5
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, size=(600, 4))
    torus = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    uniform = measure_neighbours(torus, most_neighbours=5).step(5)
    assert abs(uniform.stability) < 0.3
    assert uniform.scatter < 0.1


def test_stability_grows_with_k_on_clusters():
    statistics = measure_neighbours(clusters(scales=[1, 1.5, 2], each=150), most_neighbours=20)
    stability = [statistics.step(k).stability for k in (1, 5, 20)]
    assert stability == sorted(stability)


def test_the_smallest_stable_k_that_keeps_the_scatter():
    steps = [
        LadderStep(1, 0.9, 0.3),
        LadderStep(5, 0.98, 0.29),
        LadderStep(20, 0.992, 0.26),
        LadderStep(50, 0.999, 0.25),
    ]
    assert propose_k(steps) == 20
    assert propose_k(steps[::-1]) == 20


def test_where_none_is_both_the_largest_that_keeps_the_scatter():
    assert propose_k([LadderStep(1, 0.9, 0.3), LadderStep(5, 0.98, 0.25), LadderStep(20, 0.995, 0.1)]) == 5


def test_offsets():
    distances = np.linspace(1.0, 3.0, 1001)
    assert propose_offset(distances, OffsetChoice.LOWEST) == 1.02
    assert propose_offset(distances, OffsetChoice.MEAN) == 2.0
    assert propose_offset(distances * 1.23456, OffsetChoice.MEAN) == 2.47


def test_the_ladder_stops_where_a_half_has_no_k_others():
    assert select_ladder(10_000) == LADDER
    assert select_ladder(42) == (1, 2, 5, 10, 20)
    assert select_ladder(41) == (1, 2, 5, 10)
    assert select_ladder(4) == (1,)
    with pytest.raises(InputError, match="too few"):
        select_ladder(3)
    with pytest.raises(InputError, match="5 points have no 5 nearest others"):
        measure_neighbours(np.zeros((5, 2), dtype=np.float32), most_neighbours=5)


def test_identical_points_do_not_break_it():
    statistics = measure_neighbours(np.ones((30, 3), dtype=np.float32), most_neighbours=5)
    assert statistics.step(5) == LadderStep(k=5, stability=0.0, scatter=0.0)
    assert propose_k([statistics.step(k) for k in (1, 2, 5)]) in (1, 2, 5)


def test_the_same_numbers_every_time_and_progress_to_the_end():
    points, heard = clusters(scales=[1, 2], each=300), []
    first = measure_neighbours(points, most_neighbours=3, progress=lambda done, total: heard.append((done, total)))
    second = measure_neighbours(points, most_neighbours=3)
    assert np.array_equal(first.distances, second.distances)
    assert heard == [(250, 600), (500, 600), (600, 600)]
