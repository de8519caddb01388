"""Claims and lookups against a brute-force memory in exact arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from exact_regions import ExactRegions
from smoothcert.memory import MemoryKey, open_memory, regions, search
from smoothcert.records import Norm, Settlement

Point = NDArray[np.float32]
Draw = Callable[[np.random.Generator, int], tuple[Point, float]]


def scattered(generator: np.random.Generator, dimension: int) -> tuple[Point, float]:
    """Some far from each other, some crowded around the origin."""
    x = generator.normal(size=dimension) * generator.choice([0.03, 1.0])
    return x.astype(np.float32), float(generator.exponential(0.4 * dimension ** generator.choice([0.1, 0.5, 1.0])))


def on_a_grid(generator: np.random.Generator, dimension: int) -> tuple[Point, float]:
    """Many equal points, balls that touch exactly, points exactly on a boundary."""
    x = np.zeros(dimension, dtype=np.float32)
    x[: min(dimension, 3)] = generator.integers(0, 5, size=min(dimension, 3))
    return x, float(generator.choice([0.0, 0.5, 1.0, 1.5, 2.0, 5.0]))


def tiny(generator: np.random.Generator, dimension: int) -> tuple[Point, float]:
    """Subnormal numbers, whose squares underflow."""
    x = (generator.integers(-4, 5, size=dimension) * 2.0**-149).astype(np.float32)
    return x, float(generator.integers(0, 8) * 2.0**-149 * dimension**0.5)


def huge(generator: np.random.Generator, dimension: int) -> tuple[Point, float]:
    """The largest float32, together with ordinary ones."""
    scale = generator.choice([1.0, 3e38])
    return (generator.uniform(-1, 1, dimension) * scale).astype(np.float32), float(generator.exponential(scale))


def clustered(generator: np.random.Generator, dimension: int) -> tuple[Point, float]:
    """Near duplicates far from the origin: distances of the size of a few units in the last place."""
    x = np.float32(1000.0) + generator.integers(-3, 4, size=dimension).astype(np.float32) * np.float32(2.0**-14)
    return x.astype(np.float32), float(generator.choice([0.0, 2.0**-13, 1e-4, 3e-4, 1.0]))


def overflowing(generator: np.random.Generator, dimension: int) -> tuple[Point, float]:
    """Radii whose sum exceeds the largest float64, and radii below the smallest normal one."""
    return generator.normal(size=dimension).astype(np.float32), float(generator.choice([1.7e308, 5e-324, 1e-310, 0.3]))


@pytest.fixture
def small_sketches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use sketches early, with fewer directions than dimensions."""
    monkeypatch.setattr(regions, "_FIRST_FIT", 8)
    monkeypatch.setattr(regions, "_SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(search, "DIRECTIONS", 6)


def random_claims(path: Path, norm: Norm, dimension: int, draw: Draw, count: int) -> Counter[Settlement]:
    generator = np.random.default_rng(dimension)
    exact = ExactRegions(norm)
    with open_memory(path, MemoryKey("m", "s", "gaussian", norm, "p", dimension)) as memory:
        for _ in range(count):
            x, radius = draw(generator, dimension)
            label = int(generator.integers(3))
            exact.check(x, label, radius, memory.claim(x, label, radius))
        for _ in range(20):
            x, _ = draw(generator, dimension)
            found, expected = memory.lookup(x), exact.lookup(x)
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                assert found.label == expected[0]
                assert found.radius <= expected[1] < mpmath.mpf(float(np.nextafter(found.radius, np.inf)))
                assert (found.settlement, found.asked_label) == (Settlement.INHERITED, None)
                assert exact.balls[found.position - 1][1] == found.label
        assert memory.audit().problems == ()
        assert len(memory) == len(exact.balls)
    return Counter(promise.settlement for promise in exact.promises)


@pytest.mark.usefixtures("small_sketches")
@pytest.mark.parametrize("draw", [scattered, on_a_grid, tiny, huge, clustered, overflowing])
@pytest.mark.parametrize("dimension", [1, 3, 16, 64])
@pytest.mark.parametrize("norm", list(Norm))
def test_every_claim_is_settled_as_brute_force_says(tmp_path: Path, norm: Norm, dimension: int, draw: Draw) -> None:
    seen = random_claims(tmp_path / "memory.sqlite", norm, dimension, draw, 90)
    if draw is scattered:
        assert set(seen) == {Settlement.WHOLE, Settlement.CUT, Settlement.OVERRULED}


@pytest.mark.parametrize("norm", list(Norm))
def test_many_claims_with_the_search_as_it_is(tmp_path: Path, norm: Norm) -> None:
    random_claims(tmp_path / "memory.sqlite", norm, 5, scattered, 600)


claims = st.lists(
    st.tuples(
        st.tuples(*[st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, 4.0, 0.1, 1e-45, 3e38])] * 2),
        st.integers(0, 2),
        st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0]), st.floats(0.0, 1e300)),
    ),
    max_size=12,
)


@given(claims=claims, norm=st.sampled_from(list(Norm)))
def test_whatever_is_claimed_brute_force_agrees(
    tmp_path_factory: pytest.TempPathFactory, claims: list[tuple[tuple[float, float], int, float]], norm: Norm
) -> None:
    exact = ExactRegions(norm)
    path = tmp_path_factory.mktemp("claims") / "memory.sqlite"
    with open_memory(path, MemoryKey("m", "s", "uniform", norm, "p", 2)) as memory:
        for x, label, radius in claims:
            point = np.array(x, dtype=np.float32)
            exact.check(point, label, radius, memory.claim(point, label, radius))


def test_touching_closed_balls_are_cut_apart(tmp_path: Path) -> None:
    """3-4-5: the balls would meet in one point, so the second is one float smaller."""
    with open_memory(tmp_path / "m.sqlite", MemoryKey("m", "s", "gaussian", Norm.L2, "p", 2)) as memory:
        assert memory.claim(np.float32([0, 0]), 0, 2.0).settlement is Settlement.WHOLE
        promise = memory.claim(np.float32([3, 4]), 1, 3.0)
        assert promise.settlement is Settlement.CUT
        assert promise.radius == np.nextafter(3.0, 0.0)
        assert memory.claim(np.float32([6, 8]), 0, 2.0).settlement is Settlement.WHOLE
        # The boundary belongs to the ball.
        on_it = memory.claim(np.float32([0, 2]), 1, 1.0)
        assert (on_it.settlement, on_it.label, on_it.radius) == (Settlement.OVERRULED, 0, 0.0)


def test_a_repeated_claim_is_answered_again_and_stored_once(tmp_path: Path) -> None:
    key = MemoryKey("m", "s", "gaussian", Norm.L2, "p", 2)
    with open_memory(tmp_path / "m.sqlite", key) as memory:
        first = memory.claim(np.float32([0, 0]), 0, 2.0)
        overruled = memory.claim(np.float32([1, 0]), 1, 2.0)
        assert memory.claim(np.float32([-0.0, 0]), 0, 2.0) == first
        assert memory.claim(np.float32([1, 0]), 1, 2.0) == overruled
        assert len(memory) == 2
        assert memory.claim(np.float32([0, 0]), 0, 3.0).position == 3
    with open_memory(tmp_path / "m.sqlite", key) as again:
        assert again.claim(np.float32([1, 0]), 1, 2.0) == overruled
        assert len(again) == 3
