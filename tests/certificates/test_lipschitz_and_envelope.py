"""The two radii for a Lipschitz sigma, side by side: the tight one is never smaller."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.certificates.envelope import envelope_radius
from smoothcert.certificates.lipschitz import lipschitz_radius
from smoothcert.records import LipschitzSigma

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
