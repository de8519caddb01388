"""Models whose digests must be the same in every process."""

from __future__ import annotations

import functools
import sys

import numpy as np
import torch
from torch import nn

FACTOR = 2.0
NAMES = {"alpha", "beta", "gamma", "delta"}


def fixed_weights(network: nn.Module) -> nn.Module:
    """The network with parameters that depend on their shapes alone."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    return network


def scale_by(factor):
    def scale(x):
        return helper(x) * factor

    return scale


def helper(x, *, power=2):
    return x**power * FACTOR if isinstance(x, float) else other_helper(x)


def other_helper(x):
    """Calls back, so that the functions form a cycle."""
    return helper(float(x)) if x in NAMES else x


class Thresholded(nn.Module):
    names = frozenset(NAMES)

    def __init__(self):
        super().__init__()
        self.threshold = 0.5
        self.options = {"names": set(NAMES), "scale": scale_by(3.0), "partial": functools.partial(helper, power=3)}

    def forward(self, x):
        return torch.stack([x.sum(1), self.threshold - x.sum(1)], dim=1)


def small_digests() -> dict[str, str]:
    from smoothcert.models.callable_classifier import CallableClassifier
    from smoothcert.models.digests import object_digest
    from smoothcert.models.torch_digest import exported_program_digest, module_digest

    layer = fixed_weights(nn.TransformerEncoderLayer(8, 2, dim_feedforward=4)).eval()
    hooked = Thresholded()
    hooked.register_forward_pre_hook(lambda module, inputs: (inputs[0].clamp(0, 1),))
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Thresholded(), (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))
    estimator = {"function": np.sin, "frozen": frozenset(NAMES), "bound": hooked.forward, "module": sys}
    return {
        "encoder": module_digest(layer, backend="torch"),
        "hooked": module_digest(hooked, backend="torch"),
        "program": exported_program_digest(program),
        "objects": object_digest(estimator),
        "callable": CallableClassifier(scale_by(2.0), num_classes=3).digest,
    }
