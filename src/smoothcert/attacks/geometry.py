"""The balls that perturbations live in: lengths, projections, steepest directions, random points; ℓ2 and ℓ1.

All functions work row by row on (B, *shape) tensors and keep dtype and device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.records import Norm

_SHARE_OF_COORDINATES = 0.01
"""Of all coordinates, how many an ℓ1 step moves. The steepest ℓ1 direction is a single coordinate, which is slow."""


def lengths(deltas: Tensor, *, norm: Norm = Norm.L2) -> Tensor:
    """(B,): the norm of every row."""
    rows = deltas.flatten(1)
    return rows.abs().sum(dim=1) if norm is Norm.L1 else rows.square().sum(dim=1).sqrt()


def per_row(values: float | Tensor, like: Tensor) -> Tensor:
    """One number, or (B,) of them, shaped so that it multiplies the rows of `like`."""
    column = torch.as_tensor(values, dtype=like.dtype, device=like.device)
    return column.expand(len(like)).reshape(-1, *(1 for _ in like.shape[1:]))


def rows(flags: Tensor, like: Tensor) -> Tensor:
    """(B,) flags, shaped so that they choose among the rows of `like`."""
    return flags.view(-1, *(1 for _ in like.shape[1:]))


def project(deltas: Tensor, *, radius: float | Tensor, norm: Norm = Norm.L2) -> Tensor:
    """The nearest point, in ℓ2 distance, of the ball of that radius around 0; radius: one number or (B,).

    Up to the rounding of the dtype: the result may be longer than the radius by a few units in the last place.
    """
    limit = per_row(radius, deltas)
    if norm is Norm.L2:
        length = per_row(lengths(deltas), deltas)
        return torch.where(length > limit, deltas * (limit / length.clamp_min(torch.finfo(deltas.dtype).tiny)), deltas)
    return _project_l1(deltas.flatten(1), limit.flatten(1)).view_as(deltas)


def _project_l1(rows: Tensor, limit: Tensor) -> Tensor:
    """Soft thresholding (Duchi et al. 2008): every coordinate shrinks by the same amount, to no less than 0.

    rows: (B, d). limit: (B, 1).
    """
    sizes = rows.abs()
    descending = sizes.sort(dim=1, descending=True).values
    counts = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=rows.dtype)
    excess = (descending.cumsum(dim=1) - limit) / counts
    # At least one coordinate stays, also for a limit of 0, where it is shrunk to 0.
    staying = (descending > excess).sum(dim=1, keepdim=True).clamp_min(1)
    threshold = excess.gather(1, staying - 1)
    shrunk = rows.sign() * (sizes - threshold).clamp_min(0.0)
    # The threshold is as exact as the row is long; what that leaves beyond a small limit is scaled away.
    length = shrunk.abs().sum(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    shrunk = shrunk * (limit / length).clamp_max(1.0)
    return torch.where(sizes.sum(dim=1, keepdim=True) > limit, shrunk, rows)


def steepest(gradients: Tensor, *, norm: Norm = Norm.L2) -> Tensor:
    """The direction of unit norm along which each loss grows fastest; 0 where the gradient is 0.

    ℓ1: the signs of the largest percent of the coordinates, in equal shares (Tramèr and Boneh 2019).
    """
    if norm is Norm.L2:
        directions = gradients
    else:
        rows = gradients.flatten(1)
        most = max(1, round(_SHARE_OF_COORDINATES * rows.shape[1]))
        least = rows.abs().topk(most, dim=1).values[:, -1:]
        directions = torch.where(rows.abs() >= least, rows.sign(), torch.zeros_like(rows)).view_as(gradients)
    # Twice: a gradient so small that its squares vanish has its largest entry brought to 1 first.
    scale = per_row(directions.flatten(1).abs().amax(dim=1), directions)
    scaled = torch.where(scale > 0, directions / scale, torch.zeros_like(directions))
    length = per_row(lengths(scaled, norm=norm), scaled)
    return torch.where(length > 0, scaled / length, torch.zeros_like(scaled))


def random_start(inputs: Tensor, *, radius: float | Tensor, generator: torch.Generator, norm: Norm = Norm.L2) -> Tensor:
    """(B, *shape): the inputs moved by a random vector, uniform in the ball of that radius."""
    size = inputs[0].numel()
    normal = torch.randn(inputs.shape, generator=generator, device=inputs.device, dtype=inputs.dtype)
    if norm is Norm.L1:
        # Exponentials over their sum are uniform on the simplex.
        sizes = torch.empty_like(inputs).exponential_(generator=generator)
        normal = normal.sign() * sizes
    share = torch.rand(len(inputs), generator=generator, device=inputs.device, dtype=inputs.dtype) ** (1.0 / size)
    unit = normal / per_row(lengths(normal, norm=norm), normal)
    return inputs + unit * per_row(share, unit) * per_row(radius, unit)


def inside(points: Tensor, bounds: tuple[float, float] | None) -> Tensor:
    """Points cut to values in bounds.

    Around an input that itself lies in bounds, cutting shortens every coordinate of a perturbation: no ball is left.
    """
    return points if bounds is None else points.clamp(*bounds)


def usable(gradients: Tensor, points: Tensor, bounds: tuple[float, float] | None) -> Tensor:
    """The gradients without non-finite entries, and without those that push a coordinate out of bounds it is at."""
    finite = gradients.nan_to_num(0.0, 0.0, 0.0)
    if bounds is None:
        return finite
    low, high = bounds
    stuck = ((points <= low) & (finite < 0)) | ((points >= high) & (finite > 0))
    return finite.masked_fill(stuck, 0.0)
