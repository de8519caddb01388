"""Checks of the noise: what every generator must repeat bit for bit, and the law itself."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.diagnosis.findings import Finding
from smoothcert.errors import NoiseError
from smoothcert.noise import GridLaw, grid_law, grid_with_numpy, grid_with_torch, with_numpy, with_torch
from smoothcert.noise.device_noise import can_have_kernel, find_kernel
from smoothcert.noise.device_test import NoiseCase, equals_host
from smoothcert.noise.grid_noise import from_grid, grid_draws
from smoothcert.noise.host import unit_noise
from smoothcert.noise.self_test import check_noise
from smoothcert.noise.splitting import draw_offsets, evaluations_of, split_inputs, split_with_numpy
from smoothcert.noise.splitting_with_torch import split_with_torch
from smoothcert.records import Noise, Stage, StreamId

_SIZES = (1, 31, 49, 784)
"""Values in a row: less than a block of the generators, odd, and an image."""
_STARTS = (0, 2**32 - 3)
"""The first counter: the upper word of the counter changes within the second range."""
_ROWS = 7
_GRIDS = (4, 256, 65536)
_SIGMAS = (0.3, 1.0)
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What models take."""
_STREAM = StreamId(seed=0x5EED, index=3, stage=Stage.ESTIMATION)

_Array = NDArray[np.int32] | NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Case:
    """One range of samples: how it is made on the host, by plain numpy, and on the device."""

    name: str
    host: Callable[[], _Array]
    plain: Callable[[], _Array]
    device: Callable[[], torch.Tensor]


def check_bits(device: torch.device) -> Finding:
    """Whether compiled code, plain numpy and torch on this device draw the same bits."""
    count = 0
    for case in _list_cases(device):
        expected = case.plain()
        for maker, found in (("compiled code", case.host()), (f"torch on {device}", case.device().cpu().numpy())):
            count += 1
            if found.shape != expected.shape or not np.array_equal(_bits(found), _bits(expected)):
                return Finding("noise bits", passed=False, detail=f"{maker} differs from plain numpy for {case.name}")
    return Finding("noise bits", passed=True, detail=f"{count} draws of compiled code and torch equal those of numpy")


def check_kernel(device: torch.device) -> Finding:
    """Whether the noise kernel gives the bits of plain numpy, if this device has one."""
    name = "noise kernel"
    if not can_have_kernel(device):
        return Finding(name, passed=True, detail=f"there is none for {device.type}: torch operations make the noise")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel = find_kernel(device, torch.float32)
    if kernel is None:
        missing = "Triton is not installed (pip install 'smoothcert[triton]'): torch operations make the noise, slower"
        return Finding(name, passed=not caught, detail=str(caught[0].message) if caught else missing)
    cases = list(zip(_list_kernel_cases(), itertools.cycle(_TYPES), strict=False))
    for case, dtype in cases:
        if not equals_host(kernel, case, device, dtype):
            return Finding(name, passed=False, detail=f"{kernel.name} differs from plain numpy for {case}, {dtype}")
    return Finding(name, passed=True, detail=f"{len(cases)} ranges of {kernel.name} equal those of numpy")


def _list_kernel_cases() -> Iterator[NoiseCase]:
    for noise, start, size in itertools.product([noise for noise in Noise if noise.sampled], _STARTS, _SIZES):
        for sigma, levels in itertools.product(_SIGMAS, (None, *_GRIDS)):
            yield NoiseCase(noise, sigma, levels, size, start, rows=_ROWS, stream=_STREAM)


def check_law() -> Finding:
    """The self-test that every run makes: known answers, tails, and fresh draws against the law."""
    settings = [
        (noise, sigma, levels)
        for noise, sigma, levels in itertools.product(Noise, _SIGMAS, (None, *_GRIDS[1:]))
        if levels is not None or noise.sampled
    ]
    try:
        for noise, sigma, levels in settings:
            check_noise(noise, sigma=sigma, levels=levels)
    except NoiseError as error:
        return Finding("noise law", passed=False, detail=str(error))
    return Finding("noise law", passed=True, detail=f"{len(settings)} laws pass their self-test")


def _list_cases(device: torch.device) -> Iterator[_Case]:
    for size, sigma, levels in itertools.product(_SIZES, _SIGMAS, _GRIDS[1:]):
        yield _split_case(size, sigma, levels, device)
    for noise, size, start in itertools.product([noise for noise in Noise if noise.sampled], _SIZES, _STARTS):
        yield _float_case(noise, size, start, device)
        for sigma, levels in itertools.product(_SIGMAS, _GRIDS):
            law = grid_law(noise, sigma=sigma, levels=levels)
            yield _grid_case(law, size, start, device, name=f"{noise} noise, sigma {sigma:g}, {levels} levels")


def _float_case(noise: Noise, size: int, start: int, device: torch.device) -> _Case:
    chosen = {"start": start, "count": _ROWS, "size": size}
    return _Case(
        name=f"{noise} noise in float32, {size} values from sample {start}",
        host=lambda: unit_noise(noise, _STREAM, **chosen),
        plain=lambda: with_numpy.unit_noise(noise, _STREAM, **chosen),
        device=lambda: with_torch.unit_noise(noise, _STREAM, **chosen, device=device),
    )


def _grid_case(law: GridLaw, size: int, start: int, device: torch.device, *, name: str) -> _Case:
    """Noisy copies of inputs on the grid: whole steps, and the division that makes floats of them."""
    chosen = {"start": start, "count": _ROWS, "size": size}
    place = np.arange(size, dtype=np.int32) % law.levels
    there = torch.from_numpy(place).to(device)
    return _Case(
        name=f"{name}, {size} values from sample {start}",
        host=lambda: from_grid(place + grid_draws(law, _STREAM, **chosen), law.levels),
        plain=lambda: from_grid(place + grid_with_numpy.grid_draws(law, _STREAM, **chosen), law.levels),
        device=lambda: grid_with_torch.from_grid(
            there + grid_with_torch.grid_draws(law, _STREAM, **chosen, device=device), law.levels
        ),
    )


def _split_case(size: int, sigma: float, levels: int, device: torch.device) -> _Case:
    """The last evaluations, and the first ones again."""
    evaluations = evaluations_of(sigma, levels=levels)
    offsets = draw_offsets(_STREAM.seed, evaluations=evaluations, size=size)
    place = np.arange(size, dtype=np.int32) % levels
    chosen = {"evaluations": evaluations, "levels": levels}
    start = evaluations - _ROWS // 2
    numbers = np.arange(start, start + _ROWS, dtype=np.int64)

    def on_host() -> _Array:
        out = np.empty((_ROWS, size), dtype=np.float32)
        split_inputs(out, place, offsets, **chosen, start=start)
        return out

    def on_device() -> torch.Tensor:
        k, v, s = (torch.tensor(part, dtype=torch.int64, device=device) for part in (place, offsets, numbers))
        return split_with_torch(k, v, s[:, None], **chosen)

    return _Case(
        name=f"{Noise.SPLITTING}, sigma {sigma:g}, {levels} levels, {size} values",
        host=on_host,
        plain=lambda: split_with_numpy(place, offsets, numbers, **chosen),
        device=on_device,
    )


def _bits(values: _Array) -> NDArray[np.int32]:
    """Floats as whole numbers, so that 0 and -0 differ."""
    return np.ascontiguousarray(values).view(np.int32)
