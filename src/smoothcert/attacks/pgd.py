"""Projected gradient ascent in a ball around every input (Madry et al. 2018; Cohen et al. 2019, J.3)."""

from __future__ import annotations

import enum

import torch
from torch import Tensor

from smoothcert.attacks.geometry import inside, per_row, project, steepest, usable
from smoothcert.attacks.target import Assessment, Target
from smoothcert.records import Norm


class Keep(enum.Enum):
    """Which of the points seen an attack gives back."""

    LAST = "the last point; the target is never asked about it, so this saves one look (training)"
    BEST = "the point of the largest loss, those that are wrong before those that are not, the start among them"


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
    keep: Keep = Keep.LAST,
) -> Tensor:
    """Points (B, *shape) within `radius` of the inputs (B, *shape) at which the target's loss is large.

    Every step goes `step_size` along the steepest direction of unit norm, then back into the ball and into `bounds`,
    which the inputs must lie in. radius and step_size: one number, or (B,); by default 2·radius/steps, enough to cross
    the ball once. start: (B, *shape), by default the inputs (see `random_start`); it is projected too. A gradient that
    is 0 or not finite moves nothing. The result lies in the ball up to the rounding of its dtype, and is detached.
    """
    stride = per_row(radius, inputs) * (2.0 / max(steps, 1)) if step_size is None else per_row(step_size, inputs)
    points = inputs if start is None else _back(inputs, start - inputs, radius, bounds, norm)
    best = None
    for _ in range(steps):
        seen = target(points)
        best = _better(best, points, seen) if keep is Keep.BEST else None
        direction = steepest(usable(seen.gradients, points, bounds), norm=norm)
        points = _back(inputs, points - inputs + stride * direction, radius, bounds, norm)
    if keep is Keep.LAST:
        return points.detach()
    return _better(best, points, target(points))[0].detach()


def _back(
    inputs: Tensor, deltas: Tensor, radius: float | Tensor, bounds: tuple[float, float] | None, norm: Norm
) -> Tensor:
    return inside(inputs + project(deltas, radius=radius, norm=norm), bounds)


_Best = tuple[Tensor, Tensor, Tensor]
"""Points, their losses, and whether they are wrong."""


def _better(best: _Best | None, points: Tensor, seen: Assessment) -> _Best:
    losses = seen.losses.nan_to_num(-torch.inf, torch.inf, -torch.inf)
    if best is None:
        return points, losses, seen.wrong
    kept, kept_losses, kept_wrong = best
    takes = (seen.wrong & ~kept_wrong) | ((seen.wrong == kept_wrong) & (losses > kept_losses))
    rows = takes.view(-1, *(1 for _ in points.shape[1:]))
    return torch.where(rows, points, kept), torch.where(takes, losses, kept_losses), kept_wrong | seen.wrong
