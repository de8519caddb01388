"""Splitting in torch operations, made where an accelerator needs it; the same bits as `splitting.split_with_numpy`."""

from __future__ import annotations

import functools

import torch

from smoothcert.noise.grid_with_torch import divide
from smoothcert.noise.splitting import draw_offsets


@functools.lru_cache(maxsize=16)
def offsets_on(device: torch.device, seed: int, *, evaluations: int, size: int) -> torch.Tensor:
    """The offsets v on a device: (size,) int64, not to be written to. They are moved there once, not for each batch."""
    with torch.inference_mode(False):  # training uses them too
        offsets = torch.tensor(draw_offsets(seed, evaluations=evaluations, size=size), dtype=torch.int64)
        return offsets.to(device)


def split_with_torch(
    k: torch.Tensor, offsets: torch.Tensor, numbers: torch.Tensor, *, evaluations: int, levels: int
) -> torch.Tensor:
    """float32. k, offsets: (…, size) int64; numbers: the evaluations s, int64, of a shape that broadcasts with k."""
    below = k - 1 - (k - 1 - offsets - numbers) % evaluations
    lower = (2 * below + 1).clamp(min=0)
    upper = (2 * (below + evaluations) + 1).clamp(max=2 * (levels - 1))
    return divide(lower + upper, 4 * (levels - 1))
