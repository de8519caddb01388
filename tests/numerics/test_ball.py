"""Probabilities of balls: interval arithmetic, quoted values, closed forms, and the inverse."""

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from ball_arithmetic import ball_inside, ball_outside, contradicts, log_uniform, normal_below
from ball_probabilities import ball_probability, boundary_of_inside, boundary_of_outside, noncentral_chi_square
from smoothcert.numerics.ball import RELATIVE_ERROR, ball_tails
from smoothcert.records import FloatArray

DIMENSION = st.integers(0, 1000).map(lambda step: round(200_000 ** (step / 1000)))  # 1 … 200000
CENTRE = st.one_of(st.just(0.0), st.floats(-8, 6.5).map(lambda power: float(10**power)))  # κ² up to 1e13
SMALL = st.floats(-300, -0.31).map(lambda power: float(10**power))  # a tail, down to 1e-300


@pytest.mark.parametrize(
    ("dimension", "noncentrality", "z", "expected"),
    [
        (784, 1e4, -6, 3.2005818011758e-10),
        (3072, 1e6, -6, 8.8519375245068e-10),
        (150_528, 1e6, -3, 1.3332459053996e-3),
        (196_608, 1e8, -6, 9.7601269668570e-10),
        (196_608, 1e12, -6, 9.8648132197151e-10),
        (3072, 1e12, -3, 1.3498803042184e-3),
    ],
)
def test_quoted_probabilities(dimension: int, noncentrality: float, z: float, expected: float) -> None:
    x = dimension + noncentrality + z * np.sqrt(2 * (dimension + 2 * noncentrality))
    inside, outside = noncentral_chi_square(x, dimension=dimension, noncentrality=noncentrality)
    # The last two were found from an x in floats: a unit in the last place of x=1e12 moves the boundary by 1e-10.
    assert inside == pytest.approx(expected, rel=1e-12)
    assert outside == pytest.approx(1 - expected, rel=1e-15)


def random_balls(count: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """N, κ and τ: most with one tail between ½ and 1e-300, some at random distances from the mean."""
    generator = np.random.default_rng(seed)
    dimension = np.floor(log_uniform(generator, 1, 200_001, count))
    centre = np.sqrt(log_uniform(generator, 1e-6, 1e13, count)) * (generator.random(count) < 0.9)
    tail = 0.5 * 10.0 ** (-300 * generator.random(count) ** 3)
    by_inside = boundary_of_inside(tail, dimension=dimension, centre=centre)
    by_outside = boundary_of_outside(tail, dimension=dimension, centre=centre)
    by_hand = centre - np.sqrt(dimension + centre**2) * generator.uniform(0.7, 1.3, count)
    which = generator.integers(0, 5, count)
    return dimension, centre, np.select([which < 2, which < 4], [by_inside, by_outside], by_hand)


def assert_true(dimension: FloatArray, centre: FloatArray, boundary: FloatArray, relative_error: float) -> None:
    inside, outside = ball_probability(dimension=dimension, centre=centre, boundary=boundary)
    compared = 0
    for n, kappa, tau, got_in, got_out in zip(dimension, centre, boundary, inside, outside, strict=True):
        where = f"N={n:.0f}, κ={kappa!r}, τ={tau!r}"
        if got_in > 1e-300:
            assert not contradicts(got_in, ball_inside(int(n), kappa, tau), relative_error), where
            compared += 1
        if got_out > 1e-300:
            assert not contradicts(got_out, ball_outside(int(n), kappa, tau), relative_error), where
            compared += 1
    assert compared >= 1.5 * len(inside)


def test_against_interval_arithmetic() -> None:
    """At 160 random balls neither probability is off by more than 3e-12; the documentation promises 1e-11."""
    assert RELATIVE_ERROR == 1e-11
    assert_true(*random_balls(160, seed=4), relative_error=3e-12)


def test_where_certificates_look() -> None:
    """Probabilities of 1e-9 … ½ of balls far away, or not: better than 3e-13."""
    generator = np.random.default_rng(5)
    dimension = np.floor(log_uniform(generator, 1, 200_001, 60))
    centre = np.sqrt(log_uniform(generator, 1e2, 1e13, 60))
    tail = log_uniform(generator, 1e-9, 0.5, 60)
    far, near = generator.random(60) < 0.5, generator.random(60) < 0.5
    centre = np.where(far, np.maximum(centre, np.sqrt(dimension)), centre)
    inverse = (boundary_of_inside(tail, dimension=dimension, centre=centre), boundary_of_outside)
    boundary = np.where(near, inverse[0], inverse[1](tail, dimension=dimension, centre=centre))
    assert_true(dimension, centre, boundary, relative_error=3e-13)


@pytest.mark.parametrize("dimension", [1, 2, 3, 784, 200_000])
@pytest.mark.parametrize("centre", [0.0, 1e-150, 1e-3, 1.0, 30.0, 1e3, 3.1e6])
def test_corners(dimension: int, centre: float) -> None:
    """Small balls, balls around the mean, boundaries through the mean and through the middle of the law."""
    middle = float(boundary_of_inside(0.5, dimension=dimension, centre=centre))
    boundaries = [middle, np.nextafter(middle, -np.inf), 0.0, 1e-9, -1e-9, centre - 1e-3, centre - 1.0, -8.0]
    boundary = np.array([tau for tau in boundaries if tau < centre])
    inside, outside = ball_probability(dimension=dimension, centre=centre, boundary=boundary)
    for tau, got_in, got_out in zip(boundary, inside, outside, strict=True):
        if got_in > 1e-300:
            assert not contradicts(got_in, ball_inside(dimension, centre, tau), 3e-12), tau
        if got_out > 1e-300:
            assert not contradicts(got_out, ball_outside(dimension, centre, tau), 3e-12), tau


@given(CENTRE, st.floats(-1, 300))
def test_one_dimension(centre: float, excess: float) -> None:
    """An interval. Differences of Φ, the oracle's closed form."""
    radius = abs(centre + excess) + 1e-6
    inside, outside = ball_probability(dimension=1, centre=centre, boundary=centre - radius)
    tau = centre - radius
    if inside > 1e-300:
        assert not contradicts(float(inside), ball_inside(1, centre, tau), 3e-12)
    if outside > 1e-300:
        assert not contradicts(float(outside), ball_outside(1, centre, tau), 3e-12)
    if centre > 100:
        assert outside == pytest.approx(float(special.ndtr(tau)), rel=1e-10, abs=1e-300)


@given(st.floats(1e-12, 1300))
def test_central_with_two_and_three_degrees(x: float) -> None:
    radius = np.sqrt(x)
    square = radius**2  # what the ball has: x to its last digit is not its square
    inside, outside = ball_probability(dimension=2, centre=0.0, boundary=-radius)
    assert inside == pytest.approx(-np.expm1(-square / 2), rel=1e-12)
    assert outside == pytest.approx(np.exp(-square / 2), rel=1e-12)
    inside, outside = ball_probability(dimension=3, centre=0.0, boundary=-radius)
    surface = np.sqrt(2 / np.pi) * radius * np.exp(-square / 2)
    assert outside == pytest.approx(special.erfc(radius / np.sqrt(2)) + surface, rel=1e-12)
    if x > 1:
        assert inside == pytest.approx(special.erf(radius / np.sqrt(2)) - surface, rel=1e-12)


@given(st.integers(1, 2000), st.floats(0.01, 3000))
def test_central_is_the_incomplete_gamma_function(dimension: int, x: float) -> None:
    inside, outside = noncentral_chi_square(x, dimension=dimension, noncentrality=0.0)
    if inside > 1e-250:
        assert inside == pytest.approx(special.gammainc(dimension / 2, x / 2), rel=2e-12)
    if outside > 1e-250:
        assert outside == pytest.approx(special.gammaincc(dimension / 2, x / 2), rel=2e-12)


@given(DIMENSION, st.floats(-36, 36), st.floats(1e12, 1e15))
def test_a_distant_ball_is_a_half_space(dimension: int, z: float, centre: float) -> None:
    """The boundary bends by N/2κ within reach, and not at all as κ → ∞."""
    bend = (dimension + z**2) / centre
    inside, outside = ball_probability(dimension=dimension, centre=centre, boundary=z)
    assert inside == pytest.approx(float(special.ndtr(-z)), rel=1e-12 + 40 * bend)
    assert outside == pytest.approx(float(special.ndtr(z)), rel=1e-12 + 40 * bend)


def test_the_oracle_knows_its_closed_forms() -> None:
    """Interval arithmetic against itself: central law, half-space limit, and both sides adding up to one."""
    for dimension, radius in [(2, 1.5), (7, 0.01), (784, 29.0), (200_000, 450.0)]:
        central = (arb(radius) ** 2 / 2).gamma_upper(arb(dimension) / 2, regularized=1)
        assert ball_outside(dimension, 0.0, -radius).overlaps(central)
    for dimension, centre, boundary in [(1, 3.0, 1.0), (2, 0.5, -1.0), (50, 1e6, 0.3), (150_528, 900.0, -80.0)]:
        with ctx.workprec(128):
            whole = ball_inside(dimension, centre, boundary) + ball_outside(dimension, centre, boundary)
        assert whole.overlaps(arb(1))
        assert float(whole.rad()) < 1e-17
    assert abs(ball_inside(3, 1e18, 2.0) - normal_below(-2.0)) < 1e-16


@given(DIMENSION, CENTRE, st.floats(0, 1), st.floats(-40, 40))
def test_both_sides_add_up_and_nothing_is_nan(dimension: int, centre: float, mix: float, shift: float) -> None:
    """Boundaries anywhere between κ and beyond the bulk of the law; pytest turns any warning into a failure."""
    reach = np.sqrt(dimension + centre**2)
    boundary = centre - max(reach * 2 * mix + shift, 0.0)
    inside, outside = ball_probability(dimension=dimension, centre=centre, boundary=boundary)
    assert 0 <= inside <= 1
    assert 0 <= outside <= 1
    assert inside + outside == pytest.approx(1.0, abs=2 * RELATIVE_ERROR)
    tails = ball_tails(dimension=dimension, centre=centre, boundary=boundary)
    assert float(np.exp(tails.log_inside)) == float(inside)
    assert float(np.exp(tails.log_outside)) == float(outside)
    assert not np.isnan(tails.log_density)


@settings(max_examples=50)
@given(DIMENSION, CENTRE)
def test_monotone_in_the_boundary(dimension: int, centre: float) -> None:
    """Along steps that are larger than the error of evaluation, through both tails."""
    ends = [
        boundary_of_inside(1e-290, dimension=dimension, centre=centre),
        boundary_of_outside(1e-290, dimension=dimension, centre=centre),
    ]
    boundary = np.linspace(ends[1], ends[0], 2000)
    inside, outside = ball_probability(dimension=dimension, centre=centre, boundary=boundary)
    resolution = 20 * RELATIVE_ERROR
    below = inside < 0.5
    assert (np.diff(inside[below]) < 0).all()
    assert (np.diff(outside[~below]) > 0).all()
    assert (np.diff(inside) <= resolution * inside[1:]).all()
    assert (np.diff(outside) >= -resolution * outside[1:]).all()


@given(DIMENSION, CENTRE, SMALL, st.booleans())
def test_the_inverse(dimension: int, centre: float, tail: float, complement: bool) -> None:
    """The boundary has the requested probability, up to the resolution of floats near κ."""
    probability = 1 - tail if complement and tail > 1e-10 else tail
    for side, inverse in enumerate((boundary_of_inside, boundary_of_outside)):
        boundary = float(inverse(probability, dimension=dimension, centre=centre))
        assert boundary <= centre
        radius = centre - boundary
        if radius < 1e-50:
            continue
        got = ball_probability(dimension=dimension, centre=centre, boundary=boundary)[side]
        tails = ball_tails(dimension=dimension, centre=centre, boundary=boundary)
        slope = 2 * radius * np.exp(float(tails.log_density) - (tails.log_inside, tails.log_outside)[side])
        blur = 4e-16 * max(1.0, abs(boundary)) + 4e-16 * min(centre, 1e9 * radius)
        assert got == pytest.approx(probability, rel=max(2 * RELATIVE_ERROR, slope * blur))


@given(DIMENSION, CENTRE, st.floats(-8, 8))
def test_the_inverse_of_the_forward_function(dimension: int, centre: float, z: float) -> None:
    start = float(boundary_of_inside(float(special.ndtr(z)), dimension=dimension, centre=centre))
    inside, outside = ball_probability(dimension=dimension, centre=centre, boundary=start)
    error = 1e-11 * max(1.0, abs(start)) + 4e-16 * centre
    if z < 2:  # a probability near 1 no longer tells where the boundary is
        assert boundary_of_inside(inside, dimension=dimension, centre=centre) == pytest.approx(start, abs=error)
    if z > -2:
        assert boundary_of_outside(outside, dimension=dimension, centre=centre) == pytest.approx(start, abs=error)


def test_log_density_is_the_derivative() -> None:
    dimension, centre, x = 784.0, 40.0, 2300.0
    step = 1e-3
    upper, lower = (
        noncentral_chi_square(x + h, dimension=dimension, noncentrality=centre**2)[0] for h in (step, -step)
    )
    tails = ball_tails(dimension=dimension, centre=centre, boundary=centre - np.sqrt(x))
    assert np.exp(tails.log_density) == pytest.approx((upper - lower) / (2 * step), rel=1e-8)


def test_tails_beyond_the_smallest_float() -> None:
    """In logarithms there is no end at 1e-308."""
    tails = ball_tails(dimension=784, centre=1e5, boundary=[-60.0, 60.0])
    assert tails.log_outside[0] == pytest.approx(special.log_ndtr(-60.0), rel=1e-2)
    assert tails.log_inside[1] == pytest.approx(special.log_ndtr(-60.0), rel=1e-2)


@pytest.mark.parametrize(
    ("dimension", "centre", "boundary"),
    [
        (np.nan, 1, 0),
        (5, np.nan, 0),
        (5, 1, np.nan),
        (0, 1, 0),
        (-1, 1, 0),
        (5, 1, 2),
        (5, np.inf, 0),
        (5, 1, -np.inf),
    ],
)
def test_out_of_range_is_nan_and_spoils_nothing_else(dimension: float, centre: float, boundary: float) -> None:
    inside, outside = ball_probability(dimension=[dimension, 5], centre=[centre, 1], boundary=[boundary, 0])
    assert np.isnan(inside[0])
    assert np.isnan(outside[0])
    assert inside[1] == pytest.approx(float(ball_inside(5, 1, 0).mid()), rel=1e-12)


@pytest.mark.parametrize("probability", [0.0, 1.0, -1.0, 2.0, np.nan])
def test_no_boundary_for_what_is_no_probability(probability: float) -> None:
    for inverse in (boundary_of_inside, boundary_of_outside):
        found = inverse([probability, 0.5], dimension=5, centre=1.0)
        assert np.isnan(found[0])
        assert np.isfinite(found[1])


def test_degenerate_balls_and_shapes() -> None:
    inside, outside = ball_probability(dimension=7, centre=[0.0, 2.0], boundary=[0.0, 2.0])
    assert inside.tolist() == [0.0, 0.0]
    assert outside.tolist() == [1.0, 1.0]
    assert ball_probability(dimension=[[1], [2]], centre=[1.0, 2.0, 3.0], boundary=0.0)[0].shape == (2, 3)
    assert ball_probability(dimension=[], centre=[], boundary=[])[1].shape == (0,)
    assert boundary_of_inside([[0.1, 0.2]], dimension=[[1], [2]], centre=1.0).shape == (2, 2)


def test_elements_do_not_depend_on_their_neighbours() -> None:
    """Pieces that fit into the cache, and nodes by the neediest element, must not show in the results."""
    dimension, centre, boundary = random_balls(5000, seed=6)
    together = ball_probability(dimension=dimension, centre=centre, boundary=boundary)[0]
    for i in range(0, 5000, 250):
        alone = float(ball_probability(dimension=dimension[i], centre=centre[i], boundary=boundary[i])[0])
        assert alone == pytest.approx(float(together[i]), rel=3e-12)
