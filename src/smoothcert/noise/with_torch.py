"""Float noise in torch operations, made where an accelerator needs it; the same bits as `with_numpy`."""

from __future__ import annotations

import torch

from smoothcert.noise import constants as c
from smoothcert.noise.law import TorchLanes
from smoothcert.noise.laws import additive_law_of
from smoothcert.noise.with_numpy import split_seed
from smoothcert.records import Noise, StreamId


def philox(counter: TorchLanes, key: tuple[int, int]) -> TorchLanes:
    """Philox4x32-10 on int64 tensors of 32-bit words; products wrap modulo 2⁶⁴, which keeps their bits right."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(c.ROUNDS):
        p0 = c.MULTIPLIER_0 * c0
        p1 = c.MULTIPLIER_1 * c2
        c0, c1, c2, c3 = ((p1 >> 32) & c.WORD) ^ c1 ^ k0, p1 & c.WORD, ((p0 >> 32) & c.WORD) ^ c3 ^ k1, p0 & c.WORD
        k0 = (k0 + c.WEYL_0) & c.WORD
        k1 = (k1 + c.WEYL_1) & c.WORD
    return c0, c1, c2, c3


def unit_noise(
    noise: Noise, stream: StreamId, *, start: int, count: int, size: int, device: torch.device
) -> torch.Tensor:
    """Samples start … start+count-1 of a stream, at level 1. Returns (count, size) float32 on `device`."""
    blocks = -(-size // 4)
    counter = torch.arange(start, start + count, dtype=torch.int64, device=device)[:, None].expand(count, blocks)
    block = torch.arange(blocks, dtype=torch.int64, device=device)[None, :].expand(count, blocks)
    high = (((counter >> 32) & c.WORD) << 8) | int(stream.stage)
    place = (block, counter & c.WORD, torch.full_like(counter, stream.index), high)
    words = philox(place, split_seed(stream.seed))
    return torch.cat(additive_law_of(noise).lanes_with_torch(words), dim=1)[:, :size]


def scale_noise(unit: torch.Tensor, *, sigma: float) -> torch.Tensor:
    """sigma · unit in float64, rounded once to float32. MPS has no float64: there the CPU multiplies."""
    wide = (unit.cpu() if unit.device.type == "mps" else unit).double()
    return (wide * sigma).float().to(unit.device)
