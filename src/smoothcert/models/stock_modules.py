"""Which networks consist of layers that are known to look at no values in Python, and at nothing but their input."""

from __future__ import annotations

import sys

from torch import nn
from torch.nn.modules import module as torch_module

from smoothcert.models.torch_parts import hooks_of

_OWN = "smoothcert.models."
_LAYERS = frozenset(
    {
        nn.Sequential, nn.ModuleList, nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout2d,
        nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm,
        nn.GroupNorm, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d,
        nn.AdaptiveAvgPool2d, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softplus,
        nn.Softmax, nn.LogSoftmax,
    }
)  # fmt: skip
"""Layers of torch whose `forward` is a fixed sequence of operations, in evaluation mode. Exactly these types."""


def is_stock(network: nn.Module) -> bool:
    """Whether every part is one of these layers or of smoothcert's own architectures, with no code of anybody else.

    Such a network has no control flow that depends on values and keeps no state, by the code of its classes: what
    `torch.export` shows of others, after seconds of loading a compiler.
    """
    if any(hooks_of(vars(torch_module), prefix="_global")):
        return False
    return all(_is_known(type(part)) and not is_changed(part) for part in network.modules())


def is_changed(part: nn.Module) -> bool:
    """Whether calling this part runs code of somebody else: a hook, or a method of this one object."""
    return any(hooks_of(vars(part))) or any(callable(value) for value in vars(part).values())


def _is_known(kind: type[nn.Module]) -> bool:
    if kind in _LAYERS:
        # A method that was put into torch's class from outside comes from another file.
        return kind.forward.__module__.startswith("torch.nn.modules.")
    found = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None)
    return kind.__module__.startswith(_OWN) and found is kind and kind.forward.__module__ == kind.__module__
