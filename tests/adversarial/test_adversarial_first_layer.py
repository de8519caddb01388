"""Noise in the first layer: only if the network sees its input through that layer alone."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from adversarial_models import SHAPE, SIZE, bright, clamp_argument, clamped
from adversarial_votes import SEED, SIGMA, images
from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError, ModelError
from smoothcert.models.standardise import Standardise
from smoothcert.records import CertifiedPoint

Factory = Callable[[], nn.Module]


class ClippingStandardise(Standardise):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(clamped(inputs))


class ClippingFlatten(nn.Flatten):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(clamped(inputs))


class ClippingIdentity(nn.Identity):
    def forward(self, inputs: Tensor) -> Tensor:
        return clamped(inputs)


class ClippingDropout(nn.Dropout):
    def forward(self, inputs: Tensor) -> Tensor:
        return clamped(inputs)


class ClippingLinear(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(clamped(inputs))


def network(*, standardise: nn.Module | None = None, flatten: nn.Module | None = None) -> nn.Sequential:
    """Brightness, by way of a first layer with two outputs."""
    head = nn.Linear(2, 2)
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
        head.bias.zero_()
    return nn.Sequential(
        standardise or Standardise((0.0,), (1.0,)), flatten or nn.Flatten(), bright(), nn.Hardtanh(-50.0, 50.0), head
    )


def with_hook(place: int | None, *, forward: bool = False) -> Factory:
    def make() -> nn.Module:
        model = network()
        module = model if place is None else model[place]
        if forward:
            module.register_forward_hook(lambda _, arguments, out: clamped(out) if out.shape[1] != 2 else out.flip(1))
        else:
            module.register_forward_pre_hook(clamp_argument)
        return model

    return make


def with_own_forward() -> nn.Module:
    model = network()
    standardise = model[0]
    standardise.forward = types.MethodType(lambda self, inputs: clamped(inputs), standardise)
    return model


def with_clipping_linear() -> nn.Module:
    model = network()
    model[2] = bright(ClippingLinear(SIZE, 2))
    return model


class ClipsInItsForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rest = network()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.rest(inputs.clip(0.0, 1.0))


class ClipsWithinItsLaw(nn.Module):
    """Changes noisy inputs, but neither zero nor unit vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = network()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.rest(nn.functional.hardtanh(inputs, 0.0, 1.0))


OTHERS: dict[str, Factory] = {
    "standardise that clips": lambda: network(standardise=ClippingStandardise((0.0,), (1.0,))),
    "flatten that clips": lambda: network(flatten=ClippingFlatten()),
    "identity that clips": lambda: nn.Sequential(ClippingIdentity(), network()),
    "dropout that clips": lambda: nn.Sequential(ClippingDropout(), network()),
    "linear layer that clips": with_clipping_linear,
    "pre-hook on the root": with_hook(None),
    "pre-hook on standardise": with_hook(0),
    "pre-hook on flatten": with_hook(1),
    "pre-hook on the linear layer": with_hook(2),
    "hook on the root": with_hook(None, forward=True),
    "hook on standardise": with_hook(0, forward=True),
    "hook on flatten": with_hook(1, forward=True),
    "pre-hook on the outermost of two": lambda: nn.Sequential(with_hook(None)()),
    "forward of the instance": with_own_forward,
    "clips in its forward": ClipsInItsForward,
    "clips by a function": ClipsWithinItsLaw,
}


def certified(model: Any, **settings: Any) -> list[CertifiedPoint]:
    classifier = SmoothedClassifier(
        model, sigma=SIGMA, seed=SEED, batch=256, device="cpu", num_classes=2, input_shape=SHAPE, **settings
    )
    return classifier.certify(images()[:1], n0=50, n=600)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_linear_first_is_refused_or_answered_alike(name: str) -> None:
    """Fails if the layer is computed from zero and unit vectors, and everything around it is ignored."""
    model = OTHERS[name]()
    at_input = certified(model)
    try:
        in_layer = certified(model, noise_at="first-layer")
    except (ModelError, InputError):
        return
    assert_alike(at_input, in_layer)


def assert_alike(first: list[CertifiedPoint], second: list[CertifiedPoint]) -> None:
    """Within the deviation of 600 independent samples of the same vote."""
    assert [point.prediction for point in first] == [point.prediction for point in second]
    for one, other in zip(first, second, strict=True):
        assert abs(one.radius - other.radius) < 0.25


@contextmanager
def clamping_before(kind: type[nn.Module]) -> Iterator[None]:
    handle = register_module_forward_pre_hook(
        lambda module, arguments: (clamped(arguments[0]),) if type(module) is kind else None
    )
    try:
        yield
    finally:
        handle.remove()


def test_a_hook_for_all_modules_is_refused_or_answered_alike() -> None:
    """Fails if hooks on all modules are ignored."""
    with clamping_before(Standardise):
        model = network()
        at_input = certified(model)
        try:
            in_layer = certified(model, noise_at="first-layer")
        except (ModelError, InputError):
            return
        assert_alike(at_input, in_layer)


@pytest.mark.parametrize("make", [network, lambda: nn.Sequential(network())], ids=["plain", "nested"])
def test_the_control_is_answered_alike(make: Factory) -> None:
    """A linear first layer is accepted. Fails if everything is refused."""
    model = make()
    assert_alike(certified(model), certified(model, noise_at="first-layer"))
