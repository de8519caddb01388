"""Noise where a model on a device needs it, in the type that the model takes: who makes it is chosen here alone.

On CUDA cards one Triton kernel makes and adds the noise of a range of samples (`with_triton`), if Triton is installed
and the kernel draws the bits of the host on this card. Everywhere else torch operations do, one for each step of the
generators. The bits are the same.
"""

from __future__ import annotations

import functools
import os
import warnings
from dataclasses import dataclass
from typing import Protocol

import torch

from smoothcert.noise.grid_law import GridLaw
from smoothcert.noise.grid_with_torch import from_grid, grid_draws
from smoothcert.noise.with_torch import scale_noise, unit_noise
from smoothcert.records import Noise, StreamId


@dataclass(frozen=True, slots=True, eq=False)
class NoiseTargets:
    """Tensors that get x+ε, x-ε, and ε itself; at least one. All are contiguous, (rows, size), and on one device.

    plus, minus: of any floating-point type; sums are rounded to float32 first. draws: int32, steps of a grid; or
    float32, noise of level 1.
    """

    plus: torch.Tensor | None = None
    minus: torch.Tensor | None = None
    draws: torch.Tensor | None = None

    @property
    def _given(self) -> list[torch.Tensor]:
        return [target for target in (self.plus, self.minus, self.draws) if target is not None]

    @property
    def shape(self) -> tuple[int, int]:
        rows, size = self._given[0].shape
        return rows, size

    @property
    def pointers(self) -> list[torch.Tensor]:
        """All three as a kernel takes them; it does not use what `flags` rules out."""
        return [self._given[0] if target is None else target for target in (self.plus, self.minus, self.draws)]

    @property
    def flags(self) -> dict[str, bool]:
        targets = {"ADD": self.plus, "SUBTRACT": self.minus, "KEEP": self.draws}
        return {name: target is not None for name, target in targets.items()}


class DeviceNoise(Protocol):
    """Makes noise on a device. name: for messages."""

    name: str

    def add_on_grid(
        self, out: NoiseTargets, place: torch.Tensor, law: GridLaw, stream: StreamId, *, start: int
    ) -> None:
        """Write the noisy copies with samples start, start+1, … of a stream. place: (size,) int32, steps of x."""

    def add_float(
        self, out: NoiseTargets, x: torch.Tensor, noise: Noise, stream: StreamId, *, sigma: float, start: int
    ) -> None:
        """The same for noise in floating point. x: (size,) float32."""


class TorchNoise:
    """Makes noise by torch operations, on every device."""

    name = "torch"

    def add_on_grid(
        self, out: NoiseTargets, place: torch.Tensor, law: GridLaw, stream: StreamId, *, start: int
    ) -> None:
        rows, size = out.shape
        steps = grid_draws(law, stream, start=start, count=rows, size=size, device=place.device)
        add_steps(out, place, steps, levels=law.levels)

    def add_float(
        self, out: NoiseTargets, x: torch.Tensor, noise: Noise, stream: StreamId, *, sigma: float, start: int
    ) -> None:
        rows, size = out.shape
        unit = unit_noise(noise, stream, start=start, count=rows, size=size, device=x.device)
        add_scaled(out, x, unit, sigma=sigma)


def add_steps(out: NoiseTargets, place: torch.Tensor, steps: torch.Tensor, *, levels: int) -> None:
    """Write the copies with noise that was drawn on a grid."""
    if out.draws is not None:
        out.draws.copy_(steps)
    if out.plus is not None:
        out.plus.copy_(from_grid(place + steps, levels))
    if out.minus is not None:
        out.minus.copy_(from_grid(place - steps, levels))


def add_scaled(out: NoiseTargets, x: torch.Tensor, unit: torch.Tensor, *, sigma: float) -> None:
    """Write the copies with noise that was drawn in floating point, at level 1."""
    if out.draws is not None:
        out.draws.copy_(unit)
    if out.plus is None and out.minus is None:
        return
    scaled = scale_noise(unit, sigma=sigma)
    if out.plus is not None:
        out.plus.copy_(x + scaled)
    if out.minus is not None:
        out.minus.copy_(x - scaled)


@functools.cache
def device_noise(device: torch.device, dtype: torch.dtype = torch.float32) -> DeviceNoise:
    """Who makes noise for a model on this device that takes values of this type."""
    return find_kernel(device, dtype) or TorchNoise()


def find_kernel(device: torch.device, dtype: torch.dtype) -> DeviceNoise | None:
    """The kernel, if it can be used on this device and draws the bits of the host there."""
    if not can_have_kernel(device):
        return None
    try:
        from smoothcert.noise.with_triton import KernelNoise
    except ImportError:
        return None
    problem: str | None
    try:
        from smoothcert.noise.device_test import find_difference

        problem = find_difference(kernel := KernelNoise(), device, dtype)
    except Exception as error:  # of a compiler or a driver: they have no common type
        problem = f"it fails with {type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[-1]}"
    if problem is None:
        return kernel
    warnings.warn(f"the noise kernel is not used on {device}, torch operations are: {problem}", stacklevel=2)
    return None


def can_have_kernel(device: torch.device) -> bool:
    """CUDA cards, and the processor where Triton's interpreter is asked for."""
    return device.type == "cuda" or (device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1")
