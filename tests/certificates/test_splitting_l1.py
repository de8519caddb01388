"""The deterministic ℓ1 certificate: values by hand, rounding, nonsense, and from votes to radius."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.certificates import get_certificate, splitting_l1_radius
from smoothcert.errors import InputError
from smoothcert.records import Noise, Norm, Proof, Quantity, Smoothing, Stage, StreamId, Tally
from smoothcert.statistics import prove
from smoothcert.statistics.vote_bounds import safe_steps
from splitting_worlds import survived_changes

ON_GRID = Smoothing(dimension=4, num_classes=3, noise=Noise.SPLITTING, grid=256)


def tally(*counts: int, missing: int = 0, stage: Stage = Stage.ESTIMATION) -> Tally:
    return Tally(StreamId(0, 0, stage), 0.5, np.array(counts), missing, ((0, sum(counts) + missing),))


@pytest.mark.parametrize(("votes", "label", "steps"), [((300, 100, 41), 0, 100), ((100, 300, 41), 1, 99)])
def test_the_radii_of_the_specification(votes: tuple[int, ...], label: int, steps: int) -> None:
    assert safe_steps([tally(*votes)], [label], 0.0).tolist() == [steps]
    radius = float(splitting_l1_radius(steps, levels=256))
    assert Fraction(radius) <= Fraction(steps, 255) < Fraction(math.nextafter(radius, 1.0))


@given(st.integers(1, 10**9), st.integers(2, 2**16))
def test_the_radius_is_the_largest_number_not_above_the_exact_one(steps: int, levels: int) -> None:
    radius = float(splitting_l1_radius(steps, levels=levels))
    assert Fraction(radius) <= Fraction(steps, levels - 1) < Fraction(math.nextafter(radius, math.inf))
    assert math.floor(Fraction(math.nextafter(radius, math.inf)) * (levels - 1)) >= steps


@settings(max_examples=40)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=4), st.integers(0, 5))
def test_safe_steps_by_trying_all_votes(counts: list[int], missing: int) -> None:
    if sum(counts) == 0:
        return
    for label in range(len(counts)):
        survived = survived_changes((*counts, missing), label)
        found = int(safe_steps([tally(*counts, missing=missing)], [label], 0.0)[0])
        assert found == survived if survived >= 0 else found < 0


def test_a_class_that_loses_has_negative_steps_and_no_radius() -> None:
    steps = safe_steps([tally(1, 9), tally(5, 5), tally(3, 3, missing=4)], [0, 1, 0], 0.0)
    assert (steps < 0).all()
    assert splitting_l1_radius(steps, levels=256).tolist() == [0.0, 0.0, 0.0]


def test_rows_are_independent_of_one_another() -> None:
    tallies, labels = [tally(9, 1), tally(2, 8), tally(4, 4, missing=2)], [0, 1, 0]
    together = safe_steps(tallies, labels, 0.0)
    assert together.tolist() == [
        float(safe_steps([one], [label], 0.0)[0]) for one, label in zip(tallies, labels, strict=True)
    ]


@pytest.mark.parametrize("steps", [math.nan, math.inf, -math.inf, -3.0, 0.0, 0.999])
def test_nonsense_is_no_radius(steps: float) -> None:
    assert float(splitting_l1_radius(steps, levels=256)) == 0.0


def test_shapes_are_kept_and_parts_of_steps_are_dropped() -> None:
    steps = np.array([[1.0, 2.9], [0.0, 255.0]])
    assert splitting_l1_radius(steps, levels=256).tolist() == [
        [float(splitting_l1_radius(1, levels=256)), float(splitting_l1_radius(2, levels=256))],
        [0.0, 1.0],
    ]


def test_what_it_declares() -> None:
    certificate = get_certificate("splitting-l1")
    assert (certificate.noise, certificate.norm) == (Noise.SPLITTING, Norm.L1)
    assert certificate.needs == (Quantity.SAFE_STEPS,)
    assert all(proof.certain for proof in certificate.proofs)
    steps = {Quantity.SAFE_STEPS: np.array([51.0])}
    assert certificate.radius(steps, sigma=0.5, smoothing=ON_GRID) == splitting_l1_radius([51], levels=256)


def test_inputs_on_no_grid_and_a_sigma_that_varies_are_refused() -> None:
    certificate = get_certificate("splitting-l1")
    certificate.check_suits(ON_GRID)
    with pytest.raises(InputError, match="inputs on a grid"):
        certificate.check_suits(Smoothing(dimension=4, num_classes=3, noise=Noise.SPLITTING))


def test_it_costs_nothing_of_alpha_and_needs_none() -> None:
    proven = prove([tally(300, 100, 41)], [0], [Proof.EVERY_EVALUATION], alpha=0.0)
    assert proven.spent == {Proof.EVERY_EVALUATION: 0.0}
    assert proven.values[Proof.EVERY_EVALUATION][Quantity.SAFE_STEPS].tolist() == [100.0]


def test_votes_for_another_purpose_prove_nothing() -> None:
    with pytest.raises(InputError, match="estimation votes"):
        prove([tally(300, 100, stage=Stage.PREDICTION)], [0], [Proof.EVERY_EVALUATION], alpha=0.0)
