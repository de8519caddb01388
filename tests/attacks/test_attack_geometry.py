"""Balls, projections and steepest directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.optimize import minimize
from torch import Tensor

from smoothcert.attacks import lengths, project, random_start, steepest_direction
from smoothcert.attacks.geometry import clip_to_bounds, mask_gradients
from smoothcert.records import Norm

NORMS = [Norm.L1, Norm.L2]
_rows = arrays(np.float64, array_shapes(min_dims=2, max_dims=3, max_side=6), elements=st.floats(-1e3, 1e3)).map(
    torch.from_numpy
)


@pytest.mark.parametrize("norm", NORMS)
@given(deltas=_rows, radius=st.floats(0.0, 1e3))
def test_a_projection_lies_in_the_ball_and_projecting_again_changes_nothing(
    norm: Norm, deltas: Tensor, radius: float
) -> None:
    once = project(deltas, radius=radius, norm=norm)
    assert (lengths(once, norm=norm) <= radius * (1 + 1e-12) + 1e-12).all()
    torch.testing.assert_close(project(once, radius=radius, norm=norm), once, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
@given(deltas=_rows, radius=st.floats(0.0, 1e3), seed=st.integers(0, 2**16))
def test_no_point_of_the_ball_is_closer_than_the_projection(
    norm: Norm, deltas: Tensor, radius: float, seed: int
) -> None:
    """Of a convex set: the angle at the projection, between the point and any member of the set, is not acute."""
    nearest = project(deltas, radius=radius, norm=norm)
    generator = torch.Generator().manual_seed(seed)
    member = random_start(torch.zeros_like(deltas), radius=radius, generator=generator, norm=norm)
    products = ((deltas - nearest) * (member - nearest)).flatten(1).sum(dim=1)
    assert (products <= 1e-6 * (1 + deltas.abs().max()) ** 2).all()


def test_the_l1_projection_is_what_an_optimiser_finds() -> None:
    point, radius = np.array([0.9, -0.5, 0.2, 0.05]), 0.8
    # In positive and negative parts the ball is a simplex, and the problem is smooth.
    found = minimize(
        lambda parts: float(np.sum((parts[:4] - parts[4:] - point) ** 2)),
        np.full(8, 0.05),
        bounds=[(0, None)] * 8,
        constraints={"type": "ineq", "fun": lambda parts: radius - parts.sum()},
        options={"ftol": 1e-14, "maxiter": 1000},
    ).x
    mine = project(torch.from_numpy(point)[None], radius=radius, norm=Norm.L1)[0].numpy()
    np.testing.assert_allclose(mine, found[:4] - found[4:], atol=1e-5)


def test_what_lies_inside_is_not_moved_and_each_row_has_its_own_radius() -> None:
    deltas = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]])
    projected = project(deltas, radius=torch.tensor([1.0, 6.0, 0.0]))
    torch.testing.assert_close(projected, torch.tensor([[0.6, 0.8], [3.0, 4.0], [0.0, 0.0]]))


@pytest.mark.parametrize("norm", NORMS)
def test_a_steepest_direction_has_unit_norm_and_climbs(norm: Norm) -> None:
    gradients = torch.randn(5, 3, 7, generator=torch.Generator().manual_seed(1))
    directions = steepest_direction(gradients, norm=norm)
    torch.testing.assert_close(lengths(directions, norm=norm), torch.ones(5))
    climbs = (directions * gradients).flatten(1).sum(dim=1)
    # Hölder: no direction of unit norm climbs faster than the dual norm of the gradient.
    best = lengths(gradients) if norm is Norm.L2 else gradients.flatten(1).abs().amax(dim=1)
    torch.testing.assert_close(climbs, best)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30])
def test_gradients_of_any_size_have_a_direction_and_zero_has_none(norm: Norm, size: float) -> None:
    directions = steepest_direction(torch.full((1, 4), size), norm=norm)
    assert torch.isfinite(directions).all()
    torch.testing.assert_close(lengths(directions, norm=norm), torch.tensor([0.0 if size == 0 else 1.0]))


@pytest.mark.parametrize("norm", NORMS)
def test_random_starts_fill_the_ball_evenly(norm: Norm) -> None:
    """In dimension 2 half of all points lie within radius/√2, and every coordinate is as often positive as negative."""
    inputs = torch.zeros(20_000, 2)
    points = random_start(inputs, radius=2.0, generator=torch.Generator().manual_seed(5), norm=norm)
    size = lengths(points, norm=norm)
    assert size.max() <= 2.0001
    assert abs(float((size < 2.0 / 2**0.5).float().mean()) - 0.5) < 0.015
    assert (points > 0).float().mean(dim=0).sub(0.5).abs().max() < 0.015


def test_bounds_cut_points_and_take_away_gradients_that_lead_out() -> None:
    points = torch.tensor([[0.0, 1.0, 0.5, 0.0]])
    gradients = torch.tensor([[-1.0, 1.0, float("nan"), 1.0]])
    assert mask_gradients(gradients, points, (0.0, 1.0)).tolist() == [[0.0, 0.0, 0.0, 1.0]]
    assert mask_gradients(gradients, points, None).tolist() == [[-1.0, 1.0, 0.0, 1.0]]
    assert clip_to_bounds(torch.tensor([[-0.5, 1.5]]), (0.0, 1.0)).tolist() == [[0.0, 1.0]]
