"""Half-space selectors and classifiers: the true radius of G is known, never exceeded, and reached where it can be."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from selected_half_spaces import HalfSpaces, distance_to_both
from smoothcert.certificates import gaussian_radius
from smoothcert.certificates.selected_sigma import exclusion_radii, published_radius, selected_radius
from smoothcert.records import FloatArray

COUNT = 10_000
ROUNDING = 1e-9


@functools.cache
def _worlds(dimension: int) -> HalfSpaces:
    return HalfSpaces.draw(COUNT, dimension=dimension, seed=5)


@functools.cache
def _certified(dimension: int) -> tuple[FloatArray, FloatArray]:
    """Both forms for every world, with exact probabilities in place of sampled bounds."""
    worlds = _worlds(dimension)
    p_level, p_first, p_second = worlds.probabilities()
    first = gaussian_radius(p_first, sigma=worlds.sigmas[:, 1])
    second = gaussian_radius(p_second, sigma=worlds.sigmas[:, 2])
    found = np.empty((2, COUNT))
    for row in range(COUNT):
        excluded = exclusion_radii(p_level[row], [math.nan, 1 - p_level[row]], sigma=worlds.sigmas[row, 0])
        found[0, row] = selected_radius(excluded.tolist(), [float(first[row]), float(second[row])])
        found[1, row] = published_radius(float(excluded[1]), float(first[row]))
    return found[0], found[1]


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_the_true_radius_is_never_exceeded(dimension: int) -> None:
    true = _worlds(dimension).true_radii()
    selected, published = _certified(dimension)
    assert (selected <= true * (1 + ROUNDING)).all()
    assert (published <= selected * (1 + ROUNDING)).all()
    assert (selected > published * 1.5).mean() > 0.1  # the sharper form is sharper


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2])
def test_it_is_reached_where_the_form_is_tight(dimension: int) -> None:
    """Tight: the border of level 1 is met first while level 1 is still taken, or level 2 lies along the selector."""
    worlds = _worlds(dimension)
    selected, _ = _certified(dimension)
    together = np.einsum("md,md->m", worlds.u_s, worlds.u_1)
    beyond = np.maximum(worlds.selector, worlds.second)
    by_first = (worlds.first <= beyond) & (worlds.first * together <= worlds.selector)
    by_second = (worlds.first >= beyond) & (np.einsum("md,md->m", worlds.u_s, worlds.u_2) > 1 - 1e-12)
    for tight in (by_first, by_second):
        assert tight.sum() > 300
        assert (worlds.true_radii()[tight] <= 1.02 * selected[tight]).all()
        assert (worlds.true_radii()[tight] <= selected[tight] * (1 + 1e-9)).all()


def test_the_largest_of_the_radii_is_refuted() -> None:
    """The negative control: max(R_1, R_2), and the selector taken at its word."""
    worlds = _worlds(2)
    true = worlds.true_radii()
    largest = np.maximum(np.maximum(worlds.first, worlds.second), worlds.selector)
    assert (largest > true * (1 + ROUNDING)).mean() > 0.3
    assert (worlds.first > true * (1 + ROUNDING)).mean() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2])
def test_the_true_radius_is_true(dimension: int) -> None:
    """By search: along many directions G changes nowhere nearer, and somewhere just beyond."""
    few = HalfSpaces.draw(60, dimension=dimension, seed=11)
    true = few.true_radii()
    assert not np.isnan(true).any()
    generator = np.random.default_rng(1)
    ways = generator.normal(size=(1, 5000, 1, dimension))
    ways /= np.linalg.norm(ways, axis=-1, keepdims=True)
    if dimension == 1:
        ways = np.array([-1.0, 1.0]).reshape(1, 2, 1, 1)
    shares = np.array([0.2, 0.5, 0.8, 0.95, 1 - 1e-9]).reshape(1, 1, -1, 1)
    inside = np.minimum(true, 50.0).reshape(-1, 1, 1, 1) * shares * ways
    assert not few.changes(inside).any()
    reachable = np.isfinite(true) & (true < 1e3)
    assert reachable.sum() > 40
    just_beyond = np.where(reachable, true, 0.0).reshape(-1, 1, 1, 1) * 1.03 * ways
    assert few.changes(just_beyond).any(axis=(1, 2))[reachable].all()


def test_distances_to_two_half_spaces_by_rays() -> None:
    """In the plane, along 40000 directions: the first r at which both constraints hold."""
    generator = np.random.default_rng(3)
    a, b = generator.uniform(-2.0, 3.0, size=(2, 100))
    angle = generator.uniform(0.3, np.pi - 0.3, size=100)
    found = distance_to_both(a, b, np.cos(angle))
    turns = np.linspace(0.0, 2 * np.pi, 40_000, endpoint=False)
    for row in range(100):
        along = np.stack([np.cos(turns), np.cos(turns - angle[row])])
        bound = np.array([[a[row]], [b[row]]])
        with np.errstate(divide="ignore", invalid="ignore"):
            place = bound / along
        least = np.where(along > 0, np.maximum(place, 0.0), np.where(bound > 0, np.inf, 0.0)).max(axis=0)
        most = np.where(along < 0, np.where(bound > 0, -np.inf, place), np.inf).min(axis=0)
        nearest = np.where(least <= most, least, np.inf).min()
        assert found[row] == pytest.approx(nearest, rel=1e-3, abs=1e-9)
