"""Optimisers, and their state by parameter name, for storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import torch
from torch import Tensor, nn

from smoothcert.training.choices import Optimiser


def build_optimiser(
    which: Optimiser, module: nn.Module, *, rate: float, momentum: float, weight_decay: float
) -> torch.optim.Optimizer:
    """momentum: Nesterov momentum for SGD, the first beta for AdamW."""
    parameters = module.parameters()
    match which:
        case Optimiser.SGD:
            nesterov = momentum > 0
            return torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
        case Optimiser.ADAMW:
            return torch.optim.AdamW(parameters, lr=rate, betas=(momentum, 0.999), weight_decay=weight_decay)
        case _:
            assert_never(which)


def collect_state(optimiser: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """Every tensor of the state, by "parameter/quantity"; empty before the first step."""
    return {
        f"{name}/{quantity}": value
        for name, parameter in module.named_parameters()
        for quantity, value in optimiser.state.get(parameter, {}).items()
        if value is not None
    }


def restore_state(optimiser: torch.optim.Optimizer, module: nn.Module, state: Mapping[str, Tensor]) -> None:
    parameters = dict(module.named_parameters())
    for key, value in state.items():
        name, _, quantity = key.rpartition("/")
        parameter = parameters[name]
        # AdamW keeps its step count on the CPU. Moments have the memory layout of their parameter.
        like = value if quantity == "step" else parameter
        optimiser.state[parameter][quantity] = torch.empty_like(like, requires_grad=False).copy_(value)
