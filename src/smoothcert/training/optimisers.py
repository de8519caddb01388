"""The optimisers, and their state by the names of parameters, as a training is stored with it."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Optimiser(enum.StrEnum):
    """What turns gradients into steps."""

    SGD = "sgd"
    ADAMW = "adamw"


def build_optimiser(
    which: Optimiser, module: nn.Module, *, rate: float, momentum: float, weight_decay: float
) -> torch.optim.Optimizer:
    """momentum: Nesterov's for SGD, the first beta for AdamW."""
    parameters = module.parameters()
    if which is Optimiser.ADAMW:
        return torch.optim.AdamW(parameters, lr=rate, betas=(momentum, 0.999), weight_decay=weight_decay)
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=weight_decay, nesterov=momentum > 0)


def state_by_name(optimiser: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """Every tensor of its state, as "parameter/quantity"; empty before the first step."""
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
        # AdamW counts its steps on the processor, whatever the device. Moments lie in memory as their parameter does.
        like = value if quantity == "step" else parameter
        optimiser.state[parameter][quantity] = torch.empty_like(like, requires_grad=False).copy_(value)
