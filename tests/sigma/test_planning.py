"""How fast σ may vary: the radius is certified at the slope found, and not at a slightly larger one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.certificates import envelope_radius, gaussian_radius, worst_case_probability
from smoothcert.errors import InputError
from smoothcert.records.envelopes import LipschitzSigma, SemiElastic
from smoothcert.sigma.sigma_planning import USUAL_SHARE, SigmaPlan, fastest_rate, plan

DIMENSIONS = st.sampled_from([1, 2, 10, 784, 3072, 150_528])


def radius_at(rate: float, *, dimension: int, sigma: float, p_a: float) -> float:
    return float(envelope_radius(p_a, sigma=sigma, dimension=dimension, envelope=SemiElastic(rate=rate)))


@settings(max_examples=5)
@given(DIMENSIONS, st.floats(0.05, 4.0), st.floats(0.55, 0.99999), st.floats(0.1, 0.99))
def test_the_fastest_rate_bears_the_radius_and_a_thousandth_more_does_not(
    dimension: int, sigma: float, p_a: float, share: float
) -> None:
    wanted = share * float(gaussian_radius(p_a, sigma=sigma))
    rate = fastest_rate(dimension=dimension, sigma=sigma, p_a=p_a, radius=wanted)
    assert rate > 0
    assert radius_at(rate, dimension=dimension, sigma=sigma, p_a=p_a) >= wanted
    assert radius_at(1.001 * rate, dimension=dimension, sigma=sigma, p_a=p_a) < wanted


@pytest.mark.parametrize(
    ("dimension", "sigma", "rate", "p_a", "radius"),
    [(2, 0.5, 0.1, 0.99, 1.16003484), (784, 0.25, 0.01, 0.99993, 0.94738778), (3072, 1.0, 0.01, 0.999, 2.42471562)],
)
def test_it_inverts_published_radii(dimension: int, sigma: float, rate: float, p_a: float, radius: float) -> None:
    found = fastest_rate(dimension=dimension, sigma=sigma, p_a=p_a, radius=radius)
    assert found == pytest.approx(rate, rel=2e-5)


def test_all_lengths_scale_together() -> None:
    """Twice the σ and the radius: half the rate."""
    small, large = (fastest_rate(dimension=49, sigma=0.25 * c, p_a=0.99, radius=0.5 * c) for c in (1, 2))
    assert large == pytest.approx(small / 2, rel=2e-5)


def test_more_dimensions_or_more_radius_leave_less_speed() -> None:
    by_dimension = [fastest_rate(dimension=d, sigma=0.25, p_a=0.999, radius=0.7) for d in (2, 784, 3072)]
    by_radius = [by_dimension[1], fastest_rate(dimension=784, sigma=0.25, p_a=0.999, radius=0.77)]
    for rates in (by_dimension, by_radius):
        assert rates == sorted(rates, reverse=True)
        assert rates[-1] > 0


@pytest.fixture(scope="module")
def usual() -> SigmaPlan:
    return plan(dimension=784, sigma=0.25, p_a=0.999)


def by_lipschitz(found: SigmaPlan, constant: float) -> float:
    envelope = LipschitzSigma(constant=constant, floor=found.floor)
    return float(envelope_radius(found.p_a, sigma=found.sigma, dimension=found.dimension, envelope=envelope))


def test_the_usual_plan(usual: SigmaPlan) -> None:
    assert usual.constant_radius == float(gaussian_radius(0.999, sigma=0.25))
    assert usual.radius == USUAL_SHARE * usual.constant_radius
    assert usual.floor < 0.01 * 0.25
    assert radius_at(usual.rate, dimension=784, sigma=0.25, p_a=0.999) >= usual.radius
    assert by_lipschitz(usual, usual.lipschitz) >= usual.radius > by_lipschitz(usual, 1.001 * usual.lipschitz)
    # To first order around σ, a rate of log σ is a slope of σ rate.
    assert usual.lipschitz == pytest.approx(0.25 * usual.rate, rel=0.05)


def test_a_floor_only_helps(usual: SigmaPlan) -> None:
    """σ that cannot fall is bounded by its growth alone."""
    floored = plan(dimension=784, sigma=0.25, p_a=0.999, floor=0.25)
    assert floored.rate == usual.rate
    assert floored.lipschitz > usual.lipschitz
    assert by_lipschitz(floored, floored.lipschitz) >= usual.radius > by_lipschitz(floored, 1.001 * floored.lipschitz)


@pytest.mark.parametrize("dimension", [784, 150_528])
def test_curves_fall_and_pass_through_what_was_found(usual: SigmaPlan, dimension: int) -> None:
    found = usual if dimension == 784 else plan(dimension=dimension, sigma=0.25, p_a=0.999)
    for fastest, (slopes, radii) in ((found.rate, found.rate_curve), (found.lipschitz, found.lipschitz_curve)):
        assert (np.diff(slopes) > 0).all()
        assert (np.diff(radii) <= 0).all()
        assert (radii[slopes < 0.999 * fastest] >= found.radius).all()
        assert (radii[slopes > 1.001 * fastest] < found.radius).all()
        assert slopes[0] < 0.1 * fastest < 10 * fastest < slopes[-1]
        assert found.constant_radius >= radii[0] > radii[-1] >= 0


def test_outside_the_ratios_nothing_is_certified(usual: SigmaPlan) -> None:
    """At any distance. Theorem 4 (Table 1: .9076) is only a necessary condition, so its limit is less strict."""
    smallest, largest = usual.ratios
    assert 0.9076 < smallest < 1 < largest < 1.1
    for ratio in (smallest * 0.999, largest * 1.001):
        chance = worst_case_probability(0.999, sigma=0.25, other_sigma=0.25 * ratio, distance=1e-6, dimension=784)
        assert float(chance) >= 0.5
    for ratio in (smallest * 1.001, largest * 0.999):
        chance = worst_case_probability(0.999, sigma=0.25, other_sigma=0.25 * ratio, distance=1e-6, dimension=784)
        assert float(chance) < 0.5


def test_all_of_the_radius_leaves_no_speed() -> None:
    """Only a constant σ certifies the whole radius. The curve is computed nevertheless."""
    whole = float(gaussian_radius(0.99, sigma=0.25))
    found = plan(dimension=2, sigma=0.25, p_a=0.99, radius=whole)
    assert found.rate <= 1e-9
    assert found.lipschitz <= 1e-9
    for slopes, radii in (found.rate_curve, found.lipschitz_curve):
        assert (slopes > 0).all()
        assert (radii < whole).all()


def test_the_largest_radius_that_is_named_can_be_had() -> None:
    with pytest.raises(InputError) as caught:
        plan(dimension=2, sigma=0.25, p_a=0.99, radius=1.0)
    named = float(str(caught.value).split("certifies only ")[1].split(";")[0])
    assert named <= float(gaussian_radius(0.99, sigma=0.25))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimension": 0}, "--dim 0 must be at least 1"),
        ({"sigma": -0.25}, "positive finite"),
        ({"sigma": math.nan}, "positive finite"),
        ({"p_a": 0.5}, "--p-a 0.5 must lie between 0.5 and 1"),
        ({"p_a": 1.0}, "--p-a 1.0 must lie between"),
        ({"p_a": math.nan}, "--p-a nan must lie between"),
        ({"radius": 2.0}, r"--radius 2 is not possible: .* a constant sigma certifies only 0\.58158"),
        ({"radius": 0.0}, "--radius 0 is not possible"),
        ({"radius": math.nan}, "--radius nan is not possible"),
        ({"floor": 0.3}, r"--floor 0\.3 must be positive and at most sigma 0\.25"),
        ({"floor": 0.0}, "--floor 0 must be positive"),
    ],
)
def test_what_cannot_be_planned(changes: dict[str, float], message: str) -> None:
    settings = {"dimension": 784, "sigma": 0.25, "p_a": 0.99, **changes}
    with pytest.raises(InputError, match=message):
        plan(**settings)  # type: ignore[arg-type]
