"""The generator in torch operations, for noise made where an accelerator needs it; the same bits as `with_numpy`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from smoothcert.noise import constants as c
from smoothcert.records import Noise

Lanes = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _word(value: torch.Tensor) -> torch.Tensor:
    return value & c.WORD


def philox(
    counter: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], key: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Philox4x32-10 on int64 tensors of 32-bit words; products wrap modulo 2⁶⁴, which keeps their bits right."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(c.ROUNDS):
        p0 = c.MULTIPLIER_0 * c0
        p1 = c.MULTIPLIER_1 * c2
        c0, c1, c2, c3 = _word(p1 >> 32) ^ c1 ^ k0, _word(p1), _word(p0 >> 32) ^ c3 ^ k1, _word(p0)
        k0 = (k0 + c.WEYL_0) & c.WORD
        k1 = (k1 + c.WEYL_1) & c.WORD
    return c0, c1, c2, c3


def unit_noise(
    noise: Noise,
    *,
    key: tuple[int, int],
    index: int,
    stage: int,
    start: int,
    count: int,
    size: int,
    device: torch.device,
) -> torch.Tensor:
    """Samples start … start+count-1 of a stream, at level 1. Returns (count, size) float32 on `device`."""
    blocks = -(-size // 4)
    counter = torch.arange(start, start + count, dtype=torch.int64, device=device)[:, None].expand(count, blocks)
    block = torch.arange(blocks, dtype=torch.int64, device=device)[None, :].expand(count, blocks)
    high = (_word(counter >> 32) << 8) | stage
    words = philox((block, _word(counter), torch.full_like(counter, index), high), key)
    return torch.cat(_LANES[noise](*words), dim=1)[:, :size]


def scale_noise(unit: torch.Tensor, *, sigma: float) -> torch.Tensor:
    """sigma · unit in float64, rounded once to float32. MPS has no float64: there the CPU multiplies."""
    wide = (unit.cpu() if unit.device.type == "mps" else unit).double()
    return (wide * sigma).float().to(unit.device)


def _normals(w0: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, w3: torch.Tensor) -> Lanes:
    return *_box_muller(w0, w1), *_box_muller(w2, w3)


def _uniform(w0: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, w3: torch.Tensor) -> Lanes:
    return _centred(w0), _centred(w1), _centred(w2), _centred(w3)


_LANES: dict[Noise, Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Lanes]] = {
    Noise.GAUSSIAN: _normals,
    Noise.UNIFORM: _uniform,
}


def _centred(word: torch.Tensor) -> torch.Tensor:
    odd = 2 * (word >> (32 - c.UNIFORM_BITS)) + (1 - (1 << c.UNIFORM_BITS))
    return odd.to(torch.int32).to(torch.float32) * 2.0**-c.UNIFORM_BITS


def _box_muller(for_radius: torch.Tensor, for_angle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    radius = _radius(for_radius)
    sine, cosine = _sine_cosine(for_angle)
    return radius * cosine, radius * sine


def _radius(word: torch.Tensor) -> torch.Tensor:
    x = (word >> 1).to(torch.int32).to(torch.float32) + 0.5
    bits = x.view(torch.int32)
    exponent = (bits - c.SQRT_HALF_BITS) >> c.MANTISSA_BITS
    t = (bits - (exponent << c.MANTISSA_BITS)).view(torch.float32) - 1.0
    square = t * t
    y = _horner(c.LOG_POLYNOMIAL, t) * t * square - 0.5 * square
    log_u = t + y + (exponent - c.RADIUS_BITS).to(torch.float32) * c.LOG_2
    return _rounded_sqrt(torch.clamp(-2.0 * log_u, min=0.0))


def _rounded_sqrt(x: torch.Tensor) -> torch.Tensor:
    """Correctly rounded float32 square root: torch's own may be off by one unit, so it is taken in float64 and
    rounded once.

    MPS has no float64; there the last bit may differ from the other devices (and is still the same in every run).
    """
    if x.device.type == "mps":
        return torch.sqrt(x)
    return torch.sqrt(x.double()).float()


def _sine_cosine(word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    quarter = _word(word + (1 << 29)) >> 30
    rest = _word(word - (quarter << 30))
    signed = torch.where(rest >= 1 << 31, rest - (1 << 32), rest)
    t = signed.to(torch.int32).to(torch.float32) * c.TURN
    square = t * t
    s = _horner(c.SIN_POLYNOMIAL, square) * square * t + t
    k = _horner(c.COS_POLYNOMIAL, square) * square * square - 0.5 * square + 1.0
    odd = (quarter & 1) != 0
    sine = torch.where(odd, k, s)
    cosine = torch.where(odd, s, k)
    return (
        torch.where((quarter & 2) != 0, -sine, sine),
        torch.where(((quarter + 1) & 2) != 0, -cosine, cosine),
    )


def _horner(coefficients: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value
