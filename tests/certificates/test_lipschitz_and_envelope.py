"""The two radii for a Lipschitz sigma, side by side: the tight one is never smaller."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.certificates import get_certificate
from smoothcert.certificates.envelope import envelope_radius
from smoothcert.certificates.lipschitz import lipschitz_factor, lipschitz_radius
from smoothcert.errors import InputError
from smoothcert.questions import describe_smoothing
from smoothcert.records import FloatArray, LipschitzSigma, Quantity, Smoothing, Widened

PROBABILITY = st.floats(0.5, 0.9999)
DIMENSION = st.sampled_from([1, 2, 10, 49, 784, 3072, 150_528])
SLOPE = st.floats(1e-4, 1.0)


@settings(max_examples=60)
@given(PROBABILITY, DIMENSION, SLOPE, st.floats(0.05, 2), st.floats(1, 4), st.integers(2, 100))
def test_the_tight_radius_is_never_smaller(
    p_a: float, dimension: int, slope: float, floor: float, ratio: float, classes: int
) -> None:
    envelope = LipschitzSigma(constant=slope, floor=floor)
    tight = float(envelope_radius(p_a, sigma=floor * ratio, dimension=dimension, envelope=envelope))
    loose = float(lipschitz_radius(p_a, sigma_min=floor, lipschitz=slope, dimension=dimension, num_classes=classes))
    assert loose <= tight * (1 + 1e-9) + 1e-12


def test_the_papers_settings_side_by_side() -> None:
    """d = 784, floor .65, constant .5: at the floor the tight radius is a seventh larger, and as small."""
    envelope = LipschitzSigma(constant=0.5, floor=0.65)
    p_a = np.array([0.9, 0.99, 0.999])
    tight = envelope_radius(p_a, sigma=0.65, dimension=784, envelope=envelope)
    loose = lipschitz_radius(p_a, sigma_min=0.65, lipschitz=0.5, dimension=784, num_classes=10)
    assert (1.1 * loose < tight).all()
    assert (tight < 0.2).all()
    assert loose == pytest.approx([0.036922, 0.067022, 0.089026], abs=1e-6)


P_A = np.array([0.5001, 0.51, 0.6, 0.9, 0.999, 1 - 1e-7])


def _both(smoothing: Smoothing, *, sigma: float) -> tuple[FloatArray, FloatArray]:
    """The loose and the tight radius, as runs get them."""
    bounds = {Quantity.TOP_LOWER: P_A}
    loose, tight = (
        get_certificate(name).radius(bounds, sigma=np.full(P_A.shape, sigma), smoothing=smoothing)
        for name in ("lipschitz", "envelope")
    )
    return loose, tight


@pytest.mark.parametrize("dimension", [1, 49, 784, 3072, 150_528])
@pytest.mark.parametrize("slope", [1e-3, 0.1, 0.5, 2.0])
def test_on_a_grid_the_tight_radius_of_the_moved_envelope_is_never_smaller(dimension: int, slope: float) -> None:
    for floor, ratio in itertools.product((0.05, 0.65), (1.0, 1.5)):
        smoothing = describe_smoothing(
            LipschitzSigma(constant=slope, floor=floor), dimension=dimension, num_classes=2, grid=256
        )
        loose, tight = _both(smoothing, sigma=floor * ratio)
        assert (loose <= tight + 1e-12).all()


def test_a_shift_costs_what_the_slope_makes_of_it() -> None:
    """R falls by 2·Lip·R(p_min)·shift/(1 + 2·Lip·R(p_min)): nearly the shift where σ is steep, nothing where it is
    constant.
    """
    where = {"sigma_min": 0.65, "dimension": 784, "num_classes": 10}
    for slope in (0.0, 0.01, 0.5, 50.0):
        still, moved = (lipschitz_radius(0.9999, lipschitz=slope, shift=shift, **where) for shift in (0.0, 1e-5))
        weight = 2 * slope * lipschitz_factor(dimension=784, p_min=1e-7)
        assert float(still - moved) == pytest.approx(1e-5 * weight / (1 + weight), rel=1e-6, abs=1e-16)


def test_shifts_inside_each_other_add_up() -> None:
    inner = LipschitzSigma(constant=0.5, floor=0.65)
    twice = Widened(Widened(inner, slack=0.0, shift=1e-4), slack=0.0, shift=2e-4)
    once = Widened(inner, slack=0.0, shift=1e-4 + 2e-4)
    two, one = (_both(Smoothing(envelope=e, dimension=784, num_classes=2), sigma=0.7)[0] for e in (twice, once))
    assert two == pytest.approx(one, rel=1e-12)
    assert one[3] > 0


@pytest.mark.parametrize("shift", [-1e-9, np.inf, np.nan])
def test_a_shift_that_is_no_distance_is_refused(shift: float) -> None:
    with pytest.raises(InputError, match="must be a distance"):
        lipschitz_radius(0.9, sigma_min=0.5, lipschitz=0.1, dimension=4, num_classes=2, shift=shift)
