"""Splitting in torch operations, made where an accelerator needs it; the same bits as `splitting.split_with_numpy`."""

from __future__ import annotations

import torch


def split_with_torch(
    k: torch.Tensor, offsets: torch.Tensor, numbers: torch.Tensor, *, evaluations: int, levels: int
) -> torch.Tensor:
    """float32. k, offsets: (…, size) int64; numbers: the evaluations s, int64, of a shape that broadcasts with k.

    The divisor is a tensor: some devices replace division by a number by a product with its inverse. Division on MPS
    may not be correctly rounded: there the CPU divides.
    """
    below = k - 1 - (k - 1 - offsets - numbers) % evaluations
    lower = (2 * below + 1).clamp(min=0)
    upper = (2 * (below + evaluations) + 1).clamp(max=2 * (levels - 1))
    sums = (lower + upper).to(torch.float32)
    divisor = torch.full((1,), 4 * (levels - 1), dtype=torch.float32, device=sums.device)
    if sums.device.type == "mps":
        return (sums.cpu() / divisor.cpu()).to(sums.device)
    return sums / divisor
