"""Projected gradient ascent in a ball around every input (Madry et al. 2018; Cohen et al. 2019, J.3)."""

from __future__ import annotations

from torch import Tensor

from smoothcert.attacks.geometry import inside, per_row, project, steepest, usable
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

    Every step goes `step_size` along the steepest direction of unit norm, then back into the ball and into `bounds`,
    which the inputs must lie in. radius and step_size: one number, or (B,); by default 2·radius/steps, enough to cross
    the ball once. start: (B, *shape), by default the inputs (see `random_start`); it is projected too. A gradient that
    is 0 or not finite moves nothing. The result is the last point, which the target is never asked about. It lies in
    the ball up to the rounding of its dtype, and is detached.
    """
    stride = per_row(radius, inputs) * (2.0 / max(steps, 1)) if step_size is None else per_row(step_size, inputs)
    points = inputs if start is None else _back(inputs, start - inputs, radius, bounds, norm)
    for _ in range(steps):
        seen = target(points)
        direction = steepest(usable(seen.gradients, points, bounds), norm=norm)
        points = _back(inputs, points - inputs + stride * direction, radius, bounds, norm)
    return points.detach()


def _back(
    inputs: Tensor, deltas: Tensor, radius: float | Tensor, bounds: tuple[float, float] | None, norm: Norm
) -> Tensor:
    return inside(inputs + project(deltas, radius=radius, norm=norm), bounds)
