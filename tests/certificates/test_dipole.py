"""Dipole smoothing against Theorem 3 of Levine et al. 2021: many digits, worst cases, a linear program."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mpmath import mpf
from scipy import optimize, sparse, special

from dipole_bound import dipole_lower_bound
from fifty_digits import gaps, quantile
from smoothcert.certificates import (
    CERTIFICATES,
    dipole_multi_class_radius,
    dipole_radius,
    gaussian_radius,
    gaussian_two_class_radius,
    second_order_radius,
)
from smoothcert.records import FloatArray, Norm, Quantity, Smoothing
from smoothcert.statistics import clopper_pearson_lower

HALF = mpf(1) / 2

Function = Callable[[mpf], mpf]


# The theorem in fifty digits. Arguments are floats and are taken for exactly what they are.


def decreasing_root(function: Function, high: mpf) -> mpf:
    """The root above 0, seen from both sides."""
    root = mpmath.findroot(function, (mpf(0), high), solver="anderson", tol=mpf(10) ** -40, maxsteps=400, verify=False)
    nearby = mpf(10) ** -25
    assert function(root - nearby) > 0 > function(root + nearby)
    return root


def lower_bound(both: float, one_sided: float) -> Function:
    """Theorem 3: distance/σ → the smallest possible P(A)."""
    edge = quantile(mpf(one_sided)) if one_sided > 0 else -mpmath.inf
    upper, lower = quantile((1 + mpf(both)) / 2), quantile((1 - mpf(both)) / 2)
    return lambda r: mpmath.ncdf(edge - r) + mpmath.ncdf(upper - r) - mpmath.ncdf(lower - r)


def radius_by_definition(both: float, one_sided: float, sigma: float) -> mpf:
    with mpmath.workdps(50):
        bound = lower_bound(both, one_sided)
        return mpf(sigma) * decreasing_root(lambda r: bound(r) - HALF, mpf(10)) if bound(mpf(0)) > HALF else mpf(0)


def multi_class_radius_by_definition(both: float, one: float, neither: float, other: float, sigma: float) -> mpf:
    """The r at which the lower bound on A is neither above ½ nor above the upper bound on the other class."""
    with mpmath.workdps(50):
        mine, turned = lower_bound(both, one), lower_bound(neither, other)

        def lead(r: mpf) -> mpf:
            h_a, h_c = mine(r), turned(r)
            return max(h_a + h_c - 1, 2 * h_a - 1)

        return mpf(sigma) * decreasing_root(lead, mpf(12)) if lead(mpf(0)) > 0 else mpf(0)


def float_below(value: mpf) -> float:
    nearest = float(value)
    return nearest if mpf(nearest) <= value else math.nextafter(nearest, -math.inf)


# Values.


def test_quoted_values() -> None:
    """n = 100000 votes are 50000 pairs; each of the two bounds has half of α = .001."""
    both = clopper_pearson_lower([44_963, 27_290], 50_000, alpha=0.0005)
    one_sided = clopper_pearson_lower([2_521, 10_165], 50_000, alpha=0.0005)
    assert both[0] == pytest.approx(0.89476036, abs=1e-8)
    assert one_sided[0] == pytest.approx(0.04725806, abs=1e-8)
    radius = dipole_radius(both, one_sided, sigma=0.25)
    np.testing.assert_allclose(radius, [0.40492846, 0.17465924], atol=1e-8, rtol=0)


def shapes(rng: np.random.Generator, size: int) -> tuple[FloatArray, FloatArray]:
    """(C_S, C_N) with C_S + 2 C_N ≤ 1: anywhere, near certainty, and close to the line where nothing is certified."""
    both = np.where(rng.random(size) < 0.5, rng.uniform(0, 1, size), 1 - 10.0 ** rng.uniform(-12, -0.3, size))
    share = np.choose(rng.integers(0, 4, size), [0.0, 1.0, rng.uniform(0, 1, size), 10.0 ** rng.uniform(-15, 0, size)])
    one_sided = 0.5 * (1.0 - both) * share
    near = rng.random(size) < 0.25
    both = np.where(near, rng.uniform(0, 0.5, size), both)
    one_sided = np.where(near, np.minimum(0.5 - both + 10.0 ** rng.uniform(-9, -2, size), 0.5 * (1 - both)), one_sided)
    return both, one_sided


def test_definition_in_fifty_digits() -> None:
    rng = np.random.default_rng(23)
    both, one_sided = shapes(rng, 100)
    sigma = 10.0 ** rng.uniform(-3, 3, 100)
    sigma[:2], both[:2], one_sided[:2] = [1e-3, 1e3], 1.0 - 1e-12, 0.0
    radius = dipole_radius(both, one_sided, sigma=sigma)
    truth = [radius_by_definition(*case) for case in zip(both, one_sided, sigma, strict=True)]
    gap = gaps(radius, truth, sigma)
    assert (gap >= 0).all()
    assert gap.max() <= 1e-9
    assert np.quantile(gap, 0.9) <= 1e-12
    assert (radius > 0).mean() > 0.7
    nothing = np.array([t == 0 for t in truth])
    assert nothing.any()
    assert (radius[nothing] == 0).all()


# Worst-case classifiers: class A below `edge` and between -wall and wall, edge ≤ -wall. No point of the half-space has
# its mirror image in A, so C_S and C_N are the masses of the two parts.


def test_half_space_and_slab_have_no_gap() -> None:
    rng = np.random.default_rng(29)
    both_wanted, one_wanted = shapes(rng, 250)
    keep = both_wanted + one_wanted > 0.5 + 1e-9
    sigma = 10.0 ** rng.uniform(-3, 3, 250)[keep]
    walls = -special.ndtri(0.5 * (1.0 - both_wanted[keep]))
    edges = np.minimum(special.ndtri(one_wanted[keep]), -walls)
    both, one_sided, truth = [], [], []
    with mpmath.workdps(50):
        for wall, edge, s in zip(map(mpf, walls), map(mpf, edges), map(mpf, sigma), strict=True):
            both.append(float_below(mpmath.ncdf(wall) - mpmath.ncdf(-wall)))
            one_sided.append(float_below(mpmath.ncdf(edge)))

            def lead(r: mpf, wall: mpf = wall, edge: mpf = edge) -> mpf:
                return mpmath.ncdf(edge - r) + mpmath.ncdf(wall - r) - mpmath.ncdf(-wall - r) - HALF

            truth.append(s * decreasing_root(lead, mpf(10)))
    gap = gaps(dipole_radius(both, one_sided, sigma=sigma), truth, sigma)
    assert len(gap) > 150
    assert (gap >= 0).all()
    # One unit in the last place of C_S near 1 is a large part of 1 - C_S.
    assert (gap <= 1e-10 + 4e-16 * np.sqrt(2 * np.pi) * np.exp(0.5 * walls**2)).all()
    assert (gap[walls < 4.0] <= 1e-9).all()
    assert np.median(gap) <= 1e-12


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_slabs_in_several_directions_are_never_overestimated(seed: int) -> None:
    """A box and its mirror image meet in a box, so C_S is a product; every ray has a closed form."""
    rng = np.random.default_rng(seed)
    dimension = int(rng.integers(1, 5))
    lower, upper = -rng.gamma(2.0, 1.2, dimension), rng.gamma(2.0, 1.2, dimension)
    sigma = float(10.0 ** rng.uniform(-3, 3))

    def value(shift: FloatArray) -> FloatArray:
        return np.prod(special.ndtr(upper - shift) - special.ndtr(lower - shift), axis=-1)

    both = float(np.prod(special.erf(np.minimum(upper, -lower) / math.sqrt(2.0))))
    one_sided = max(float(value(np.zeros(dimension))) - both - 1e-14, 0.0)
    radius = float(dipole_radius(max(both - 1e-14, 0.0), one_sided, sigma=sigma))
    assume(radius > 0)
    directions = np.concatenate([rng.normal(size=(200, dimension)), np.eye(dimension), -np.eye(dimension)])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert (value(0.999999999 * radius / sigma * directions) >= 0.5).all()


# The same number by another route.


@pytest.mark.parametrize(
    ("both", "one_sided"), [(0.0, 0.4), (0.3, 0.0), (0.3, 0.2), (0.6, 0.2), (0.8, 0.05), (0.9, 0.05)]
)
@pytest.mark.parametrize("distance", [0.3, 1.1, 2.0])
def test_lower_bound_is_the_optimum_of_a_linear_program(both: float, one_sided: float, distance: float) -> None:
    """At ±z, z > 0, the pair of votes is (A, A), (A, other), (other, A) or neither, with weights s, u, v and the rest.

    Smallest ∫ s (φ(z-r) + φ(-z-r)) + u φ(z-r) + v φ(-z-r) dz with ∫ s φ = C_S/2, ∫ (u+v) φ = C_N and s + u + v ≤ 1.
    """
    cells = 1000
    edges = special.ndtri(np.linspace(0.5, 1.0, cells + 1))
    mass = np.diff(special.ndtr(edges))
    ahead = np.diff(special.ndtr(edges - distance))
    behind = -np.diff(special.ndtr(-edges - distance))
    nothing = np.zeros(cells)
    moments = np.array([np.concatenate([mass, nothing, nothing]), np.concatenate([nothing, mass, mass])])
    one_each = sparse.hstack([sparse.eye_array(cells)] * 3)
    optimum = optimize.linprog(
        np.concatenate([ahead + behind, ahead, behind]),
        A_ub=one_each,
        b_ub=np.ones(cells),
        A_eq=sparse.csr_array(moments),
        b_eq=[0.5 * both, one_sided],
        bounds=(0, 1),
    )
    assert optimum.success
    assert dipole_lower_bound(both, one_sided, distance=distance) == pytest.approx(optimum.fun, abs=1e-3)


def test_lower_bound_at_the_radius_is_one_half() -> None:
    both = np.linspace(0.45, 0.999, 40)
    one_sided = 0.3 * (1.0 - both)
    radius = dipole_radius(both, one_sided, sigma=1.0)
    assert (radius > 0).all()
    np.testing.assert_allclose(dipole_lower_bound(both, one_sided, distance=radius), 0.5, atol=1e-12)
    np.testing.assert_allclose(dipole_lower_bound(both, one_sided, distance=0.0), both + one_sided, atol=1e-12)


# Properties.

BOTH = st.one_of(st.floats(0.0, 1.0 - 1e-12), st.floats(0.45, 0.55), st.floats(0.999, 1.0 - 1e-12))
SHARE = st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0, 1.0), st.floats(1e-15, 1e-3))
SIGMA = st.floats(1e-3, 1e3)


def one_sided_of(both: float, share: float) -> float:
    """Part of the largest C_N that C_S leaves room for."""
    return share * 0.5 * (1.0 - both)


def rounding_slack(radius: float) -> float:
    """Near C_S = ½ and C_N = 0 the lead falls like the square of the distance: small errors move its root."""
    return 1e-12 + 1e-13 / max(radius, 1e-6)


@given(BOTH, BOTH, SHARE, SHARE)
def test_monotone(both: float, other: float, share: float, other_share: float) -> None:
    """In each argument alone, also beyond C_S + 2 C_N = 1, where two lower bounds may come to lie."""
    low, high = sorted((both, other))
    one = one_sided_of(low, share)
    less, more = (float(dipole_radius(one_of, one, sigma=1.0)) for one_of in (low, high))
    assert less <= more + rounding_slack(less)
    one_low, one_high = sorted((one, one_sided_of(low, other_share)))
    less, more = (float(dipole_radius(both, one_of, sigma=1.0)) for one_of in (one_low, one_high))
    assert less <= more + rounding_slack(less)


@given(BOTH, SHARE, SIGMA)
def test_at_least_cohen_and_at_most_a_vanishing_gradient(both: float, share: float, sigma: float) -> None:
    """The pairs tell more than p = C_S + C_N alone, and never more than that the class is symmetric about x."""
    one_sided = one_sided_of(both, share)
    p = both + one_sided
    radius = float(dipole_radius(both, one_sided, sigma=sigma)) / sigma
    # p was rounded to nearest, and near 1 that shows.
    slack = 1e-12 + 4e-16 * math.sqrt(2.0 * math.pi) * math.exp(
        0.5 * float(special.ndtri(min(max(p, 0.5), 1 - 1e-15))) ** 2
    )
    assert radius >= float(gaussian_radius(p, sigma=1.0)) - slack
    if p > 0.5:
        # Near p = ½ this radius grows like a square root, and a rounding of 1e-16 in p moves it by 1e-8.
        assert radius <= float(second_order_radius(p, 0.0, sigma=1.0)) + slack + 1e-7


@given(st.floats(0.0, 1.0 - 1e-9), SIGMA)
def test_all_pairs_that_differ_fall_on_one_side(both: float, sigma: float) -> None:
    """C_S + 2 C_N = 1 is what a half-space gives, and no more than Cohen's radius follows."""
    one_sided = 0.5 * (1.0 - both)
    p = 0.5 * (1.0 + both)
    cohen = float(gaussian_radius(p, sigma=sigma))
    assert float(dipole_radius(both, one_sided, sigma=sigma)) == pytest.approx(cohen, rel=1e-6, abs=1e-13 * sigma)
    if both < 0.9999:
        assert float(dipole_radius(both, one_sided, sigma=sigma)) == pytest.approx(cohen, abs=1e-11 * sigma)


@given(st.floats(0.5 + 1e-6, 1.0 - 1e-12), SIGMA)
def test_no_pair_that_differs_is_a_vanishing_gradient(both: float, sigma: float) -> None:
    second_order = float(second_order_radius(both, 0.0, sigma=sigma))
    assert float(dipole_radius(both, 0.0, sigma=sigma)) == pytest.approx(second_order, abs=1e-10 * sigma)


@given(BOTH, SHARE, SIGMA)
def test_proportional_to_sigma(both: float, share: float, sigma: float) -> None:
    one_sided = one_sided_of(both, share)
    unit = float(dipole_radius(both, one_sided, sigma=1.0))
    assert float(dipole_radius(both, one_sided, sigma=sigma)) == pytest.approx(sigma * unit, rel=1e-14)


@given(BOTH, SHARE)
def test_nothing_at_or_below_one_half(both: float, share: float) -> None:
    one_sided = share * max(0.5 - both, 0.0)
    radius = float(dipole_radius(both, one_sided, sigma=1.0))
    assert (radius > 0) == (both + one_sided > 0.5) or abs(both + one_sided - 0.5) < 1e-13
    if both + one_sided < 0.5:
        assert radius == 0.0


NONSENSE = [math.nan, math.inf, -math.inf, -0.1, -1e-300, 1.0, 1.5]


@pytest.mark.parametrize("bad", NONSENSE)
@pytest.mark.parametrize("position", range(4))
def test_no_radius_from_a_bad_probability(bad: float, position: int) -> None:
    values = [0.8, 0.05, 0.9, 0.02]
    values[position] = bad
    assert dipole_multi_class_radius(*values, sigma=1.0) == 0.0
    if position < 2:
        assert dipole_radius(*values[:2], sigma=1.0) == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 0.0])
def test_no_radius_from_a_bad_sigma(bad: float) -> None:
    assert dipole_radius(0.8, 0.05, sigma=bad) == 0.0
    assert dipole_multi_class_radius(0.8, 0.05, 0.9, 0.02, sigma=bad) == 0.0


def test_a_bad_element_does_not_spoil_its_neighbours() -> None:
    radius = dipole_radius([0.8, math.nan, 0.9, 0.2], [0.05, 0.05, 0.0, 0.1], sigma=[1.0, 1.0, 0.5, 1.0])
    np.testing.assert_array_equal(radius[[1, 3]], 0.0)
    assert radius[0] == dipole_radius(0.8, 0.05, sigma=1.0)
    assert radius[2] == dipole_radius(0.9, 0.0, sigma=0.5)


def test_shapes_broadcast() -> None:
    both, one_sided, third = np.full((3, 1), 0.8), np.array([0.0, 0.1]), np.full((4, 1, 1), 0.5)
    assert dipole_radius(both, one_sided, sigma=third).shape == (4, 3, 2)
    assert dipole_multi_class_radius(both, one_sided, third, 0.01, sigma=0.5).shape == (4, 3, 2)
    assert dipole_lower_bound(both, one_sided, distance=third).shape == (4, 3, 2)
    assert dipole_radius([], [], sigma=1.0).shape == (0,)
    scalar = dipole_radius(0.9, 0, sigma=1)
    assert scalar.shape == ()
    assert float(scalar) == dipole_radius([[0.9]], 0.0, sigma=1.0)[0, 0]


# Several classes.


def test_multi_class_definition_in_fifty_digits() -> None:
    rng = np.random.default_rng(31)
    size = 60
    votes_a, votes_c = rng.dirichlet([2.0, 1.0, 2.0], size), rng.dirichlet([3.0, 1.0, 1.0], size)
    both, one = votes_a[:, 0], 0.5 * votes_a[:, 1]
    neither, other = votes_c[:, 0], 0.5 * votes_c[:, 1]
    one[:5], other[5:10] = 0.0, 0.0
    sigma = 10.0 ** rng.uniform(-3, 3, size)
    radius = dipole_multi_class_radius(both, one, neither, other, sigma=sigma)
    truth = [multi_class_radius_by_definition(*case) for case in zip(both, one, neither, other, sigma, strict=True)]
    gap = gaps(radius, truth, sigma)
    assert (gap >= 0).all()
    assert gap.max() <= 1e-10
    assert np.count_nonzero((both + one < 0.5) & (radius > 0)) > 5
    assert np.count_nonzero(radius == 0) > 5


@given(BOTH, SHARE, BOTH, SHARE)
def test_multi_class_form_is_at_least_the_binary_form(both: float, share: float, neither: float, part: float) -> None:
    one, other = one_sided_of(both, share), one_sided_of(neither, part)
    several = float(dipole_multi_class_radius(both, one, neither, other, sigma=1.0))
    binary = float(dipole_radius(both, one, sigma=1.0))
    assert several >= binary - rounding_slack(binary)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_multi_class_form_of_half_spaces_is_cohens_two_class_form(p: float, share: float) -> None:
    """With C_S = 0 and C_N = p, and the same for the other class turned round, only the values are known."""
    other = share * (1.0 - p)
    several = float(dipole_multi_class_radius(0.0, p, 0.0, 1.0 - other, sigma=0.5))
    assert several == pytest.approx(float(gaussian_two_class_radius(p, other, sigma=0.5)), abs=1e-11)


def test_the_class_with_fewer_votes_may_be_the_nearer_one() -> None:
    """Why every other class is compared with: 11 % of votes on both sides of x lie further off than 10 % on one."""
    runner_up, rarer = dipole_multi_class_radius(0.7, 0.04, [0.88, 0.8], [0.0, 0.1], sigma=1.0)
    assert rarer < runner_up


def test_certificates_by_name() -> None:
    given_quantities = {
        Quantity.PAIR_BOTH_LOWER: np.array([0.8, 0.9]),
        Quantity.PAIR_ONE_SIDED_LOWER: np.array([0.05, 0.01]),
        Quantity.OTHER_NEITHER_LOWER: np.array([[0.8, 0.9], [0.95, 0.99]]),
        Quantity.OTHER_ONE_SIDED_LOWER: np.array([[0.1, 0.04], [0.02, 0.0]]),
    }
    binary = [float(radius_by_definition(0.8, 0.05, 1.0)), float(radius_by_definition(0.9, 0.01, 1.0))]
    for name in ("dipole", "dipole-separate", "dipole-multi-class"):
        certificate = CERTIFICATES[name]
        assert (certificate.family, certificate.norm) == ("dipole", Norm.L2)
        needed = {quantity: given_quantities[quantity] for quantity in certificate.needs}
        radius = certificate.radius(needed, sigma=1.0, smoothing=Smoothing())
        if name == "dipole-multi-class":
            assert radius.shape == (2, 2)
            assert (radius[1] > radius[0]).all()
            assert (radius[0] >= np.array(binary) - 1e-12).all()
        else:
            np.testing.assert_allclose(radius, binary, atol=1e-12)
