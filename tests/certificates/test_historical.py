"""The older radii: quoted values, order among themselves, a second derivation."""

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from smoothcert.certificates import (
    CERTIFICATES,
    gaussian_radius,
    gaussian_two_class_radius,
    lecuyer_radius,
    li_radius,
    radius_of_family,
    renyi_envelope_radius,
    renyi_radius,
)
from smoothcert.errors import InputError
from smoothcert.records import (
    ConstantSigma,
    Envelope,
    LipschitzSigma,
    MonotoneEnvelope,
    Quantity,
    SemiElastic,
    Smoothing,
)


@pytest.mark.parametrize(
    ("p_a", "p_b", "li", "lecuyer"),
    [
        (0.8, 0.2, 0.67422, 0.23516),
        (0.9, 0.1, 1.03193, 0.39027),
        (0.99, 0.01, 1.90801, 0.55487),
        (0.999, 0.0001, 3.04161, 0.57015),
    ],
)
def test_quoted_values(p_a: float, p_b: float, li: float, lecuyer: float) -> None:
    assert li_radius(p_a, p_b, sigma=1.0) == pytest.approx(li, abs=5e-6)
    assert lecuyer_radius(p_a, p_b, sigma=1.0) == pytest.approx(lecuyer, abs=5e-6)


def li_by_definition(p_a: float, p_b: float, order: float) -> mpmath.mpf:
    """The formula as printed, in 60 digits, where nothing cancels."""
    with mpmath.workdps(60):
        a, b, k = mpmath.mpf(p_a), mpmath.mpf(p_b), mpmath.mpf(order)
        mean = ((a ** (1 - k) + b ** (1 - k)) / 2) ** (1 / (1 - k))
        return mpmath.sqrt(-2 / k * mpmath.log(1 - a - b + 2 * mean))


@settings(max_examples=30, deadline=None)
@given(st.floats(0.505, 0.99999), st.floats(0.001, 1.0))
def test_li_is_the_largest_over_orders_and_not_more(p_a: float, share: float) -> None:
    p_b = share * (1 - p_a)
    radius = float(li_radius(p_a, p_b, sigma=1.0))
    scan = max(li_by_definition(p_a, p_b, float(k)) for k in np.geomspace(1.1e-3, 900, 60))
    assert radius >= scan * (1 - 1e-9)
    fine = max(li_by_definition(p_a, p_b, float(k)) for k in np.geomspace(0.05, 50, 400))
    assert radius <= fine * (1 + 1e-3)


@settings(max_examples=200)
@given(st.floats(0.01, 0.999999), st.one_of(st.floats(0.001, 1.0), st.floats(1 - 1e-6, 1.0)))
@example(0.50000001, 1.0)
@example(0.5 + 1e-12, 1.0)
@example(0.3, 0.99999999 * 0.3 / 0.7)
def test_the_tight_radius_is_the_largest(p_a: float, share: float) -> None:
    p_b = share * min(p_a, 1 - p_a)
    tight = float(gaussian_two_class_radius(p_a, p_b, sigma=1.0))
    assert float(lecuyer_radius(p_a, p_b, sigma=1.0)) <= tight
    assert float(li_radius(p_a, p_b, sigma=1.0)) <= tight


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7, 1e-9])
def test_li_near_ties_agrees_with_many_digits(gap: float) -> None:
    """Where the formula as printed cancels in float64."""
    p_a, p_b = 0.5 + gap, 0.5 - gap
    exact = max(li_by_definition(p_a, p_b, float(k)) for k in np.geomspace(0.011, 11.3, 100))
    assert float(li_radius(p_a, p_b, sigma=1.0)) == pytest.approx(float(exact), rel=1e-4)
    assert float(li_radius(p_a, p_b, sigma=1.0)) <= float(exact) * (1 + 1e-3)


def test_family_chooses_the_form_by_what_is_given() -> None:
    p_a, p_b = Quantity.TOP_LOWER, Quantity.RUNNER_UP_UPPER
    assert radius_of_family("gaussian", {p_a: 0.99}, sigma=0.25) == pytest.approx(0.25 * 2.326348, abs=1e-6)
    assert radius_of_family("gaussian", {p_a: 0.6, p_b: 0.1}, sigma=1.0) > radius_of_family(
        "gaussian", {p_a: 0.6}, sigma=1.0
    )
    assert radius_of_family("li", {p_a: 0.8}, sigma=1.0) == pytest.approx(0.67422, abs=5e-6)
    with pytest.raises(InputError, match="needs --p-a"):
        radius_of_family("gaussian", {p_b: 0.1}, sigma=1.0)
    with pytest.raises(InputError, match="did you mean gaussian"):
        radius_of_family("gausian", {p_a: 0.9}, sigma=1.0)
    with pytest.raises(InputError, match="between 0 and 1"):
        radius_of_family("gaussian", {p_a: 1.0}, sigma=1.0)


def renyi_by_definition(p_a: float, p_b: float, sigma: float, other: float, size: int, order: float) -> mpmath.mpf:
    """Squared distance that one order certifies, in 60 digits, from the divergence as it is found in textbooks."""
    with mpmath.workdps(60):
        a, b, s0, s1, k = (mpmath.mpf(v) for v in (p_a, p_b, sigma, other, order))
        mixture = (1 - k) * s1**2 + k * s0**2
        if mixture <= 0:
            return mpmath.mpf(0)
        mean = ((a ** (1 - k) + b ** (1 - k)) / 2) ** (1 / (1 - k))
        threshold = -mpmath.log(1 - a - b + 2 * mean)
        apart = size / (1 - k) * mpmath.log(mpmath.sqrt(mixture) / (s1 ** (1 - k) * s0**k))
        return 2 * mixture / k * (threshold - apart)


def renyi_scan(p_a: float, p_b: float, sigma: float, other: float, size: int, count: int) -> mpmath.mpf:
    orders = [float(k) for k in np.geomspace(1.1e-3, 900, count)]
    squared = max(renyi_by_definition(p_a, p_b, sigma, other, size, order) for order in orders)
    return mpmath.sqrt(max(squared, 0))


def orders_that_certify(p_a: float, p_b: float, levels: list[float], size: int, distance: float) -> np.ndarray:
    """Which of many orders certify all of some levels at a distance, σ₀ = 1, by the textbook divergence."""
    k = np.geomspace(1e-3, 1e3, 4000)
    s = 1 - k
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        mean = np.exp(np.logaddexp(s * np.log(p_a), s * np.log(p_b)) / s - np.log(2) / s)
        certified = np.ones(len(k), dtype=bool)
        for level in levels:
            mixture = s * level**2 + k
            divergence = k * distance**2 / (2 * mixture) + size / s * (0.5 * np.log(mixture) - s * np.log(level))
            certified &= (mixture > 0) & (divergence <= -np.log(1 - p_a - p_b + 2 * mean))
    return certified


def tight_opponent(p_a: float, sigma: float, other: float, size: int, distance: float) -> float:
    """The probability the class loses to at a point that uses another level: the ball of Neyman and Pearson."""
    apart = abs(sigma**2 - other**2)
    here, there = (sigma * distance / apart) ** 2, (other * distance / apart) ** 2
    if other < sigma:
        border = stats.ncx2.ppf(1 - p_a, size, here) if distance > 0 else stats.chi2.ppf(1 - p_a, size)
        return float(stats.ncx2.cdf((sigma / other) ** 2 * border, size, there))
    border = stats.ncx2.ppf(p_a, size, here)
    return float(stats.ncx2.sf((sigma / other) ** 2 * border, size, there))


@pytest.mark.parametrize(
    ("p_a", "p_b", "sigma", "other", "size"),
    [
        (0.99, 0.01, 1.0, 0.8, 1),
        (0.99, 0.01, 1.0, 0.8, 40),
        (0.99, 0.01, 1.0, 0.8, 47),
        (0.99, 0.01, 1.0, 1.25, 20),
        (0.6, 0.1, 0.25, 0.26, 100),
        (0.9, 0.05, 0.25, 0.249, 784),
        (0.999, 0.001, 0.5, 0.5003, 150528),
        (0.999, 0.001, 0.5, 0.5 * (1 - 1e-7), 200000),
        (0.999, 0.001, 0.5, 0.5 * (1 + 1e-12), 200000),
        (0.99, 0.01, 1.0, 5.0, 1),
    ],
)
def test_renyi_against_many_digits(p_a: float, p_b: float, sigma: float, other: float, size: int) -> None:
    radius = float(renyi_radius(p_a, p_b, sigma=sigma, other_sigma=other, dimension=size))
    scan = renyi_scan(p_a, p_b, sigma, other, size, 600)
    assert radius >= scan * (1 - 1e-9)
    assert radius <= scan * (1 + 1e-3)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.51, 0.99999),
    st.floats(0.01, 1.0),
    st.floats(-3.0, 3.0),
    st.integers(1, 200_000),
)
@example(0.99999, 0.03515625, 2.1875, 15)  # few orders certify anything
def test_renyi_is_the_largest_over_orders_and_not_more(p_a: float, share: float, shift: float, size: int) -> None:
    """Levels apart by a few of the steps that the dimension can bear."""
    p_b, other = share * (1 - p_a), float(np.exp(shift / np.sqrt(size)))
    radius = float(renyi_radius(p_a, p_b, sigma=1.0, other_sigma=other, dimension=size))
    tight = float(gaussian_two_class_radius(p_a, p_b, sigma=1.0))
    assert radius >= min(renyi_scan(p_a, p_b, 1.0, other, size, 60), tight) * (1 - 1e-9)
    if radius > 0:
        assert orders_that_certify(p_a, p_b, [other], size, radius * 0.9999 - 1e-3).any()


@given(st.floats(0.505, 0.99999), st.floats(0.001, 1.0), st.floats(1e-3, 1e3), st.integers(1, 200_000))
def test_renyi_is_li_where_the_levels_are_equal(p_a: float, share: float, sigma: float, size: int) -> None:
    p_b = share * (1 - p_a)
    li = float(li_radius(p_a, p_b, sigma=sigma))
    assert float(renyi_radius(p_a, p_b, sigma=sigma, other_sigma=sigma, dimension=size)) == pytest.approx(li, rel=1e-10)
    constant = renyi_envelope_radius(p_a, p_b, sigma=sigma, dimension=size, envelope=ConstantSigma())
    assert float(constant) == pytest.approx(li, rel=1e-6)


@settings(max_examples=300, deadline=None)
@given(st.floats(0.55, 0.9999), st.floats(-3.0, 3.0), st.integers(1, 200))
def test_renyi_never_certifies_what_the_tight_criterion_does_not(p_a: float, shift: float, size: int) -> None:
    other = float(np.exp(shift / np.sqrt(size)))
    if abs(other - 1.0) < 1e-2:
        return  # scipy's quantiles fail at the noncentralities that follow
    radius = float(renyi_radius(p_a, 1 - p_a, sigma=1.0, other_sigma=other, dimension=size))
    if radius > 0:
        assert tight_opponent(p_a, 1.0, other, size, radius) < 0.5


def test_negative_control_the_tight_criterion_refuses_more() -> None:
    radius = float(gaussian_radius(0.99, sigma=1.0))
    assert tight_opponent(0.99, 1.0, 0.9, 50, radius) > 0.5
    assert tight_opponent(0.99, 1.0, 1.1, 50, radius) > 0.5


def test_figure_11_the_radius_falls_to_nothing_at_modest_dimension() -> None:
    """Súkeník et al.: p_A = .99, σ₀ = 1, σ₁ = .8."""
    size = np.arange(1, 101)
    radius = renyi_radius(0.99, 0.01, sigma=1.0, other_sigma=0.8, dimension=size)
    assert np.all(np.diff(radius[radius > 0]) < 0)
    assert size[radius > 0].max() == 47
    assert radius[0] == pytest.approx(2.076, abs=1e-3)


ENVELOPES: list[Envelope] = [
    SemiElastic(0.01),
    SemiElastic(0.2),
    LipschitzSigma(0.05, floor=0.9),
    MonotoneEnvelope("only up", lambda s, a: s + 0 * a, lambda s, a: s + 0.05 * a),
    MonotoneEnvelope("only down", lambda s, a: s / (1 + 0.1 * a), lambda s, a: s + 0 * a),
]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(ENVELOPES), st.floats(0.55, 0.9999), st.floats(0.01, 1.0), st.integers(1, 2000), st.floats(0.0, 1.0)
)
def test_every_level_within_the_envelope_is_certified(
    envelope: Envelope, p_a: float, share: float, size: int, part: float
) -> None:
    """The proof that the ends suffice, tried in between: any level and distance inside is certified by some order."""
    p_b = share * (1 - p_a)
    radius = renyi_envelope_radius(p_a, p_b, sigma=1.0, dimension=size, envelope=envelope)
    assert 0 < radius <= li_radius(p_a, p_b, sigma=1.0) or radius == 0
    low, high = envelope.low(np.ones(1), radius), envelope.high(np.ones(1), radius)
    levels = np.concatenate([np.linspace(low, high, 41).ravel(), low + part * (high - low)])
    assert np.all(renyi_radius(p_a, p_b, sigma=1.0, other_sigma=levels, dimension=size) >= radius * (1 - 1e-4))
    # And it is the end of what this argument certifies: a little further out one of the ends is refused by all orders.
    beyond = np.full(1, float(radius) * 1.001 + 1e-4)
    assert not all(
        orders_that_certify(p_a, p_b, [float(level[0]), 1.0], size, float(beyond[0])).any()
        for level in (envelope.low(np.ones(1), beyond), envelope.high(np.ones(1), beyond))
    )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ENVELOPES), st.floats(0.55, 0.9999), st.integers(1, 200))
def test_the_envelope_radius_is_never_above_the_tight_one(envelope: Envelope, p_a: float, size: int) -> None:
    radius = float(renyi_envelope_radius(p_a, 1 - p_a, sigma=1.0, dimension=size, envelope=envelope))
    assert radius <= gaussian_radius(p_a, sigma=1.0)
    for level in (envelope.low(np.ones(1), np.full(1, radius)), envelope.high(np.ones(1), np.full(1, radius))):
        if radius > 0 and abs(float(level[0]) - 1.0) > 1e-2:
            assert tight_opponent(p_a, 1.0, float(level[0]), size, radius) < 0.5


def test_renyi_refuses_what_makes_no_sense() -> None:
    bad = [0.0, -1.0, np.nan, np.inf, 1e-9, 1e9, 1e300]
    assert not renyi_radius(0.99, 0.01, sigma=1.0, other_sigma=bad, dimension=10).any()
    assert not renyi_radius(0.99, 0.01, sigma=bad[:4], other_sigma=1.0, dimension=10).any()
    assert not renyi_radius(0.99, 0.01, sigma=1.0, other_sigma=1.0, dimension=[0, -3, np.nan, np.inf]).any()
    assert not renyi_radius([0.5, 0.3, 1.0, np.nan], 0.5, sigma=1.0, other_sigma=1.0, dimension=10).any()
    wild = MonotoneEnvelope("wild", lambda s, a: np.full_like(a, np.nan), lambda s, a: np.full_like(a, np.inf))
    assert renyi_envelope_radius(0.99, 0.01, sigma=1.0, dimension=10, envelope=wild) == 0.0


def test_renyi_as_a_certificate() -> None:
    p_a, p_b = Quantity.TOP_LOWER, Quantity.RUNNER_UP_UPPER
    varying = Smoothing(envelope=SemiElastic(0.01), dimension=784)
    binary = radius_of_family("renyi", {p_a: 0.99}, sigma=0.25, smoothing=varying)
    two_class = radius_of_family("renyi", {p_a: 0.6, p_b: 0.05}, sigma=0.25, smoothing=varying)
    assert 0 < binary < radius_of_family("li", {p_a: 0.99}, sigma=0.25)
    assert two_class > radius_of_family("renyi", {p_a: 0.6}, sigma=0.25, smoothing=varying)
    assert CERTIFICATES["renyi"].varying_sigma
    assert CERTIFICATES["renyi-two-class"].varying_sigma
    assert radius_of_family("renyi", {p_a: 0.99}, sigma=0.25) == radius_of_family("li", {p_a: 0.99}, sigma=0.25)
    with pytest.raises(InputError, match="dimension"):
        radius_of_family("renyi", {p_a: 0.99}, sigma=0.25, smoothing=Smoothing(envelope=SemiElastic(0.01)))
