"""Classifiers whose probabilities are known exactly: class B is a ball, the outside of one, or a half-space."""

import numpy as np
import pytest
from flint import arb, ctx

from ball_arithmetic import ball_inside, ball_outside, log_uniform, most_at_x1, normal_below, region_chances
from ball_probabilities import boundary_of_inside, boundary_of_outside
from smoothcert.certificates.envelope import envelope_radius
from smoothcert.records.envelopes import MonotoneEnvelope


def threshold(p_a: float, sigma: float, other_sigma: float, dimension: int) -> float:
    """How far apart the two points may be, one with each level, and be certified."""
    low, high = min(sigma, other_sigma), max(sigma, other_sigma)
    two_levels = MonotoneEnvelope("two levels", lambda s, a: 0 * s + low, lambda s, a: 0 * s + high)
    return float(envelope_radius(p_a, sigma=sigma, dimension=dimension, envelope=two_levels))


def random_points(seed: int, count: int) -> list[tuple[int, float, float, float, float]]:
    """N, σ₀, σ₁, p_a and the threshold, for levels far enough apart to matter and close enough to be certified."""
    generator = np.random.default_rng(seed)
    points: list[tuple[int, float, float, float, float]] = []
    while len(points) < count:
        dimension = int(log_uniform(generator, 1, 200_001, 1)[0])
        sigma = float(log_uniform(generator, 0.05, 20, 1)[0])
        other = float(sigma * np.exp(generator.normal() * 10 ** generator.uniform(-3, 0) / np.sqrt(dimension)))
        p_a = float(1 - 10 ** generator.uniform(-6, -0.31))
        distance = threshold(p_a, sigma, other, dimension)
        if distance > 0:
            points.append((dimension, sigma, other, p_a, distance))
    return points


@pytest.mark.parametrize("seed", range(2))
def test_no_ball_breaks_what_is_certified(seed: int) -> None:
    """Balls and their outsides anywhere, off the line between the points too, as large as P₀(A) ≥ p_a allows."""
    generator = np.random.default_rng(seed)
    tried = 0
    for dimension, sigma, other, p_a, distance in random_points(seed, 12):
        worst_centre = sigma**2 * distance / abs(sigma**2 - other**2)
        for _ in range(4):
            centre = worst_centre * float(np.exp(generator.normal() * 0.3))
            cosine = float(1 - 2 * generator.random() ** 4) if dimension > 1 else float(generator.choice([-1, 1]))
            inside = bool(generator.random() < 0.5)
            inverse, chance = (boundary_of_inside, ball_inside) if inside else (boundary_of_outside, ball_outside)
            boundary = float(inverse(1 - p_a, dimension=dimension, centre=centre / sigma))
            boundary += (1 if inside else -1) * 1e-9 * max(1.0, abs(boundary))  # a hair smaller: P₀(B) ≤ 1 - p_a
            with ctx.workprec(192):
                ball_radius = arb(centre) - arb(boundary) * arb(sigma)
                there = (arb(centre) ** 2 + arb(distance) ** 2 - 2 * arb(centre) * distance * cosine).sqrt()
                kappa, tau = there / other, (there - ball_radius) / other
                at_x0 = chance(dimension, arb(centre) / sigma, boundary)
                allowed = 1 - arb(p_a)
            if at_x0 <= allowed:
                assert chance(dimension, kappa, tau) < 0.5, (dimension, sigma, other, p_a, centre, cosine, inside)
                tried += 1
    assert tried > 40


def test_no_half_space_breaks_what_is_certified() -> None:
    generator = np.random.default_rng(7)
    for _, sigma, other, p_a, distance in random_points(7, 40):
        cosine = float(1 - 2 * generator.random() ** 3)
        with ctx.workprec(192):
            reach = arb(sigma) * arb(2).sqrt() * (2 * arb(p_a) - 1).erfinv()  # P₀(B) = 1 - p_a
        assert normal_below((arb(distance) * cosine - reach) / other) < 0.5


@pytest.mark.parametrize("seed", range(2))
def test_just_beyond_one_ball_breaks_it(seed: int) -> None:
    """A ball that class A may leave to B at x₀ takes more than half of x₁; at the threshold none does."""
    for dimension, sigma, other, p_a, distance in random_points(20 + seed, 12):
        beyond = distance * (1 + 1e-6) + 3e-10 * sigma
        spread = abs(sigma - other) * (sigma + other)
        inverse, sign = (boundary_of_inside, 1) if other < sigma else (boundary_of_outside, -1)
        boundary = sign * float(inverse(1 - p_a, dimension=dimension, centre=sigma * beyond / spread))
        crossing = sigma * boundary + 1e-12 * max(sigma, abs(sigma * boundary))
        common = {"sigma": sigma, "other_sigma": other, "dimension": dimension, "crossing": crossing}
        at_x0, at_x1 = region_chances(distance=beyond, **common)
        with ctx.workprec(192):
            allowed = 1 - arb(p_a)
        assert at_x0 <= allowed
        assert at_x1 > 0.5, (dimension, sigma, other, p_a, distance)
        at = {"sigma": sigma, "other_sigma": other, "dimension": dimension, "distance": distance}
        assert most_at_x1(allowed, **at) < 0.5


def test_the_order_of_the_levels_matters() -> None:
    """Neither order is the mirror of the other, and both are below the distance for equal levels."""
    down, up = threshold(0.99, 1.0, 0.98, 784), threshold(0.99, 1.0, 1.02, 784)
    assert 0 < down < up < threshold(0.99, 1.0, 1.0, 784)
