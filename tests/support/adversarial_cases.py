"""A collection of models for which a careless tool certifies another function.

Every factory below is one case: it makes a model as a user would hand it over, and its docstring says what is
adversarial about it. All take inputs of shape (1, 8, 8); most judge by brightness, and see noise inside [0, 1]
otherwise than outside, so that a hook left out or a branch frozen to one side changes many votes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

SHAPE = (1, 8, 8)
SIZE = math.prod(SHAPE)
THRESHOLD = 10.0
"""Clamped noise around a black image of 64 pixels adds up to 12 ± 2 at sigma 0.5, unclamped noise to 0 ± 4."""


class Expected(Enum):
    """What smoothcert may do with a model."""

    SAME = "count the votes of the user's object"
    SAME_OR_REFUSED = "count the votes of the user's object, or refuse it"
    REFUSED = "refuse it: it is no function of one row"


@dataclass(frozen=True)
class Case:
    """One adversarial model.

    tolerance: a vote whose two largest logits differ by less than this share of the largest may fall either way.
    modes: the ways in which a user may ask; where the model answers differently in each, any one of them is right.
    """

    name: str
    factory: Callable[[], Any]
    expected: Expected
    tolerance: float
    modes: tuple[Callable[[], contextlib.AbstractContextManager[Any]], ...]

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Make the model; the set-up of its factory is undone afterwards."""
        with torch.random.fork_rng(devices=[]), contextlib.ExitStack() as stack:
            torch.manual_seed(17)
            made = self.factory()
            if inspect.isgenerator(made):
                yield stack.enter_context(contextlib.contextmanager(lambda: made)())
            else:
                yield made


ROOM: dict[str, Case] = {}


def case(
    expected: Expected = Expected.SAME,
    *,
    tolerance: float = 1e-5,
    modes: tuple[Callable[[], contextlib.AbstractContextManager[Any]], ...] = (torch.inference_mode,),
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a factory under its own name."""

    def put(factory: Callable[[], Any]) -> Callable[[], Any]:
        name = factory.__name__
        ROOM[name] = Case(name, factory, expected, tolerance, modes)
        return factory

    return put


SAME, SAME_OR_REFUSED, REFUSED = Expected.SAME, Expected.SAME_OR_REFUSED, Expected.REFUSED
ANY_MODE = (torch.inference_mode, torch.no_grad, contextlib.nullcontext)


def bright(layer: nn.Linear | None = None, *, threshold: float = THRESHOLD) -> nn.Linear:
    """Class 0 if the weighted sum of the values exceeds the threshold; all weights differ slightly."""
    layer = nn.Linear(SIZE, 2) if layer is None else layer
    with torch.no_grad():
        weights = 1.0 + 0.05 * torch.cos(torch.arange(float(SIZE)))
        layer.weight.copy_(torch.stack([weights, -weights]))
        layer.bias.copy_(torch.tensor([-threshold, threshold]))
    return layer


def exactly_bright(threshold: float, dtype: torch.dtype) -> nn.Linear:
    """`bright` with weights of one: no rounding for small integers and their halves."""
    layer = nn.Linear(SIZE, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.ones(2, SIZE) * torch.tensor([[1.0], [-1.0]]))
        layer.bias.copy_(torch.tensor([-threshold, threshold]))
    return layer.to(dtype)


def clamped(values: Tensor) -> Tensor:
    return values.clamp(0.0, 1.0)


def clamp_argument(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (clamped(arguments[0]),)


def flip_outside(_: nn.Module, arguments: tuple[Tensor, ...], logits: Tensor) -> Tensor:
    """Swap the logits if a value is far outside [0, 1]."""
    outside = arguments[0].flatten(1).amin(dim=1, keepdim=True) < -1.0
    return torch.where(outside, logits.flip(1), logits)


def flat_linear() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), bright())


def balanced(network: nn.Module, last: nn.Linear) -> nn.Module:
    """Set the bias of the last layer so that noisy copies get votes for both classes."""
    rows = 0.1 + 0.5 * torch.randn((200, *SHAPE), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits = network.eval()(rows)
        last.bias[0] -= (logits[:, 0] - logits[:, 1]).median()
    return network


def small_network() -> nn.Sequential:
    network = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 24), nn.ReLU(), nn.Linear(24, 2))
    return balanced(network, network[3])


def convolutional() -> nn.Sequential:
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 16, 2)
    )
    return balanced(network, network[4])


def with_batch_norm() -> nn.Sequential:
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * SIZE, 2)
    )
    with torch.no_grad():
        network[1].running_mean.normal_(0.0, 0.2)
        network[1].running_var.uniform_(0.5, 2.0)
    return balanced(network, network[4])


class Judge(nn.Module):
    """Classifies the brightness of `see(inputs)`."""

    def __init__(self) -> None:
        super().__init__()
        self.head = bright()

    def see(self, inputs: Tensor) -> Tensor:
        return inputs

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.see(inputs).flatten(1))


def judging(see: Callable[..., Tensor]) -> Callable[[], nn.Module]:
    """A factory of judges with this `see` method; the docstring of `see` describes the case."""

    @functools.wraps(see)
    def factory() -> nn.Module:
        kind = type(see.__name__.title().replace("_", ""), (Judge,), {"see": see})
        return kind()

    del factory.__wrapped__
    return factory
