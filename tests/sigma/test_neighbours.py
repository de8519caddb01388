"""Nearest neighbours are exact: compared with double precision and many digits, to the bit."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.sigma.neighbours import NeighbourIndex, compact


def by_differences(points, queries, k):
    """Every distance in double precision, sorted."""
    flat = points.reshape(len(points), -1).astype(np.float64)
    rows = [np.sort(np.sqrt(((flat - x.ravel().astype(np.float64)) ** 2).sum(axis=1)))[:k] for x in queries]
    return np.array(rows).reshape(len(queries), k)


def random(shape, *, seed=0, centre=0.0, scale=1.0):
    return (centre + scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


@given(
    st.integers(0, 2**32),
    st.integers(1, 60),
    st.sampled_from([1, 2, 3, 17, 1023, 1025, 2500]),
    st.sampled_from([0.0, 1.0, 1e4, -1e7]),
    st.sampled_from([1.0, 1e-6, 1e6]),
    st.data(),
)
def test_agrees_with_differences_in_double_precision(seed, n, dimension, centre, scale, data):
    k = data.draw(st.integers(1, n))
    points = random((n, dimension), seed=seed, centre=centre, scale=scale)
    queries = np.concatenate([random((3, dimension), seed=seed + 1, centre=centre, scale=scale), points[:1]])
    found = NeighbourIndex(points).distances(queries, k=k)
    np.testing.assert_allclose(found, by_differences(points, queries, k), rtol=1e-13, atol=0)
    assert found[-1, 0] == 0.0


def test_agrees_with_fifty_digits():
    points, queries = random((30, 40), centre=0.5), random((4, 40), seed=1, centre=0.5)
    found = NeighbourIndex(points).distances(queries, k=5)
    with mpmath.workdps(50):
        for x, row in zip(queries, found, strict=True):
            true = sorted(mpmath.sqrt(mpmath.fsum((mpmath.mpf(float(a)) - mpmath.mpf(float(b))) ** 2 for a, b in
                                                  zip(x, p, strict=True))) for p in points)  # fmt: skip
            assert all(abs(mpmath.mpf(got) / want - 1) < 1e-14 for got, want in zip(row, true, strict=False))


@pytest.fixture(scope="module")
def near_ties():
    """2000 points nearly on a sphere around the query; their squares are equal in single precision."""
    generator = np.random.default_rng(3)
    directions = generator.normal(size=(2000, 64))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    query = np.full((1, 64), 300.0, dtype=np.float32)
    return (query + 5.0 * directions).astype(np.float32), query


def test_near_ties_that_single_precision_cannot_order(near_ties):
    points, query = near_ties
    exact = by_differences(points, query, 20)
    assert np.array_equal(NeighbourIndex(points).distances(query, k=20), exact)
    # For comparison: the plain formula in single precision finds wrong neighbours.
    squares = (points**2).sum(axis=1) - 2 * points @ query[0]
    chosen = points[np.argsort(squares)[:20]]
    assert by_differences(chosen, query, 20).sum() > exact.sum()


def test_more_candidates_are_taken_where_the_bound_cannot_exclude(near_ties):
    points, query = near_ties
    assert next(len(c) for c in NeighbourIndex(points)._candidates(query, 20)) > 100
    spread = random((2000, 64))
    assert next(len(c) for c in NeighbourIndex(spread)._candidates(spread[:1], 20)) < 30


def test_duplicates_count_as_often_as_they_occur():
    points = np.repeat(random((3, 5)), [4, 3, 2], axis=0)
    found = NeighbourIndex(points).distances(points[:1], k=9)
    assert np.array_equal(found == 0.0, [[True] * 4 + [False] * 5])
    assert np.array_equal(found, by_differences(points, points[:1], 9))


@pytest.mark.parametrize(
    ("scale", "query_scale"), [(1e19, 1e19), (3e38, 1.0), (1e-22, 1e-22), (1e-40, 1e-30), (1, 3e38)]
)
def test_numbers_whose_squares_overflow_or_vanish_in_single_precision(scale, query_scale):
    points = np.clip(random((50, 20)) * np.float32(0.2), -1, 1) * np.float32(scale)
    queries = np.clip(random((4, 20), seed=1) * np.float32(0.2), -1, 1) * np.float32(query_scale)
    found = NeighbourIndex(points).distances(queries, k=7)
    np.testing.assert_allclose(found, by_differences(points, queries, 7), rtol=1e-13, atol=0)


def test_an_outlier_among_the_points_spoils_nothing():
    points = random((500, 30))
    points[7] = 1e12
    queries = random((5, 30), seed=1)
    np.testing.assert_allclose(
        NeighbourIndex(points).distances(queries, k=10), by_differences(points, queries, 10), rtol=1e-13, atol=0
    )


@pytest.mark.parametrize("dimension", [1, 7, 784, 2049])
def test_a_row_depends_on_its_input_alone_to_the_bit(dimension, monkeypatch):
    points, queries = random((700, dimension)), random((40, dimension), seed=1)
    index = NeighbourIndex(points)
    together = index.distances(queries, k=11)
    alone = np.concatenate([index.distances(queries[i : i + 1], k=11) for i in range(len(queries))])
    backwards = index.distances(queries[::-1], k=11)[::-1]
    monkeypatch.setattr("smoothcert.sigma.neighbours._SCORE_BYTES", 4 * 700 * 3)
    monkeypatch.setattr("smoothcert.sigma.neighbours._ROWS_MEASURED_AT_ONCE", 5)
    in_pieces = index.distances(queries, k=11)
    for other in (alone, backwards, in_pieces):
        assert np.array_equal(together, other)


def test_what_is_excluded_does_not_show_in_the_bits(monkeypatch):
    """With all points as candidates the result has the same bits: it does not depend on the search."""
    points, queries = random((900, 300)), random((10, 300), seed=1)
    searched = NeighbourIndex(points).distances(queries, k=13)
    monkeypatch.setattr("smoothcert.sigma.neighbours._LARGEST_SQUARE", 0.0)
    index = NeighbourIndex(points)
    assert [len(c) for c in index._candidates(queries[:1], 13)] == [900]
    assert np.array_equal(searched, index.distances(queries, k=13))


def test_inputs_that_are_not_finite_get_nan_and_harm_no_other():
    points, queries = random((20, 4)), random((4, 4), seed=1)
    clean = NeighbourIndex(points).distances(queries, k=2)
    queries[1, 2], queries[3, 0] = np.nan, np.inf
    found = NeighbourIndex(points).distances(queries, k=2)
    assert np.isnan(found[[1, 3]]).all()
    assert np.array_equal(found[[0, 2]], clean[[0, 2]])


def test_grey_levels_stand_for_their_floats():
    levels = np.random.default_rng(0).integers(0, 256, size=(90, 1, 4, 4), dtype=np.uint8)
    floats = np.divide(levels, np.float32(255), dtype=np.float32)
    packed = compact(floats)
    assert packed.dtype == np.uint8
    assert np.array_equal(packed, levels)
    queries = random((5, 1, 4, 4))
    assert np.array_equal(
        NeighbourIndex(levels).distances(queries, k=4), NeighbourIndex(floats).distances(queries, k=4)
    )


@pytest.mark.parametrize("value", [0.5, -0.0, -1 / 255, 256 / 255, np.nextafter(np.float32(7 / 255), np.float32(1))])
def test_a_single_value_off_the_grid_keeps_floats(value):
    floats = np.zeros((3000, 3), dtype=np.float32)
    floats[2999, 1] = value
    assert compact(floats) is floats


def test_shapes_and_numbers_of_neighbours_are_checked():
    index = NeighbourIndex(random((5, 2, 3)))
    with pytest.raises(InputError, match=r"shape \(6,\)"):
        index.distances(random((1, 6)), k=1)
    with pytest.raises(InputError, match="float64"):
        index.distances(np.zeros((1, 2, 3)), k=1)
    for k in (0, 6):
        with pytest.raises(InputError, match="there are 5 points"):
            index.distances(random((1, 2, 3)), k=k)
    assert index.distances(random((0, 2, 3)), k=1).shape == (0, 1)
