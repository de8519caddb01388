"""Launches the Triton kernels of noise; imported only where `device_noise` tries them."""

from __future__ import annotations

import contextlib
import functools
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from smoothcert.noise import constants as c
from smoothcert.noise.device_noise import NoiseTargets, TorchNoise
from smoothcert.noise.float_with_triton import add_float_noise
from smoothcert.noise.grid_law import GridLaw
from smoothcert.noise.grid_with_numpy import grid_key
from smoothcert.noise.grid_with_triton import add_noise_on_grid
from smoothcert.noise.laws import additive_law_of
from smoothcert.noise.with_numpy import split_seed
from smoothcert.records import Noise, StreamId

_EXACT = {"num_warps": 4, "enable_fp_fusion": False, "sanitize_overflow": False}
"""How kernels are compiled: every operation is rounded on its own, and uint32 wraps even if kernels are debugged."""
_GRID_LANES, _LEAST_BLOCKS, _MOST_BLOCKS = 64, 8, 64
"""Blocks of ChaCha20 in a tile, and in a row of it. With more of them, or with shorter rows, ptxas spills registers."""
_FLOAT_LANES = 512
_LANES_INTERPRETED = 1 << 14
"""Triton's interpreter takes the same time for a tile of any size."""


class KernelNoise:
    """Makes noise by one kernel for a range of samples. lanes: the blocks in a tile; None: as many as suit a GPU."""

    name = "the Triton kernel"

    def __init__(self, *, lanes: int | None = None) -> None:
        self._lanes = lanes if lanes is not None or not triton.knobs.runtime.interpret else _LANES_INTERPRETED

    def add_on_grid(
        self, out: NoiseTargets, place: torch.Tensor, law: GridLaw, stream: StreamId, *, start: int
    ) -> None:
        rows, size = out.shape
        tables = _tables_on(place.device, law)
        tile = self._grid_tile(size, tables.unsettled)
        with _on(place.device):
            add_noise_on_grid[(triton.cdiv(rows, tile["ROWS"]),)](
                *out.pointers, place, tables.table, tables.thresholds, law.least, len(law.thresholds), law.levels - 1,
                rows, size, *_halves(start), *_signed(stream.index, int(stream.stage), *grid_key(stream.seed)),
                **tile, **out.flags, **_EXACT,
            )  # fmt: skip

    def add_float(
        self, out: NoiseTargets, x: torch.Tensor, noise: Noise, stream: StreamId, *, sigma: float, start: int
    ) -> None:
        lanes = additive_law_of(noise).load_triton()
        if lanes is None:
            TorchNoise().add_float(out, x, noise, stream, sigma=sigma, start=start)
            return
        rows, size = out.shape
        blocks = -(-size // 4)
        wide = min(triton.next_power_of_2(blocks), self._lanes or _FLOAT_LANES)
        high = max(1, (self._lanes or _FLOAT_LANES) // wide)
        with _on(x.device):
            add_float_noise[(triton.cdiv(rows, high), triton.cdiv(blocks, wide))](
                *out.pointers, x, rows, size, *_halves(int(np.float64(sigma).view(np.uint64))), *_halves(start),
                *_signed(stream.index, int(stream.stage), *split_seed(stream.seed)),
                LANES=lanes, ROWS=high, BLOCKS=wide, **out.flags, **_EXACT,
            )  # fmt: skip

    def _grid_tile(self, size: int, unsettled: float) -> dict[str, int]:
        """unsettled: the share of draws that 16 bits do not settle; it decides how many further blocks are made."""
        wanted = max(_LEAST_BLOCKS, triton.next_power_of_2(-(-size // c.DRAWS_PER_BLOCK)))
        blocks = min(wanted, _MOST_BLOCKS if self._lanes is None else self._lanes)
        further = triton.next_power_of_2(int(unsettled * blocks * c.DRAWS_PER_BLOCK / c.FURTHER_PER_BLOCK) + 1)
        return {
            "ROWS": max(1, (self._lanes or _GRID_LANES) // blocks),
            "BLOCKS": blocks,
            "FURTHER": min(further, blocks),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Tables:
    table: torch.Tensor
    thresholds: torch.Tensor
    unsettled: float


@functools.lru_cache(maxsize=16)
def _tables_on(device: torch.device, law: GridLaw) -> _Tables:
    """The tables as the kernel takes them."""
    with torch.inference_mode(False):
        table, thresholds = torch.tensor(law.table), torch.tensor(law.thresholds.view(np.int64))
        return _Tables(table.to(device), thresholds.to(device), float(np.mean(law.table < 0)))


def _signed(*words: int) -> list[int]:
    """32-bit words as the signed numbers with the same bits: one type for all, so that nothing is compiled anew."""
    return [int(word) for word in np.array(words, dtype=np.uint64).astype(np.uint32).view(np.int32)]


def _halves(number: int) -> list[int]:
    """A 64-bit number as two 32-bit words, the lower one first."""
    return _signed(number & c.WORD, number >> 32)


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current card."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
