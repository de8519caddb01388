"""Second-order smoothing against Theorem 1 of Levine et al. 2021: many digits, worst cases, a linear program."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mpf
from scipy import optimize, sparse, special

from fifty_digits import gaps, quantile
from smoothcert.certificates import (
    CERTIFICATES,
    gaussian_radius,
    gaussian_two_class_radius,
    second_order_multi_class_radius,
    second_order_radius,
)
from smoothcert.certificates.second_order import largest_gradient_norm, second_order_lower_bound
from smoothcert.records import FloatArray, Norm, Quantity, Smoothing

HALF = mpf(1) / 2
LARGEST = 1.0 / math.sqrt(2.0 * math.pi)
"""φ(0): no gradient norm times σ is larger."""

Function = Callable[[mpf], mpf]


# The theorem in fifty digits. Arguments are floats and are taken for exactly what they are.


def decreasing_root(function: Function, low: mpf, high: mpf) -> mpf:
    """Regula falsi (Illinois), halving the bracket in every fourth step."""
    at_low, at_high = function(low), function(high)
    assert at_low > 0 > at_high
    previous = None
    for step in range(400):
        if high - low <= mpf(10) ** -25 * (1 + abs(low)):
            break
        middle = (low * at_high - high * at_low) / (at_high - at_low) if step % 4 else (low + high) / 2
        value = function(middle)
        if value > 0:
            low, at_low, at_high = middle, value, at_high / 2 if previous == "low" else at_high
            previous = "low"
        else:
            high, at_high, at_low = middle, value, at_low / 2 if previous == "high" else at_low
            previous = "high"
    return low


def lower_bound(p: float, scaled_gradient: mpf) -> Function:
    """Theorem 1: distance/σ → the smallest possible P(A)."""
    against = 1 - mpf(p)
    if scaled_gradient >= mpmath.npdf(quantile(against)):
        edge = -quantile(against)
        return lambda r: mpmath.ncdf(edge - r)

    def excess(lower: mpf) -> mpf:
        return mpmath.npdf(quantile(against - mpmath.ncdf(lower))) - mpmath.npdf(lower) - scaled_gradient

    lower = decreasing_root(excess, mpf(-36), quantile(against / 2)) if scaled_gradient > 0 else quantile(against / 2)
    upper = -quantile(against - mpmath.ncdf(lower))
    return lambda r: mpmath.ncdf(upper - r) - mpmath.ncdf(lower - r)


def radius_by_definition(p: float, gradient_norm: float, sigma: float) -> mpf:
    with mpmath.workdps(50):
        if p <= 0.5:
            return mpf(0)
        bound = lower_bound(p, mpf(gradient_norm) * mpf(sigma))
        return mpf(sigma) * decreasing_root(lambda r: bound(r) - HALF, mpf(0), mpf(10))


def multi_class_radius_by_definition(p: float, g: float, other: float, other_g: float, sigma: float) -> mpf:
    """The r at which the lower bound on A is neither above ½ nor above the upper bound on the other class."""
    with mpmath.workdps(50):
        mine = lower_bound(p, mpf(g) * mpf(sigma))
        turned = lower_bound(1.0 - other, mpf(other_g) * mpf(sigma))

        def lead(r: mpf) -> mpf:
            h_a, h_c = mine(r), turned(r)
            return max(h_a + h_c - 1, 2 * h_a - 1)

        return mpf(sigma) * decreasing_root(lead, mpf(0), mpf(12)) if lead(mpf(0)) > 0 else mpf(0)


def float_below(value: mpf) -> float:
    nearest = float(value)
    return nearest if mpf(nearest) <= value else math.nextafter(nearest, -math.inf)


def float_above(value: mpf) -> float:
    return -float_below(-value)


# Values.


@pytest.mark.parametrize(
    ("p", "gradient", "radius"),
    [
        (0.6, 0.0, 0.68054353),
        (0.8, 0.0, 1.26803403),
        (0.8, 0.1, 1.07518066),
        (0.9, 0.05, 1.51186869),
        (0.99, 0.0, 2.57582898),
    ],
)
def test_quoted_values(p: float, gradient: float, radius: float) -> None:
    assert second_order_radius(p, gradient, sigma=1.0) == pytest.approx(radius, abs=1e-8)


def probabilities(rng: np.random.Generator, size: int) -> FloatArray:
    """From ½ + 1e-9 to 1 - 1e-12, with both ends well visited."""
    near_half = 0.5 + 10.0 ** rng.uniform(-9, -0.4, size)
    near_one = 1.0 - 10.0 ** rng.uniform(-12, -0.31, size)
    return np.choose(rng.integers(0, 3, size), [near_half, near_one, rng.uniform(0.5, 1.0, size)])


def test_definition_in_fifty_digits() -> None:
    rng = np.random.default_rng(7)
    size = 120
    p = np.concatenate([[0.5 + 1e-9] * 3, [1.0 - 1e-12] * 3, probabilities(rng, size - 6)])
    sigma = np.concatenate([[1.0, 1e-3, 1e3] * 2, 10.0 ** rng.uniform(-3, 3, size - 6)])
    share = np.choose(
        rng.integers(0, 4, size),
        [
            np.zeros(size),
            rng.uniform(0, 1, size),
            10.0 ** rng.uniform(-12, 0, size),
            1 - 10.0 ** rng.uniform(-13, 0, size),
        ],
    )
    share[:6] = [0.0, 0.5, 1.0] * 2
    gradient = share * np.exp(-0.5 * special.ndtri(1.0 - p) ** 2) * LARGEST / sigma
    radius = second_order_radius(p, gradient, sigma=sigma)
    truth = [radius_by_definition(*case) for case in zip(p, gradient, sigma, strict=True)]
    gap = gaps(radius, truth, sigma)
    assert (gap >= 0).all()
    assert gap.max() <= 1e-9
    assert np.quantile(gap, 0.8) <= 1e-12


# Worst-case classifiers: slabs {lower < z < upper}, whose value and gradient are closed forms.


def test_slabs_have_no_gap() -> None:
    """p and gradient of the slab, rounded to the safe side, give back the distance to its boundary."""
    rng = np.random.default_rng(11)
    size = 300
    p, sigma = probabilities(rng, size), 10.0 ** rng.uniform(-3, 3, size)
    p[:8], sigma[:8] = [0.5 + 1e-9] * 4 + [1 - 1e-12] * 4, [1e-3, 1e3] * 4
    # Which part of the mass outside lies below the slab: none is a half-space, one half is a slab around x.
    share = np.choose(
        rng.integers(0, 4, size), [0.0, 0.5, rng.uniform(0, 0.5, size), 10.0 ** rng.uniform(-15, -1, size)]
    )
    share[:8] = [0.0, 0.5] * 4
    lower, upper = special.ndtri(share * (1.0 - p)), -special.ndtri((1.0 - share) * (1.0 - p))
    values, gradients, truth = [], [], []
    with mpmath.workdps(50):
        for low, up, s in zip(map(mpf, lower), map(mpf, upper), map(mpf, sigma), strict=True):
            values.append(float_below(mpmath.ncdf(up) - mpmath.ncdf(low)))
            gradients.append(float_above(abs(mpmath.npdf(up) - mpmath.npdf(low)) / s))
            lead = lambda r, low=low, up=up: mpmath.ncdf(up - r) - mpmath.ncdf(low - r) - HALF  # noqa: E731
            truth.append(s * decreasing_root(lead, mpf(0), up + 1))
    gap = gaps(second_order_radius(values, gradients, sigma=sigma), truth, sigma)
    assert (gap >= 0).all()
    # One unit in the last place of p near 1 is a large part of 1 - p: 1e-16/φ(upper) is lost by rounding the input.
    lost_by_input = 4e-16 / (np.exp(-0.5 * upper**2) * LARGEST)
    assert (gap <= 1e-9 + lost_by_input).all()
    assert (gap[upper < 4.0] <= 1e-9).all()
    assert np.median(gap) <= 1e-12


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_slabs_in_several_directions_are_never_overestimated(seed: int) -> None:
    """Intersection of slabs in orthogonal directions: p is a product, and every ray has a closed form."""
    rng = np.random.default_rng(seed)
    dimension = int(rng.integers(1, 5))
    lower, upper = -rng.gamma(2.0, 1.2, dimension), rng.gamma(2.0, 1.2, dimension)
    sigma = float(10.0 ** rng.uniform(-3, 3))

    def value(shift: FloatArray) -> FloatArray:
        return np.prod(special.ndtr(upper - shift) - special.ndtr(lower - shift), axis=-1)

    factors = special.ndtr(upper) - special.ndtr(lower)
    slopes = LARGEST * (np.exp(-0.5 * lower**2) - np.exp(-0.5 * upper**2))
    p = float(value(np.zeros(dimension)))
    gradient = float(np.linalg.norm(p * slopes / factors)) / sigma
    radius = float(second_order_radius(p * (1 - 1e-14), gradient * (1 + 1e-14), sigma=sigma))
    directions = rng.normal(size=(200, dimension))
    directions = np.concatenate([directions, -np.atleast_2d(slopes / factors + 1e-300), np.eye(dimension)])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert (value(0.999999999 * radius / sigma * directions) >= 0.5).all() or radius == 0.0


# The same number by another route.


@pytest.mark.parametrize("p", [0.3, 0.55, 0.8, 0.97])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.9, 1.0, 3.0])
@pytest.mark.parametrize("distance", [0.3, 1.1, 2.0])
def test_lower_bound_is_the_optimum_of_a_linear_program(p: float, share: float, distance: float) -> None:
    """Smallest ∫ g(z) φ(z-r) dz over g in [0,1] with ∫ gφ = p and ∫ z gφ ≥ -gradient, on a grid of z."""
    edges = special.ndtri(np.linspace(0.0, 1.0, 2001))
    density = np.exp(-0.5 * edges**2) * LARGEST
    mass, moment = np.diff(special.ndtr(edges)), -np.diff(density)
    after = np.diff(special.ndtr(edges - distance))
    gradient = share * math.exp(-0.5 * float(special.ndtri(p)) ** 2) * LARGEST
    optimum = optimize.linprog(
        after,
        A_ub=sparse.csr_array(-moment[None]),
        b_ub=[gradient],
        A_eq=sparse.csr_array(mass[None]),
        b_eq=[p],
        bounds=(0, 1),
    )
    assert optimum.success
    assert second_order_lower_bound(p, gradient, distance=distance) == pytest.approx(optimum.fun, abs=1e-3)


def test_lower_bound_at_the_radius_is_one_half() -> None:
    p, gradient = np.linspace(0.51, 0.999, 40), np.linspace(0.0, 0.3, 40)
    radius = second_order_radius(p, gradient, sigma=1.0)
    np.testing.assert_allclose(second_order_lower_bound(p, gradient, distance=radius), 0.5, atol=1e-12)
    np.testing.assert_allclose(second_order_lower_bound(p, gradient, distance=0.0), p, atol=1e-12)


@pytest.mark.parametrize("p", [1e-300, 1e-17, 1.2e-16, 2.3e-16, 1e-9, 1.0 - 1.2e-16])
@pytest.mark.parametrize("gradient", [0.0, 0.1, np.inf])
def test_lower_bound_of_extreme_probabilities(p: float, gradient: float) -> None:
    bound = float(second_order_lower_bound(p, gradient, distance=1.0))
    assert -1e-15 <= bound <= p + 1e-15
    assert second_order_radius(p, gradient, sigma=1.0) >= 0.0


# Properties.

CERTIFIABLE = st.one_of(st.floats(0.5 + 1e-9, 1.0 - 1e-12), st.floats(0.5 + 1e-9, 0.6), st.floats(0.999, 1.0 - 1e-12))
GRADIENT = st.one_of(st.just(0.0), st.floats(0.0, 1.1 * LARGEST), st.floats(1e-12, 1e-3))
SIGMA = st.floats(1e-3, 1e3)


def rounding_slack(radius: float) -> float:
    """Near p = ½ and without a gradient the lead falls like the square of the distance: small errors move its root."""
    return 1e-12 + 1e-12 / max(radius, 1e-6)


@given(CERTIFIABLE, CERTIFIABLE, GRADIENT, GRADIENT)
def test_monotone(p: float, p_other: float, g: float, g_other: float) -> None:
    (p_low, p_high), (g_low, g_high) = sorted((p, p_other)), sorted((g, g_other))
    less, more = (float(second_order_radius(one, g, sigma=1.0)) for one in (p_low, p_high))
    assert less <= more + rounding_slack(less)
    less, more = (float(second_order_radius(p, one, sigma=1.0)) for one in (g_high, g_low))
    assert less <= more + rounding_slack(less)


@given(CERTIFIABLE, GRADIENT, SIGMA)
@example(0.5 + 1e-9, 0.0, 1.0)
@example(1.0 - 1e-12, 0.0, 1e3)
def test_between_the_radii_that_know_less_and_more(p: float, g: float, sigma: float) -> None:
    """Cohen's radius ≤ ours ≤ that of a vanishing gradient ≤ Cohen's with half of the mass against."""
    radius = float(second_order_radius(p, g / sigma, sigma=sigma)) / sigma
    assert radius >= float(gaussian_radius(p, sigma=1.0)) - 1e-12
    assert radius <= float(second_order_radius(p, 0.0, sigma=1.0)) + 1e-9
    assert radius <= -float(special.ndtri(0.5 * (1.0 - p)))


@given(CERTIFIABLE, SIGMA, st.one_of(st.floats(1.0, 1e3), st.just(math.inf)))
def test_no_information_gives_back_cohen(p: float, sigma: float, factor: float) -> None:
    largest = math.exp(-0.5 * float(special.ndtri(1.0 - p)) ** 2) * LARGEST / sigma
    radius = float(second_order_radius(p, factor * largest, sigma=sigma))
    assert radius == pytest.approx(float(gaussian_radius(p, sigma=sigma)), rel=1e-12, abs=1e-12 * sigma)


@given(CERTIFIABLE, GRADIENT, SIGMA)
def test_length_has_no_preferred_unit(p: float, g: float, sigma: float) -> None:
    """With σ and 1/‖∇p‖ in another unit the radius is in that unit; powers of two are exact."""
    unit = 2.0 ** round(math.log2(sigma))
    scaled = float(second_order_radius(p, g / unit, sigma=unit))
    assert scaled == unit * float(second_order_radius(p, g, sigma=1.0))
    other = float(second_order_radius(p, g / sigma, sigma=sigma))
    again = sigma * float(second_order_radius(p, g, sigma=1.0))
    assert other == pytest.approx(again, abs=rounding_slack(other / sigma) * sigma)


NONSENSE = [math.nan, math.inf, -math.inf, -0.1, 1.0, 1.5, 0.0]


@pytest.mark.parametrize("bad", [*NONSENSE, 0.5, 0.3, -1e-300])
def test_no_radius_from_a_bad_probability(bad: float) -> None:
    assert second_order_radius(bad, 0.1, sigma=1.0) == 0.0
    assert second_order_multi_class_radius(bad, 0.1, 0.5, 0.1, sigma=1.0) == 0.0


@pytest.mark.parametrize("bad", [math.nan, -math.inf, -0.1, -1e-300])
def test_no_radius_from_a_bad_gradient(bad: float) -> None:
    assert second_order_radius(0.9, bad, sigma=1.0) == 0.0
    assert second_order_multi_class_radius(0.9, bad, 0.05, 0.1, sigma=1.0) == 0.0
    assert second_order_multi_class_radius(0.9, 0.1, 0.05, bad, sigma=1.0) == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
def test_no_radius_from_a_bad_sigma(bad: float) -> None:
    assert second_order_radius(0.9, 0.1, sigma=bad) == 0.0
    assert second_order_multi_class_radius(0.9, 0.1, 0.05, 0.1, sigma=bad) == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -0.1, 1.5])
def test_no_radius_from_a_bad_probability_of_the_other_class(bad: float) -> None:
    assert second_order_multi_class_radius(0.9, 0.1, bad, 0.1, sigma=1.0) == 0.0


def test_a_bad_element_does_not_spoil_its_neighbours() -> None:
    radius = second_order_radius([0.8, math.nan, 0.9, 0.4], [0.1, 0.1, 0.05, 0.0], sigma=[1.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(radius, [1.07518066, 0.0, 1.51186869, 0.0], atol=1e-8)


def test_a_gradient_bound_as_large_as_floats_go_says_nothing() -> None:
    assert second_order_radius(0.9, 1e308, sigma=1e3) == pytest.approx(1e3 * 1.2815515655446004, rel=1e-12)


def test_shapes_broadcast() -> None:
    p, g, sigma = np.full((3, 1), 0.9), np.array([0.0, 0.1]), np.full((4, 1, 1), 0.5)
    assert second_order_radius(p, g, sigma=sigma).shape == (4, 3, 2)
    assert second_order_multi_class_radius(p, g, np.full((4, 1, 1), 0.05), 0.1, sigma=0.5).shape == (4, 3, 2)
    assert second_order_lower_bound(p, g, distance=np.zeros((4, 1, 1))).shape == (4, 3, 2)
    assert second_order_radius([], [], sigma=1.0).shape == (0,)
    scalar = second_order_radius(0.9, 0, sigma=1)
    assert scalar.shape == ()
    assert float(scalar) == second_order_radius([[0.9]], 0.0, sigma=1.0)[0, 0]


@given(st.one_of(st.just(0.0), st.floats(1e-300, 1.0)), SIGMA)
def test_largest_gradient_norm(p: float, sigma: float) -> None:
    """φ(Φ⁻¹(p))/σ, from above, symmetric."""
    with mpmath.workdps(50):
        exact = mpf(0) if p in (0.0, 1.0) else mpmath.npdf(quantile(mpf(p))) / mpf(sigma)
        found = float(largest_gradient_norm(p, sigma=sigma))
        assert mpf(found) >= exact
        assert found <= exact * (1 + mpf(10) ** -11)


# Several classes.


def test_multi_class_definition_in_fifty_digits() -> None:
    rng = np.random.default_rng(3)
    size = 50
    p = rng.uniform(0.2, 0.999, size)
    other = rng.uniform(0.0, 1.0, size) * np.minimum(1.0 - p, p)
    # The two routes must start from the same complement.
    other = 1.0 - (1.0 - other)
    other[:3] = 1e-6
    other = 1.0 - (1.0 - other)
    sigma = 10.0 ** rng.uniform(-3, 3, size)
    g, other_g = (
        rng.choice([0.0, 0.3, 0.8, 1.0, 5.0], size) * np.exp(-0.5 * special.ndtri(q) ** 2) * LARGEST / sigma
        for q in (p, other)
    )
    radius = second_order_multi_class_radius(p, g, other, other_g, sigma=sigma)
    truth = [multi_class_radius_by_definition(*case) for case in zip(p, g, other, other_g, sigma, strict=True)]
    gap = gaps(radius, truth, sigma)
    assert (gap >= 0).all()
    assert gap.max() <= 1e-9
    assert np.count_nonzero(p < 0.5) > 5
    assert (radius > 0).mean() > 0.8


@given(CERTIFIABLE, GRADIENT, st.floats(0.0, 1.0 - 1e-12), GRADIENT)
def test_multi_class_form_is_at_least_the_binary_form(p: float, g: float, other: float, other_g: float) -> None:
    several = float(second_order_multi_class_radius(p, g, other, other_g, sigma=1.0))
    binary = float(second_order_radius(p, g, sigma=1.0))
    assert several >= binary - rounding_slack(binary)


@pytest.mark.parametrize("other", [1.0, 1.0 - 2.0**-53, 1.0 - 2.0**-52])
def test_nothing_known_of_the_other_class_leaves_the_binary_form(other: float) -> None:
    several = float(second_order_multi_class_radius(0.9, 0.1, other, 0.1, sigma=1.0))
    assert several == pytest.approx(float(second_order_radius(0.9, 0.1, sigma=1.0)), abs=1e-12)


@given(st.floats(0.05, 0.999), st.floats(0.01, 0.99))
def test_multi_class_form_without_gradients_is_cohens_two_class_form(p: float, share: float) -> None:
    other = share * (1.0 - p)
    several = float(second_order_multi_class_radius(p, math.inf, other, math.inf, sigma=0.5))
    assert several == pytest.approx(float(gaussian_two_class_radius(p, other, sigma=0.5)), abs=1e-11)


def test_the_class_with_fewer_votes_may_be_the_nearer_one() -> None:
    """Why every other class is compared with: the rarer class has the larger gradient."""
    runner_up, rarer = second_order_multi_class_radius(0.8, 0.05, [0.11, 0.08], [0.0, 0.15], sigma=1.0)
    assert rarer < runner_up


def test_certificates_by_name() -> None:
    given_quantities = {
        Quantity.TOP_LOWER: np.array([0.8, 0.9]),
        Quantity.GRADIENT_NORM_UPPER: np.array([0.1, 0.05]),
        Quantity.OTHER_UPPER: np.array([[0.1, 0.04], [0.1, 0.02]]),
        Quantity.OTHER_GRADIENT_NORM_UPPER: np.array([[0.1, 0.01], [0.3, 0.0]]),
    }
    for name in ("second-order", "second-order-pairs", "second-order-multi-class"):
        certificate = CERTIFICATES[name]
        assert (certificate.family, certificate.norm) == ("second-order", Norm.L2)
        needed = {quantity: given_quantities[quantity] for quantity in certificate.needs}
        radius = certificate.radius(needed, sigma=1.0, smoothing=Smoothing())
        if name == "second-order-multi-class":
            assert radius.shape == (2, 2)
            assert (radius >= [1.07518065, 1.51186868]).all()
        else:
            np.testing.assert_allclose(radius, [1.07518066, 1.51186869], atol=1e-8)
