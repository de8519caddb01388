"""Compares noise that a device makes with that of plain numpy, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from smoothcert.errors import NoiseError
from smoothcert.noise import grid_with_numpy, with_numpy
from smoothcert.noise.device_noise import DeviceNoise, NoiseTargets, device_noise
from smoothcert.noise.grid_law import grid_law
from smoothcert.noise.grid_noise import Levels, from_grid
from smoothcert.noise.host import scale_noise
from smoothcert.records import InputArray, Noise, Stage, StreamId

_STREAM = StreamId(seed=(7 << 64) | (11 << 32) | 13, index=2**32 - 3, stage=Stage.ESTIMATION)
_AS_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class NoiseCase:
    """Samples to compare. levels: of a grid, or None for noise in floating point."""

    noise: Noise
    sigma: float
    levels: int | None
    size: int
    start: int
    rows: int = 7
    stream: StreamId = _STREAM

    def __str__(self) -> str:
        where = "in float32" if self.levels is None else f"of {self.levels} levels"
        return f"{self.noise} noise {where}, sigma {self.sigma:g}, {self.size} values from sample {self.start}"


def find_difference(maker: DeviceNoise, device: torch.device, dtype: torch.dtype) -> str | None:
    """The first difference in a few short cases, in words; None if there is none.

    Both kinds of tables, several blocks of bits with an end inside of one, and a change of the upper counter word.
    """
    for noise in (noise for noise in Noise if noise.sampled):
        for sigma, levels in ((1.0 / 3.0, None), (0.5, 256), (0.5, 2**16)):
            case = NoiseCase(noise, sigma, levels, size=69, start=2**33 - 3)
            if not equals_host(maker, case, device, dtype):
                return f"it does not draw the bits of the host for {case}, {dtype}"
    return None


def check_on_device(
    device: torch.device, dtype: torch.dtype, *, noise: Noise, sigma: float, levels: int | None, size: int
) -> None:
    """Compare the noise that a run on this device would use; raise a NoiseError if its bits are not those of the host.

    size: of an input; what is compiled depends on it. MPS is left out for float noise: it has no float64, and the last
    bit may differ there.
    """
    if not noise.sampled or (device.type == "mps" and levels is None):
        return
    maker = device_noise(device, dtype)
    case = NoiseCase(noise, sigma, levels, size, 2**32 - 3)
    if not equals_host(maker, case, device, dtype):
        raise NoiseError(
            f"self-test of the noise: {maker.name} on {device} does not draw the bits of the host for {case}. "
            "Certificates made with this noise could not be checked by others, so none is made. Use --device cpu, and "
            "please report this: smoothcert doctor says more"
        )


def equals_host(maker: DeviceNoise, case: NoiseCase, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether x+ε, x-ε and ε have the bits that plain numpy gives, rounded to this type; and x+ε, made alone.

    What is compiled depends on which of them are wanted, and votes want x+ε alone.
    """
    expected = tuple(_expected(case, dtype))
    return all(_makes(maker, case, wanted, device) for wanted in (expected, expected[:1]))


def _makes(maker: DeviceNoise, case: NoiseCase, expected: tuple[torch.Tensor, ...], device: torch.device) -> bool:
    """Whether the maker writes these tensors, and leaves the row behind the last sample as it is."""
    made = [torch.ones((case.rows + 1, case.size), dtype=wanted.dtype, device=device) for wanted in expected]
    out = NoiseTargets(*(tensor[: case.rows] for tensor in made))
    if case.levels is None:
        x = torch.from_numpy(_inputs(case)).to(device)
        maker.add_float(out, x, case.noise, case.stream, sigma=case.sigma, start=case.start)
    else:
        place = torch.from_numpy(_places(case)).to(device)
        law = grid_law(case.noise, sigma=case.sigma, levels=case.levels)
        maker.add_on_grid(out, place, law, case.stream, start=case.start)
    return all(
        torch.equal(_bits(found[: case.rows]), _bits(wanted)) and bool((found[case.rows] == 1).all())
        for found, wanted in zip((tensor.cpu() for tensor in made), expected, strict=True)
    )


def _expected(case: NoiseCase, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    chosen = {"start": case.start, "count": case.rows, "size": case.size}
    if case.levels is None:
        unit = with_numpy.unit_noise(case.noise, case.stream, **chosen)
        noise, x = scale_noise(unit, sigma=case.sigma), _inputs(case)
        copies, draws = (x + noise, x - noise), torch.from_numpy(unit)
    else:
        law = grid_law(case.noise, sigma=case.sigma, levels=case.levels)
        steps, k = grid_with_numpy.grid_draws(law, case.stream, **chosen), _places(case)
        copies, draws = (from_grid(k + steps, law.levels), from_grid(k - steps, law.levels)), torch.from_numpy(steps)
    yield from (torch.from_numpy(copy).to(dtype) for copy in copies)
    yield draws


def _inputs(case: NoiseCase) -> InputArray:
    """Values between the levels of any grid, negative ones among them."""
    values: InputArray = np.linspace(-0.3, 1.7, case.size).astype(np.float32)
    return values


def _places(case: NoiseCase) -> Levels:
    """Levels in and around the grid, and the largest that are allowed, whose sums are clipped."""
    assert case.levels is not None
    ends = itertools.cycle((-(2**23), 2**23, 0, case.levels - 1))
    k: Levels = np.arange(case.size, dtype=np.int32) * 7 % case.levels
    k[::5] = [next(ends) for _ in range(len(k[::5]))]
    return k


def _bits(values: torch.Tensor) -> torch.Tensor:
    """As whole numbers, so that 0 and -0 differ."""
    return values.contiguous().view(_AS_INTEGERS[values.element_size()])
