"""The bounds of the index never exceed the true distances, for any data."""

from __future__ import annotations

import numpy as np
import pytest

from smoothcert.memory.distances import measure, relative_error
from smoothcert.memory.log import Centre
from smoothcert.memory.nearest import find_smallest_gaps
from smoothcert.memory.search import BallIndex, Sketcher
from smoothcert.records import FloatArray, Norm


def smooth(count: int, dimension: int, generator: np.random.Generator) -> Centre:
    return np.cumsum(generator.normal(size=(count, dimension)), axis=1).astype(np.float32)


def noise(count: int, dimension: int, generator: np.random.Generator) -> Centre:
    return generator.random((count, dimension), dtype=np.float32)


def clustered(count: int, dimension: int, generator: np.random.Generator) -> Centre:
    centres = generator.normal(size=(5, dimension)) * 10
    return (centres[generator.integers(5, size=count)] + 1e-3 * generator.normal(size=(count, dimension))).astype("f4")


def far_away(count: int, dimension: int, generator: np.random.Generator) -> Centre:
    """Huge norms and small differences, the worst case for single precision."""
    return (1e6 + generator.normal(size=(count, dimension))).astype(np.float32)


def near_duplicates(count: int, dimension: int, generator: np.random.Generator) -> Centre:
    one = generator.random(dimension, dtype=np.float32)
    many = np.repeat(one[None], count, axis=0)
    many[np.arange(count), generator.integers(dimension, size=count)] += np.float32(2.0**-12)
    return many


def of_all_sizes(count: int, dimension: int, generator: np.random.Generator) -> Centre:
    scales = 10.0 ** generator.uniform(-44, 37, size=(count, 1))
    return (generator.normal(size=(count, dimension)) * scales).astype(np.float32)


def on_a_line(count: int, dimension: int, generator: np.random.Generator) -> Centre:
    """The data varies in one direction only; the other directions are arbitrary."""
    direction = generator.normal(size=dimension)
    return (np.outer(generator.normal(size=count), direction / np.linalg.norm(direction))).astype(np.float32)


def all_equal(count: int, dimension: int, generator: np.random.Generator) -> Centre:
    return np.repeat(generator.random((1, dimension), dtype=np.float32), count, axis=0)


KINDS = [smooth, noise, clustered, far_away, near_duplicates, of_all_sizes, on_a_line, all_equal]


def exact_scan(x: Centre, centres: Centre, radii: FloatArray, norm: Norm) -> FloatArray:
    return measure(x, centres, norm=norm) - radii


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [1, 7, 128, 129, 784, 3072])
def test_bounds_stay_below_every_distance(kind, dimension: int) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(dimension)
    centres = kind(300, dimension, generator)
    index = BallIndex(Sketcher.fit(centres[:200]))
    for start in range(0, 300, 90):
        part = centres[start : start + 90]
        index.add(part, np.zeros(len(part), dtype=np.int64), np.zeros(len(part)))
    queries = np.concatenate((centres[::30], kind(10, dimension, generator), smooth(3, dimension, generator)))
    for x in queries:
        true = measure(x, centres, norm=Norm.L2) * (1.0 + relative_error(dimension))
        assert (index.bound_distances(x) <= true).all()


@pytest.mark.parametrize("kind", [smooth, noise, clustered])
def test_bounds_are_of_use(kind) -> None:  # type: ignore[no-untyped-def]
    """On the fitted data the bounds are exact up to rounding in 100 dimensions, and still useful in 3072."""
    generator = np.random.default_rng(3)
    for dimension, least in ((100, 0.99), (3072, 0.15)):
        centres = kind(400, dimension, generator)
        index = BallIndex(Sketcher.fit(centres))
        index.add(centres, np.zeros(400, dtype=np.int64), np.zeros(400))
        x = kind(1, dimension, generator)[0]
        assert np.median(index.bound_distances(x) / measure(x, centres, norm=Norm.L2)) > least


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("dimension", [2, 200, 3072])
def test_the_smallest_gap_is_found(kind, norm: Norm, dimension: int) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(dimension + 1)
    centres = kind(400, dimension, generator)
    typical = float(np.median(measure(centres[0], centres, norm=norm)))
    radii = generator.choice([0.0, 0.3, 0.3, 1.0], size=400) * typical
    index = BallIndex(Sketcher.fit(centres[:150]))
    index.add(centres, np.zeros(400, dtype=np.int64), radii)
    for x in np.concatenate((centres[:5], kind(5, dimension, generator))):
        gaps = index.bound_gaps(x)
        true = exact_scan(x, centres, radii, norm)
        for limit in (0.0, 0.5 * typical, 1e300):
            found = find_smallest_gaps(
                x, gaps=gaps, index=index, limit=limit, centres=lambda chosen: centres[chosen], norm=norm
            )
            indices = {ball.position - 1 for ball in found}
            nearest = set(np.flatnonzero(true == true.min()).tolist())
            assert nearest <= indices or true.min() > limit
            assert all(np.array_equal(ball.centre, centres[ball.position - 1]) for ball in found)


def test_a_basis_that_is_not_orthonormal_excludes_nothing() -> None:
    """The defect of the basis is measured."""
    generator = np.random.default_rng(0)
    centres = noise(50, 300, generator)
    fitted = Sketcher.fit(centres)
    assert fitted.basis is not None
    from smoothcert.memory import search

    bent = Sketcher(fitted.middle, 2.0 * fitted.basis, search._bound_defect(2.0 * fitted.basis))
    index = BallIndex(bent)
    index.add(centres, np.zeros(50, dtype=np.int64), np.zeros(50))
    assert (index.bound_distances(noise(1, 300, generator)[0]) == 0).all()
    assert search._bound_defect(fitted.basis) < 1e-10
    assert search._bound_defect(np.full((2, 300), np.nan)) == np.inf
