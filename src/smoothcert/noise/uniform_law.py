"""Uniform noise: z uniform on [-1, 1].

In floating point z is one of the 2²⁴ odd multiples of 2⁻²⁴ in (-1, 1), all equally likely: the midpoints of 2²⁴ equal
cells of [-1, 1]. So it is exactly uniform noise moved by at most 2⁻²⁴. The variance is (1 - 2⁻⁴⁸)/3.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

import numpy as np

from smoothcert.noise.law import (
    WORD_BITS,
    AdditiveLaw,
    CompiledNoise,
    NumpyLanes,
    NumpyWords,
    SelfTestFacts,
    Thresholds,
    TorchLanes,
    Words,
    as_thresholds,
    mirror,
)
from smoothcert.records import FloatArray, InputArray, Noise, TallyKind

if TYPE_CHECKING:
    import torch

BITS = 24
"""The upper 24 bits k of a word give (2k + 1 - 2²⁴) / 2²⁴, which float32 holds exactly."""


@final
class UniformLaw(AdditiveLaw):
    noise = Noise.UNIFORM
    farthest = Fraction(1)
    least_scale = Fraction(1, 2) + Fraction(1, 2**20)
    tallies = frozenset({TallyKind.VOTES, TallyKind.SCORES})
    stays_after_linear_layer = False
    self_test = SelfTestFacts(
        float_reach=1.0,
        float_most=1.0,
        edges=np.linspace(-1.0, 1.0, 385)[1:-1],
        even_moments=(1 / 3, 1 / 5, 1 / 7, 1 / 9),
        tail_from=0.0,
    )

    def grid_thresholds(self, scale: Fraction) -> Thresholds:
        """2⁶⁴·(i-½+scale)/(2·scale), rounded. Every entry is within 2⁻⁶⁵ of the truth, as a fraction of 2⁶⁴."""
        last = math.ceil(scale + Fraction(1, 2)) - 1  # (i-½) < scale
        p, q = scale.numerator, scale.denominator
        above = [(((2 * i - 1) * q + 2 * p << WORD_BITS + 1) + 4 * p) // (8 * p) for i in range(1, last + 1)]
        return mirror(as_thresholds(above))

    def cell_means(self, j: FloatArray, scale: float) -> FloatArray:
        means: FloatArray = (np.minimum((j + 0.5) / scale, 1.0) + np.maximum((j - 0.5) / scale, -1.0)) / 2
        return means

    def lanes_with_numpy(self, words: NumpyWords) -> NumpyLanes:
        w0, w1, w2, w3 = words
        return _centre(w0), _centre(w1), _centre(w2), _centre(w3)

    def lanes_with_torch(self, words: TorchLanes) -> TorchLanes:
        w0, w1, w2, w3 = words
        return _torch_centre(w0), _torch_centre(w1), _torch_centre(w2), _torch_centre(w3)

    def load_compiled(self, *, short: bool) -> CompiledNoise:
        from smoothcert.noise import uniform_with_numba

        return CompiledNoise(uniform_with_numba.ADD_NOISE)

    def load_triton(self) -> Any:
        from smoothcert.noise.uniform_with_triton import centres

        return centres

    def draw_with_generator(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        import torch

        draws = torch.rand(like.shape, generator=generator, device=like.device, dtype=like.dtype)
        return draws.mul_(2.0).sub_(1.0)

    def probability_below(self, z: float) -> float:
        return min(max((1 + z) / 2, 0.0), 1.0)

    def least_grid_reach(self, scale: float) -> float:
        return 1.0 - 0.5 / scale

    def estimated_radius(self, own: FloatArray, other: FloatArray, *, sigma: FloatArray, clamp: float) -> FloatArray:
        """λ (own - other); nothing is clamped."""
        margin: FloatArray = own - other
        return sigma * margin

    def steepest_estimate(self, *, clamp: float) -> float:
        return 1.0


def _centre(word: Words) -> InputArray:
    """(2k + 1 - 2²⁴)/2²⁴ with k the upper 24 bits: an odd multiple of 2⁻²⁴ in (-1, 1), without rounding."""
    k = (word >> np.uint64(32 - BITS)).astype(np.int32)
    odd = np.int32(2) * k + np.int32(1 - (1 << BITS))
    return odd.astype(np.float32) * np.float32(2.0**-BITS)


def _torch_centre(word: torch.Tensor) -> torch.Tensor:
    odd = 2 * (word >> (32 - BITS)) + (1 - (1 << BITS))
    return odd.int().float() * 2.0**-BITS
