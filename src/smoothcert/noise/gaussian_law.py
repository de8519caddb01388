"""Gaussian noise: z standard normal.

In floating point it is made by Box–Muller, in float32 operations that are each rounded on their own. It ends at 6.66
standard deviations. The polynomials are the single-precision minimax approximations of log(1+t), sin and cos tabulated
in Moshier's Cephes library.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

import numpy as np

from smoothcert.noise.law import (
    AdditiveLaw,
    CompiledNoise,
    NumpyLanes,
    NumpyWords,
    SelfTestFacts,
    Thresholds,
    TorchLanes,
    Words,
)
from smoothcert.noise.normal_thresholds import END, normal_thresholds
from smoothcert.records import FloatArray, InputArray, Noise, TallyKind

if TYPE_CHECKING:
    import torch

# log(1+t) = t - t²/2 + t³ P(t) for 1+t in [√½, √2), highest power first.
LOG_POLYNOMIAL = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
# sin t = t + t³ P(t²), cos t = 1 - t²/2 + t⁴ Q(t²) for |t| ≤ π/4, highest power first.
SIN_POLYNOMIAL = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS_POLYNOMIAL = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
LOG_2 = math.log(2.0)
SQRT_HALF_BITS = 0x3F3504F3
"""float32 bits of √½: subtracting them splits a float into a power of two and a mantissa in [√½, √2)."""
MANTISSA_BITS = 23
RADIUS_BITS = 31
"""A radius uses 31 random bits: u = (k + ½) / 2³¹, so no draw is beyond sqrt(2·32·log 2) = 6.66 standard deviations."""
TURN = 2.0 * math.pi / 2.0**32
"""One step of the 32-bit angle, in radians."""

_F, _I4, _U8 = np.float32, np.int32, np.uint64
_WORD = 0xFFFFFFFF
_HEAVY_NODES, _LIGHT_NODES, _LIGHT = 80, 12, 0.5
"""Nodes of an integral; few are enough where the logarithm of the density changes by less than _LIGHT."""


@final
class GaussianLaw(AdditiveLaw):
    noise = Noise.GAUSSIAN
    farthest = END
    least_scale = Fraction(1, 10)
    tallies = frozenset(TallyKind)
    stays_after_linear_layer = True
    self_test = SelfTestFacts(
        float_reach=math.sqrt(2 * (RADIUS_BITS + 1) * math.log(2)),
        float_most=6.7,
        edges=np.linspace(-6.0, 6.0, 385),
        even_moments=(1.0, 3.0, 15.0, 105.0),
        tail_from=5.7,  # where Box–Muller on 24 bits would end
    )

    def grid_thresholds(self, scale: Fraction) -> Thresholds:
        return normal_thresholds(scale)

    def cell_means(self, j: FloatArray, scale: float) -> FloatArray:
        return _normal_means(j / scale, 0.5 / scale)

    def lanes_with_numpy(self, words: NumpyWords) -> NumpyLanes:
        w0, w1, w2, w3 = words
        return *_box_muller(w0, w1), *_box_muller(w2, w3)

    def lanes_with_torch(self, words: TorchLanes) -> TorchLanes:
        w0, w1, w2, w3 = words
        return *_torch_box_muller(w0, w1), *_torch_box_muller(w2, w3)

    def load_compiled(self, *, short: bool) -> CompiledNoise:
        from smoothcert.noise import gaussian_with_numba as made

        return CompiledNoise(made.ADD_NOISE_TO_SHORT_ROWS if short else made.ADD_NOISE, several_rows=short)

    def load_triton(self) -> Any:
        from smoothcert.noise.gaussian_with_triton import normals

        return normals

    def draw_with_generator(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        import torch

        return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)

    def probability_below(self, z: float) -> float:
        return 0.5 * math.erfc(-z / math.sqrt(2))

    def least_grid_reach(self, scale: float) -> float:
        return 8.0

    def estimated_radius(self, own: FloatArray, other: FloatArray, *, sigma: FloatArray, clamp: float) -> FloatArray:
        """σ/2 (Φ⁻¹(own) - Φ⁻¹(other)), both clamped first."""
        from scipy.special import ndtri

        bounds = (clamp, 1.0 - clamp)
        gap: FloatArray = ndtri(np.clip(own, *bounds)) - ndtri(np.clip(other, *bounds))
        return 0.5 * sigma * gap

    def steepest_estimate(self, *, clamp: float) -> float:
        from scipy.special import ndtri

        return float(ndtri(1.0 - clamp))


def _normal_means(centre: FloatArray, half_width: float) -> FloatArray:
    """Means of a standard normal given that it is at most half_width from centre; half_width is at most 5.

    At a distance t from the end of the cell that is nearer to 0, at a ≥ 0, the density is proportional to
    exp(-at-t²/2). Both integrals of the mean, a + E[t], are sums of positive terms (Gauss–Legendre): no cancellation.
    """
    near, width = np.abs(centre) - half_width, 2 * half_width
    light = (near.max() + width) * width < _LIGHT
    nodes, weights = np.polynomial.legendre.leggauss(_LIGHT_NODES if light else _HEAVY_NODES)
    mass, moment = np.zeros_like(centre), np.zeros_like(centre)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        t = half_width * (1.0 + node)
        part = weight * np.exp(-t * (near + t / 2))
        mass += part
        moment += t * part
    means: FloatArray = np.sign(centre) * (near + moment / mass)  # of the cell around 0: 0
    return means


# The reference version, in numpy.


def _box_muller(for_radius: Words, for_angle: Words) -> tuple[InputArray, InputArray]:
    radius = _radius(for_radius)
    sine, cosine = _sine_cosine(for_angle)
    return radius * cosine, radius * sine


def _radius(word: Words) -> InputArray:
    """sqrt(-2 log u), u = (k + ½)/2³¹ with k the upper 31 bits."""
    x = (word >> _U8(1)).astype(_I4).astype(_F) + _F(0.5)
    bits = x.view(_I4)
    exponent = (bits - _I4(SQRT_HALF_BITS)) >> _I4(MANTISSA_BITS)
    t = (bits - (exponent << _I4(MANTISSA_BITS))).view(_F) - _F(1.0)
    square = t * t
    y = _horner(LOG_POLYNOMIAL, t) * t * square - _F(0.5) * square
    log_u = t + y + (exponent - _I4(RADIUS_BITS)).astype(_F) * _F(LOG_2)
    return np.sqrt(np.maximum(_F(-2.0) * log_u, _F(0.0)))


def _sine_cosine(word: Words) -> tuple[InputArray, InputArray]:
    """Sine and cosine of 2π·word/2³², reduced to a quarter turn around a multiple of it."""
    quarter = ((word + _U8(1 << 29)) & _U8(_WORD)) >> _U8(30)
    rest = (word - (quarter << _U8(30))) & _U8(_WORD)
    t = rest.astype(np.uint32).view(_I4).astype(_F) * _F(TURN)
    square = t * t
    s = _horner(SIN_POLYNOMIAL, square) * square * t + t
    k = _horner(COS_POLYNOMIAL, square) * square * square - _F(0.5) * square + _F(1.0)
    odd = (quarter & _U8(1)) != 0
    sine = np.where(odd, k, s)
    cosine = np.where(odd, s, k)
    negative_sine = (quarter & _U8(2)) != 0
    negative_cosine = ((quarter + _U8(1)) & _U8(2)) != 0
    return np.where(negative_sine, -sine, sine), np.where(negative_cosine, -cosine, cosine)


def _horner(coefficients: tuple[float, ...], x: InputArray) -> InputArray:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + _F(coefficient)
    return value


# The same in torch.


def _torch_box_muller(for_radius: torch.Tensor, for_angle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    radius = _torch_radius(for_radius)
    sine, cosine = _torch_sine_cosine(for_angle)
    return radius * cosine, radius * sine


def _torch_radius(word: torch.Tensor) -> torch.Tensor:
    import torch

    x = (word >> 1).int().float() + 0.5
    bits = x.view(torch.int32)
    exponent = (bits - SQRT_HALF_BITS) >> MANTISSA_BITS
    t = (bits - (exponent << MANTISSA_BITS)).view(torch.float32) - 1.0
    square = t * t
    y = _torch_horner(LOG_POLYNOMIAL, t) * t * square - 0.5 * square
    log_u = t + y + (exponent - RADIUS_BITS).float() * LOG_2
    square_of_radius = torch.clamp(-2.0 * log_u, min=0.0)
    if word.device.type == "mps":
        # MPS has no float64: the last bit may differ from other devices. It is the same in every run on MPS.
        return torch.sqrt(square_of_radius)
    # torch's own float32 square root may be off by one unit: it is taken in float64 and rounded once.
    return torch.sqrt(square_of_radius.double()).float()


def _torch_sine_cosine(word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    quarter = ((word + (1 << 29)) & _WORD) >> 30
    rest = (word - (quarter << 30)) & _WORD
    signed = torch.where(rest >= 1 << 31, rest - (1 << 32), rest)
    t = signed.int().float() * TURN
    square = t * t
    s = _torch_horner(SIN_POLYNOMIAL, square) * square * t + t
    k = _torch_horner(COS_POLYNOMIAL, square) * square * square - 0.5 * square + 1.0
    odd = (quarter & 1) != 0
    sine = torch.where(odd, k, s)
    cosine = torch.where(odd, s, k)
    negative_sine = (quarter & 2) != 0
    negative_cosine = ((quarter + 1) & 2) != 0
    return torch.where(negative_sine, -sine, sine), torch.where(negative_cosine, -cosine, cosine)


def _torch_horner(coefficients: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
    value = x.new_full(x.shape, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value
