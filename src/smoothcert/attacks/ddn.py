"""Decoupled direction and norm (Rony et al. 2019): the shortest perturbation that makes an answer wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from smoothcert.attacks.geometry import clip_to_bounds, lengths, mask_gradients, per_row, row_mask, steepest_direction
from smoothcert.attacks.target import Target

_FIRST_NORM = 1.0
_LAST_STEP = 0.01
"""The step size falls along a cosine, from the first norm to this share of it."""


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
    """For each input (B, *shape), the closest point seen, in ℓ2 distance, at which the target is wrong.

    The direction follows the gradient. The norm shrinks by the factor 1 - gamma after a wrong answer and grows by
    1 + gamma otherwise. It starts at 1, or at the radius if that is smaller.

    radius: the largest norm, one number or (B,), kept up to rounding of the dtype; None sets no limit. start:
    (B, *shape), gives the first direction. bounds: as for `pgd`. A zero or non-finite gradient does not change the
    direction. Where no point was wrong, the result is the last point; with a radius, it is moved out to the radius or
    the bounds, because few steps do not reach that far and training needs the strongest point. The result is detached.
    """
    cap = torch.full((len(inputs),), math.inf, dtype=inputs.dtype, device=inputs.device)
    if radius is not None:
        cap = torch.as_tensor(radius, dtype=inputs.dtype, device=inputs.device).expand(len(inputs))
    first = cap.clamp_max(_FIRST_NORM)
    norms = first
    deltas = torch.zeros_like(inputs) if start is None else _rescale(start - inputs, norms)
    points = clip_to_bounds(inputs + deltas, bounds)
    closest, shortest = points, torch.full_like(norms, math.inf)
    was_wrong = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    for step in range(steps + 1):
        seen = target(points)
        length = lengths(points - inputs)
        better = seen.wrong & (length < shortest)
        closest = torch.where(row_mask(better, inputs), points, closest)
        shortest, was_wrong = torch.where(better, length, shortest), was_wrong | seen.wrong
        if step == steps:
            break
        share = _LAST_STEP + (1.0 - _LAST_STEP) * (1.0 + math.cos(math.pi * step / steps)) / 2.0
        direction = steepest_direction(mask_gradients(seen.gradients, points, bounds))
        deltas = points - inputs + per_row(first * share, inputs) * direction
        norms = torch.minimum(norms * torch.where(seen.wrong, 1.0 - gamma, 1.0 + gamma), cap)
        points = clip_to_bounds(inputs + _rescale(deltas, norms), bounds)
    if radius is not None:
        points = clip_to_bounds(inputs + _rescale(points - inputs, cap), bounds)
    return torch.where(row_mask(was_wrong, inputs), closest, points).detach()


def _rescale(deltas: Tensor, norms: Tensor) -> Tensor:
    return steepest_direction(deltas) * per_row(norms, deltas)
