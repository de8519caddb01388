"""Projected gradient ascent in a ball around each input (Madry et al. 2018; Cohen et al. 2019, J.3)."""

from __future__ import annotations

from torch import Tensor

from smoothcert.attacks.geometry import clip_to_bounds, mask_gradients, per_row, project, steepest_direction
from smoothcert.attacks.target import Target
from smoothcert.records import Norm


def pgd(
    target: Target,
    inputs: Tensor,
    *,
    radius: float | Tensor,
    steps: int,
    step_size: float | Tensor | None = None,
    start: Tensor | None = None,
    bounds: tuple[float, float] | None = None,
    norm: Norm = Norm.L2,
) -> Tensor:
    """Points (B, *shape) within `radius` of the inputs (B, *shape) at which the target's loss is large.

    Each step moves `step_size` in the steepest direction of unit norm, then projects onto the ball and clips to
    `bounds`, which must contain the inputs. radius, step_size: one number or (B,). step_size is 2·radius/steps by
    default, enough to cross the ball once. start: (B, *shape), projected too; the inputs by default (see
    `random_start`). A zero or non-finite gradient moves nothing. Returns the last point, detached, which the target has
    not assessed. It is inside the ball up to rounding of its dtype.
    """

    def move(deltas: Tensor) -> Tensor:
        return clip_to_bounds(inputs + project(deltas, radius=radius, norm=norm), bounds)

    stride = per_row(radius, inputs) * (2.0 / max(steps, 1)) if step_size is None else per_row(step_size, inputs)
    points = inputs if start is None else move(start - inputs)
    for _ in range(steps):
        gradients = mask_gradients(target(points).gradients, points, bounds)
        points = move(points - inputs + stride * steepest_direction(gradients, norm=norm))
    return points.detach()
