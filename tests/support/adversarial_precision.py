"""Adversarial models: precisions other than float32, in all or some parts."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from adversarial_cases import SIZE, Judge, bright, case, exactly_bright, judging, with_batch_norm


class Rounding(nn.Module):
    """Adds and subtracts a large number in its own precision: the result is coarse, and exact.

    In another precision something else is left, so that converting the module changes its votes.
    """

    def __init__(self, offset: float, threshold: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.tensor(offset, dtype=dtype))
        self.head = exactly_bright(threshold, dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(((inputs + self.offset) - self.offset).flatten(1))


@case()
def bfloat16_module() -> nn.Module:
    """Rounds to whole numbers in bfloat16 but not in float32."""
    return Rounding(256.0, -3.5, torch.bfloat16)


@case()
def float16_module() -> nn.Module:
    """Rounds to halves in float16 but not in float32."""
    return Rounding(1024.0, -1.25, torch.float16)


@case()
def float64_module() -> nn.Module:
    """In float32 everything but zero is lost."""
    return Rounding(2.0**30, 2.0, torch.float64)


@case(tolerance=0.03)
def bfloat16_network() -> nn.Module:
    """An ordinary network in bfloat16: convolutions and linear layers."""
    return with_batch_norm().to(torch.bfloat16)


@case()
def float64_network() -> nn.Module:
    """An ordinary network in float64."""
    return with_batch_norm().double()


class MixedPrecision(nn.Module):
    """A float32 front, and the rest in the precision of its own weights."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv2d(1, 1, 1, bias=False)
        nn.init.ones_(self.front.weight)
        self.rest = Rounding(256.0, -3.5, torch.bfloat16)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.rest(self.front(inputs).to(self.rest.offset.dtype))


@case()
def float32_front_bfloat16_rest() -> nn.Module:
    """Two precisions in one module; a conversion would leave one."""
    return MixedPrecision()


class DoubleBuffer(nn.Module):
    """A float64 buffer among float32 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.tensor([2.0**30], dtype=torch.float64))
        self.head = bright(threshold=3.0)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(((inputs + self.offset) - self.offset).float().flatten(1))


@case()
def float64_buffer() -> nn.Module:
    """The buffer is beyond what float32 can add to anything."""
    return DoubleBuffer()


class DoubleLogits(Judge):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).double() + 2.0**40


@case(tolerance=1e-16)
def float64_logits() -> nn.Module:
    """Logits that differ in float64, and are all equal in float32."""
    return DoubleLogits()


class HalfLogits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = exactly_bright(3.0, torch.float32)

    def forward(self, inputs: Tensor) -> Tensor:
        logits = self.head((torch.round(inputs * 4.0) / 4.0).flatten(1))
        return (logits * 128.0 + 20000.0).half()


@case()
def float16_logits() -> nn.Module:
    """Logits that differ in float32, and are often equal in the float16 the model answers with."""
    return HalfLogits()


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unit", torch.eye(SIZE))
        self.register_buffer("offset", torch.full((SIZE,), 256.0))
        self.head = exactly_bright(-3.5, torch.float32)

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            coarse = nn.functional.linear(inputs.flatten(1), self.unit, self.offset)
        return self.head(coarse.float() - 256.0)


@case()
def autocast_inside() -> nn.Module:
    """A float32 module that rounds to bfloat16 inside."""
    return Autocast()


class ComplexWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.polar(torch.ones(SIZE), torch.linspace(0.0, 3.0, SIZE)))
        self.head = bright(threshold=17.0)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head((inputs.flatten(1) * self.turn).imag.abs())


@case()
def complex_weights() -> nn.Module:
    """Complex weights; a conversion to float32 would keep the real part only."""
    return ComplexWeights()


@case()
@judging
def nan_outside(self: Judge, inputs: Tensor) -> Tensor:
    """NaN for rows with a value far outside [0, 1]: these votes are invalid."""
    outside = inputs.flatten(1).amin(dim=1) < -1.1
    return torch.where(outside[:, None, None, None], math.nan, inputs)
