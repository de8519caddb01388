"""Networks that are known to be one graph, and changes that end this."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from smoothcert.models import ARCHITECTURES, as_classifier
from smoothcert.models.architectures import build
from smoothcert.models.freezing import is_stock

SHAPES = {
    "cifar_resnet20": (3, 32, 32),
    "cifar_resnet110": (3, 32, 32),
    "resnet50": (3, 224, 224),
    "small_net": (1, 7, 7),
}


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("arch", list(ARCHITECTURES))
def test_our_own_architectures_are_known(arch):
    assert is_stock(
        build(arch, num_classes=10, input_shape=SHAPES.get(arch, (1, 28, 28)), standardise=((0.5,), (0.2,)))
    )


def test_a_plain_network_is_known_and_frozen():
    assert is_stock(plain())
    assert "frozen" in as_classifier(plain(), input_shape=(1, 4, 4)).backend


def with_hook(network):
    network[1].register_forward_pre_hook(lambda module, args: (args[0].clamp(0, 1),))


def with_root_hook(network):
    network.register_forward_hook(lambda module, args, output: -output)


def with_own_forward(network):
    network[1].forward = types.MethodType(lambda self, x: -nn.functional.linear(x, self.weight, self.bias), network[1])


def with_subclass(network):
    network[1] = type("Linear", (nn.Linear,), {})(16, 8)


def with_parametrization(network):
    nn.utils.parametrizations.weight_norm(network[1])


def with_unknown_layer(network):
    network.append(nn.Softmin(dim=1))


@pytest.mark.parametrize(
    "change", [with_hook, with_root_hook, with_own_forward, with_subclass, with_parametrization, with_unknown_layer]
)
def test_nothing_is_known_of_a_changed_one(change):
    network = plain()
    change(network)
    assert not is_stock(network)


def test_nothing_is_known_under_hooks_on_all_modules():
    handle = register_module_forward_hook(lambda module, args, output: output)
    try:
        assert not is_stock(plain())
    finally:
        handle.remove()
    assert is_stock(plain())


def test_a_method_put_into_torch_is_noticed(monkeypatch):
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x.clamp(0, 1))
    assert not is_stock(plain())


def test_a_class_that_calls_itself_one_of_ours_is_not():
    def forward(self, x):
        return x.flatten(1)[:, :3]

    forward.__module__ = "smoothcert.models.architectures.lenet"
    fake = type("LeNet", (nn.Module,), {"forward": forward, "__module__": "smoothcert.models.architectures.lenet"})
    assert not is_stock(fake())


def test_no_compiler_is_loaded_for_a_known_network():
    code = """
import sys
from smoothcert.models import as_classifier
from smoothcert.models.architectures import build
as_classifier(build("lenet", num_classes=10, input_shape=(1, 28, 28)), input_shape=(1, 28, 28))
print("torch._dynamo" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "False"
