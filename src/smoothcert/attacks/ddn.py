"""Decoupled direction and norm (Rony et al. 2019): the shortest perturbation that makes an answer wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from smoothcert.attacks.geometry import inside, lengths, per_row, rows, steepest, usable
from smoothcert.attacks.target import Target

_FIRST_NORM = 1.0
_LAST_STEP = 0.01
"""The step shrinks along a cosine, from the first norm to this share of it."""


def ddn(
    target: Target,
    inputs: Tensor,
    *,
    steps: int,
    radius: float | Tensor | None = None,
    gamma: float = 0.05,
    start: Tensor | None = None,
    bounds: tuple[float, float] | None = None,
) -> Tensor:
    """For each input (B, *shape) the closest point seen, in ℓ2 distance, at which the target is wrong.

    The direction follows the gradient; the norm by itself shrinks by the factor 1 - gamma after a point that was wrong
    and grows by 1 + gamma after one that was not. radius: a cap on the norm, one number or (B,), never exceeded but for
    the rounding of the dtype; None lets it grow. Where no point was wrong the last one is given back, and under a cap
    the one in its direction at the cap, or where the bounds cut it: few steps do not get that far by themselves, and
    it is the point to train on. start: (B, *shape), whose direction is begun with; the first norm is 1, or the cap if
    that is smaller. bounds: as for `pgd`. A gradient that is 0 or not finite turns nothing. The result is detached.
    """
    cap = torch.full((len(inputs),), math.inf, dtype=inputs.dtype, device=inputs.device)
    if radius is not None:
        cap = torch.as_tensor(radius, dtype=inputs.dtype, device=inputs.device).expand(len(inputs))
    first = cap.clamp_max(_FIRST_NORM)
    norms = first
    deltas = torch.zeros_like(inputs) if start is None else _of_length(start - inputs, norms)
    points = inside(inputs + deltas, bounds)
    closest, shortest = points, torch.full_like(norms, math.inf)
    found = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    for step in range(steps + 1):
        seen = target(points)
        length = lengths(points - inputs)
        better = seen.wrong & (length < shortest)
        closest = torch.where(rows(better, inputs), points, closest)
        shortest, found = torch.where(better, length, shortest), found | seen.wrong
        if step == steps:
            break
        share = _LAST_STEP + (1.0 - _LAST_STEP) * (1.0 + math.cos(math.pi * step / steps)) / 2.0
        direction = steepest(usable(seen.gradients, points, bounds))
        deltas = points - inputs + per_row(first * share, inputs) * direction
        norms = torch.minimum(norms * torch.where(seen.wrong, 1.0 - gamma, 1.0 + gamma), cap)
        deltas = _of_length(deltas, norms)
        points = inside(inputs + deltas, bounds)
    if radius is not None:
        points = inside(inputs + _of_length(points - inputs, cap), bounds)
    return torch.where(rows(found, inputs), closest, points).detach()


def _of_length(deltas: Tensor, norms: Tensor) -> Tensor:
    return steepest(deltas) * per_row(norms, deltas)
