"""Radii for constant Gaussian noise: closed forms, quoted values, properties."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from smoothcert.certificates import CERTIFICATES, gaussian_radius, gaussian_two_class_radius
from smoothcert.records import Smoothing
from smoothcert.statistics import clopper_pearson_lower, clopper_pearson_upper

PROBABILITY = st.floats(1e-9, 1 - 1e-9)


@pytest.mark.parametrize(("n", "expected"), [(10**3, 2.4633), (10**4, 3.1986), (10**5, 3.8115), (10**6, 4.3468)])
def test_unanimous_votes(n: int, expected: float) -> None:
    assert gaussian_radius(clopper_pearson_lower(n, n, alpha=0.001), sigma=1.0) == pytest.approx(expected, abs=5e-5)


def test_quoted_radii() -> None:
    radii = gaussian_radius(clopper_pearson_lower([100_000, 95_126], 100_000, alpha=0.001), sigma=[1.0, 0.25])
    assert radii[0] == pytest.approx(3.81145656, abs=1e-8)
    assert radii[1] == pytest.approx(0.40909610, abs=1e-8)


@pytest.mark.parametrize(
    ("top", "other", "two_class", "binary"),
    [(90_000, 5_000, 1.4433, 1.2648), (45_000, 30_000, 0.1860, 0.0), (100_000, 0, 3.7878, 3.8115)],
)
def test_two_class_form(top: int, other: int, two_class: float, binary: float) -> None:
    p_a = clopper_pearson_lower(top, 100_000, alpha=0.0005)
    p_b = clopper_pearson_upper(other, 100_000, alpha=0.0005)
    assert gaussian_two_class_radius(p_a, p_b, sigma=1.0) == pytest.approx(two_class, abs=5e-5)
    alone = clopper_pearson_lower(top, 100_000, alpha=0.001)
    assert gaussian_radius(alone, sigma=1.0) == pytest.approx(binary, abs=5e-5)


@pytest.mark.parametrize(
    ("p_a", "p_b", "radius"),
    [(0.8, 0.2, 0.841621), (0.9, 0.1, 1.281552), (0.99, 0.01, 2.326348), (0.999, 0.0001, 3.404624)],
)
def test_quoted_two_class_radii(p_a: float, p_b: float, radius: float) -> None:
    assert gaussian_two_class_radius(p_a, p_b, sigma=1.0) == pytest.approx(radius, abs=1e-6)


@given(PROBABILITY, st.floats(1e-3, 1e3))
def test_never_above_the_formula(p_a: float, sigma: float) -> None:
    radius = float(gaussian_radius(p_a, sigma=sigma))
    formula = sigma * (special.ndtri(p_a) if p_a <= 0.5 else -special.ndtri(1 - p_a))
    assert radius >= 0.0
    if formula > 0:
        assert radius <= formula
        assert radius >= formula * (1 - 1e-12) - 1e-13 * sigma
    else:
        assert radius == 0.0


@given(PROBABILITY, PROBABILITY)
def test_two_class_is_never_worse_than_binary_at_the_same_bounds(p_a: float, p_b: float) -> None:
    assert gaussian_two_class_radius(p_a, p_b, sigma=1.0) >= float(gaussian_radius(p_a, sigma=1.0)) - 1e-9


@given(PROBABILITY, PROBABILITY)
def test_monotone(p: float, q: float) -> None:
    low, high = sorted((p, q))
    assert gaussian_radius(low, sigma=1.0) <= gaussian_radius(high, sigma=1.0)
    assert gaussian_two_class_radius(0.4, high, sigma=1.0) <= gaussian_two_class_radius(0.4, low, sigma=1.0)


NONSENSE = [np.nan, np.inf, -np.inf, -0.5, 1.0, 1.5, 0.0, 0.5]
SMOOTHING = Smoothing(dimension=784, num_classes=10)


@pytest.mark.parametrize("name", sorted(name for name, one in CERTIFICATES.items() if one.noise.sampled))
def test_nonsense_never_becomes_a_radius(name: str) -> None:
    combinations = itertools.product(NONSENSE, [*NONSENSE, 0.1], [0.25, 0.0, -1.0, np.nan, np.inf])
    p_a, p_b, sigma = (np.array(column) for column in zip(*combinations, strict=True))
    first, *rest = CERTIFICATES[name].needs
    radius = CERTIFICATES[name].radius({first: p_a, **dict.fromkeys(rest, p_b)}, sigma=sigma, smoothing=SMOOTHING)
    assert np.isfinite(radius).all()
    sensible = np.isfinite(sigma) & (sigma > 0) & (p_a >= 0) & (p_a < 1)
    assert (radius[~sensible] == 0).all()
    assert len(radius) == 8 * 9 * 5


def test_vectorised() -> None:
    assert gaussian_radius(np.full((3, 1), 0.9), sigma=np.array([0.25, 0.5])).shape == (3, 2)
