"""Noise on a grid in torch operations, made where an accelerator needs it; the same values as `grid_with_numpy`."""

from __future__ import annotations

import functools

import numpy as np
import torch

from smoothcert.noise import constants as c
from smoothcert.noise.chacha import Key
from smoothcert.noise.grid_law import MORE_BITS, GridLaw
from smoothcert.noise.grid_with_numpy import grid_key
from smoothcert.records import StreamId

_SIGN = -(1 << 63)


def chacha(position: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], key: Key) -> list[torch.Tensor]:
    """The ChaCha20 block function on int64 tensors of 32-bit words: 16 of them. position: the counter and the nonce."""
    start = [torch.full_like(position[0], word) for word in (*c.CHACHA_CONSTANTS, *key)]
    start += position
    state = list(start)
    for _ in range(c.CHACHA_DOUBLE_ROUNDS):
        for a, b, third, d in c.CHACHA_QUARTERS:
            for one, other, mixed, places in ((a, b, d, 16), (third, d, b, 12), (a, b, d, 8), (third, d, b, 7)):
                state[one] = (state[one] + state[other]) & c.WORD
                state[mixed] = _rotate(state[mixed] ^ state[one], places)
    return [(mixed + first) & c.WORD for mixed, first in zip(state, start, strict=True)]


def _rotate(word: torch.Tensor, places: int) -> torch.Tensor:
    return ((word << places) & c.WORD) | (word >> (32 - places))


def grid_draws(
    law: GridLaw, stream: StreamId, *, start: int, count: int, size: int, device: torch.device
) -> torch.Tensor:
    """Samples start … start+count-1 of a stream. Returns (count, size) int32 on `device`."""
    table, thresholds = _tables(law, device)
    blocks = -(-size // c.DRAWS_PER_BLOCK)
    counter = torch.arange(start, start + count, dtype=torch.int64, device=device)
    block = torch.arange(blocks, dtype=torch.int64, device=device)
    words = _row_words(stream, counter=counter.repeat_interleave(blocks), block=block.repeat(count))
    halves = torch.stack([words & 0xFFFF, words >> 16], dim=2)
    first = halves.reshape(count, blocks * c.DRAWS_PER_BLOCK)[:, :size]
    place = table[first]
    unsettled = place < 0
    row, column = torch.nonzero(unsettled, as_tuple=True)
    if len(row):
        rank = unsettled.cumsum(dim=1)[row, column] - 1
        further_block = c.FURTHER_BLOCKS + rank // c.FURTHER_PER_BLOCK
        further = _row_words(stream, counter=counter[row], block=further_block)
        pair = 2 * (rank % c.FURTHER_PER_BLOCK)
        second, third = (further.gather(1, (pair + i)[:, None])[:, 0] for i in range(2))
        u = (first[row, column] << MORE_BITS) | (second << 16) | (third >> 16)
        # Unsigned 64-bit numbers in signed tensors: flipping the upper bit keeps their order.
        place[row, column] = torch.searchsorted(thresholds, u ^ _SIGN, right=True)
    return (place + law.least).to(torch.int32)


def from_grid(integers: torch.Tensor, levels: int) -> torch.Tensor:
    """float32(k) / float32(levels-1), k clipped to ±(2²⁴-1): the same bits as in host memory."""
    return divide(integers.clamp(-c.GREATEST_WHOLE, c.GREATEST_WHOLE), levels - 1)


def divide(integers: torch.Tensor, divisor: int) -> torch.Tensor:
    """float32(k) / float32(divisor), rounded once on every device. |k| and divisor: below 2²⁴.

    The divisor is a tensor: some devices replace division by a number by a product with its inverse. Division on MPS
    may not be correctly rounded: there the CPU divides.
    """
    exact = integers.to(torch.float32)
    if exact.device.type == "mps":
        return (exact.cpu() / torch.tensor(divisor, dtype=torch.float32)).to(exact.device)
    return exact / torch.full((1,), divisor, dtype=torch.float32, device=exact.device)


def _row_words(stream: StreamId, *, counter: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    """The words of some blocks: (n, 16). counter: (n,) of the row, block: (n,) in the row."""
    high = ((counter >> 32) << 8) | int(stream.stage)
    place = (block, counter & c.WORD, torch.full_like(counter, stream.index), high)
    return torch.stack(chacha(place, grid_key(stream.seed)), dim=1)


@functools.lru_cache(maxsize=16)
def _tables(law: GridLaw, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Table and thresholds on a device, int64; the upper bit of the thresholds is flipped."""
    flipped = (law.thresholds ^ np.uint64(1 << 63)).view(np.int64)
    return torch.from_numpy(law.table.astype(np.int64)).to(device), torch.from_numpy(flipped).to(device)
