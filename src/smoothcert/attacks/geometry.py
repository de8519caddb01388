"""ℓ1 and ℓ2 balls: lengths, projections, steepest directions and random points.

All functions work row by row on (B, *shape) tensors and keep dtype and device.
"""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor

from smoothcert.records import Norm

_SHARE_OF_COORDINATES = 0.01
"""Share of the coordinates that an ℓ1 step moves. The steepest ℓ1 direction is a single coordinate, which is slow."""


def lengths(deltas: Tensor, *, norm: Norm = Norm.L2) -> Tensor:
    """(B,): the norm of each row."""
    flat = deltas.flatten(1)
    match norm:
        case Norm.L1:
            return flat.abs().sum(dim=1)
        case Norm.L2:
            return flat.square().sum(dim=1).sqrt()
    assert_never(norm)


def per_row(values: float | Tensor, like: Tensor) -> Tensor:
    """One number, or (B,) numbers, shaped so that they multiply the rows of `like`."""
    column = torch.as_tensor(values, dtype=like.dtype, device=like.device)
    return column.expand(len(like)).reshape(-1, *(1 for _ in like.shape[1:]))


def row_mask(flags: Tensor, like: Tensor) -> Tensor:
    """(B,) flags, shaped so that they select rows of `like`."""
    return flags.view(-1, *(1 for _ in like.shape[1:]))


def project(deltas: Tensor, *, radius: float | Tensor, norm: Norm = Norm.L2) -> Tensor:
    """The nearest point, in ℓ2 distance, of the ball of that radius around 0. radius: one number or (B,).

    Because of rounding the result can exceed the radius by a few units in the last place.
    """
    limit = per_row(radius, deltas)
    match norm:
        case Norm.L1:
            return _project_l1(deltas.flatten(1), limit.flatten(1)).view_as(deltas)
        case Norm.L2:
            length = per_row(lengths(deltas), deltas)
            shrunk = deltas * (limit / length.clamp_min(torch.finfo(deltas.dtype).tiny))
            return torch.where(length > limit, shrunk, deltas)
    assert_never(norm)


def _project_l1(rows: Tensor, limit: Tensor) -> Tensor:
    """Soft thresholding (Duchi et al. 2008): each coordinate shrinks by the same amount, to no less than 0.

    rows: (B, d). limit: (B, 1).
    """
    sizes = rows.abs()
    descending = sizes.sort(dim=1, descending=True).values
    counts = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=rows.dtype)
    excess = (descending.cumsum(dim=1) - limit) / counts
    # At least one coordinate is kept, also for a limit of 0, where it is shrunk to 0.
    kept = (descending > excess).sum(dim=1, keepdim=True).clamp_min(1)
    threshold = excess.gather(1, kept - 1)
    shrunk = rows.sign() * (sizes - threshold).clamp_min(0.0)
    # The error of the threshold is relative to the length of the row; scaling removes the excess over a small limit.
    length = shrunk.abs().sum(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    shrunk = shrunk * (limit / length).clamp_max(1.0)
    return torch.where(sizes.sum(dim=1, keepdim=True) > limit, shrunk, rows)


def steepest_direction(gradients: Tensor, *, norm: Norm = Norm.L2) -> Tensor:
    """The direction of unit norm in which each loss grows fastest; 0 where the gradient is 0.

    ℓ1: the signs of the largest 1 % of the coordinates, with equal weights (Tramèr and Boneh 2019).
    """
    match norm:
        case Norm.L1:
            flat = gradients.flatten(1)
            most = max(1, round(_SHARE_OF_COORDINATES * flat.shape[1]))
            least = flat.abs().topk(most, dim=1).values[:, -1:]
            directions = torch.where(flat.abs() >= least, flat.sign(), torch.zeros_like(flat)).view_as(gradients)
        case Norm.L2:
            directions = gradients
        case _:
            assert_never(norm)
    # The largest entry is scaled to 1 first, so that the squares of a tiny gradient do not underflow.
    scale = per_row(directions.flatten(1).abs().amax(dim=1), directions)
    scaled = torch.where(scale > 0, directions / scale, torch.zeros_like(directions))
    length = per_row(lengths(scaled, norm=norm), scaled)
    return torch.where(length > 0, scaled / length, torch.zeros_like(scaled))


def random_start(inputs: Tensor, *, radius: float | Tensor, generator: torch.Generator, norm: Norm = Norm.L2) -> Tensor:
    """(B, *shape): each input plus a random vector, uniform in the ball of that radius."""
    size = inputs[0].numel()
    vectors = torch.randn(inputs.shape, generator=generator, device=inputs.device, dtype=inputs.dtype)
    match norm:
        case Norm.L1:
            # Exponential variables divided by their sum are uniform on the simplex.
            vectors = vectors.sign() * torch.empty_like(inputs).exponential_(generator=generator)
        case Norm.L2:
            pass
        case _:
            assert_never(norm)
    share = torch.rand(len(inputs), generator=generator, device=inputs.device, dtype=inputs.dtype) ** (1.0 / size)
    unit = vectors / per_row(lengths(vectors, norm=norm), vectors)
    return inputs + unit * per_row(share, unit) * per_row(radius, unit)


def clip_to_bounds(points: Tensor, bounds: tuple[float, float] | None) -> Tensor:
    """Clip all values to the bounds, if any.

    For an input within the bounds, clipping shortens each coordinate of a perturbation, so no point leaves its ball.
    """
    return points if bounds is None else points.clamp(*bounds)


def mask_gradients(gradients: Tensor, points: Tensor, bounds: tuple[float, float] | None) -> Tensor:
    """Set to 0 what no step can use: non-finite entries, and entries that push a coordinate beyond its bound."""
    finite = gradients.nan_to_num(0.0, 0.0, 0.0)
    if bounds is None:
        return finite
    low, high = bounds
    stuck = ((points <= low) & (finite < 0)) | ((points >= high) & (finite > 0))
    return finite.masked_fill(stuck, 0.0)
