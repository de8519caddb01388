"""A room of models that are easily certified as something else than what they are.

Every factory below is one case: it makes a model as a user would hand it over, and its docstring says what is
adversarial about it. All take inputs of shape (1, 8, 8); most judge by brightness, and see noise inside [0, 1]
otherwise than outside, so that a hook left out or a branch frozen to one side changes many votes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils import parametrizations, parametrize

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
    """A model of the room.

    tolerance: a vote whose two largest logits differ by less than this share of the largest may fall either way.
    modes: the ways in which a user may ask; where the model answers otherwise in each, any one of them is right.
    """

    name: str
    factory: Callable[[], Any]
    expected: Expected
    tolerance: float
    modes: tuple[Callable[[], contextlib.AbstractContextManager[Any]], ...]

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """The model; what its factory set up around it is undone afterwards."""
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
    """Puts a factory into the room under its own name."""

    def put(factory: Callable[[], Any]) -> Callable[[], Any]:
        name = factory.__name__
        ROOM[name] = Case(name, factory, expected, tolerance, modes)
        return factory

    return put


SAME, SAME_OR_REFUSED, REFUSED = Expected.SAME, Expected.SAME_OR_REFUSED, Expected.REFUSED
ANY_MODE = (torch.inference_mode, torch.no_grad, contextlib.nullcontext)


# --- parts ------------------------------------------------------------------------------------------------------------


def bright(layer: nn.Linear | None = None, *, threshold: float = THRESHOLD) -> nn.Linear:
    """Class 0 where the values add up to more than the threshold; no two weights are quite equal."""
    layer = nn.Linear(SIZE, 2) if layer is None else layer
    with torch.no_grad():
        weights = 1.0 + 0.05 * torch.cos(torch.arange(float(SIZE)))
        layer.weight.copy_(torch.stack([weights, -weights]))
        layer.bias.copy_(torch.tensor([-threshold, threshold]))
    return layer


def exactly_bright(threshold: float, dtype: torch.dtype) -> nn.Linear:
    """`bright` with weights of one: no rounding where the values are small whole numbers or halves of them."""
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
    """Turns the answer round where a value is far outside [0, 1], as no value drawn from there is."""
    outside = arguments[0].flatten(1).amin(dim=1, keepdim=True) < -1.0
    return torch.where(outside, logits.flip(1), logits)


def flat_linear() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), bright())


def balanced(network: nn.Module, last: nn.Linear) -> nn.Module:
    """The network in evaluation mode, the bias of its last layer such that noisy copies are voted for both classes."""
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
    """Brightness of what `see` makes of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.head = bright()

    def see(self, inputs: Tensor) -> Tensor:
        return inputs

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.see(inputs).flatten(1))


def judging(see: Callable[..., Tensor]) -> Callable[[], nn.Module]:
    """A factory of judges that see in this way; `see` becomes a method, and its docstring that of the case."""

    @functools.wraps(see)
    def factory() -> nn.Module:
        kind = type(see.__name__.title().replace("_", ""), (Judge,), {"see": see})
        return kind()

    del factory.__wrapped__
    return factory


# --- ordinary models: these must be fast ------------------------------------------------------------------------------


@case()
def plain_mlp() -> nn.Module:
    """Nothing: two linear layers."""
    return small_network()


@case()
def plain_convolution() -> nn.Module:
    """Nothing: a small convolutional network."""
    return convolutional()


@case()
def plain_batch_norm() -> nn.Module:
    """Nothing: batch norm in evaluation mode."""
    return with_batch_norm()


ORDINARY = ("plain_mlp", "plain_convolution", "plain_batch_norm")


# --- hooks ------------------------------------------------------------------------------------------------------------


@case()
def pre_hook_on_linear() -> nn.Module:
    """The layer that is exchanged for a faster one has a hook that clamps its input."""
    model = flat_linear()
    model[1].register_forward_pre_hook(clamp_argument)
    return model


@case()
def pre_hook_on_linear_root() -> nn.Module:
    """The model is one linear layer with a hook; the batch is flattened by another hook."""
    model = bright()
    model.register_forward_pre_hook(lambda _, arguments: (clamped(arguments[0]).flatten(1),))
    return model


@case()
def pre_hook_on_root() -> nn.Module:
    """The hook is on the outermost module."""
    model = flat_linear()
    model.register_forward_pre_hook(clamp_argument)
    return model


@case()
def pre_hook_with_kwargs() -> nn.Module:
    """The hook takes keyword arguments, too."""
    model = flat_linear()
    model[1].register_forward_pre_hook(lambda _, a, kwargs: ((clamped(a[0]),), kwargs), with_kwargs=True)
    return model


@case()
def forward_hook_on_linear() -> nn.Module:
    """The answer is turned round, where the input lies far outside [0, 1]."""
    model = flat_linear()
    model[1].register_forward_hook(flip_outside)
    return model


@case()
def forward_hook_on_root() -> nn.Module:
    """The same on the outermost module."""
    model = flat_linear()
    model.register_forward_hook(flip_outside)
    return model


@case()
def forward_hook_with_kwargs() -> nn.Module:
    """A forward hook that takes keyword arguments."""
    model = flat_linear()
    model[1].register_forward_hook(lambda m, a, kwargs, out: flip_outside(m, a, out), with_kwargs=True)
    return model


@case()
def hooks_prepended_and_always_called() -> nn.Module:
    """Two hooks whose order matters: the one registered last comes first."""
    model = flat_linear()
    model[1].register_forward_hook(lambda _, a, out: out + torch.tensor([4.0, 0.0]), always_call=True)
    model[1].register_forward_hook(lambda _, a, out: out.flip(1), prepend=True)
    model[1].register_forward_pre_hook(lambda _, a: (a[0] * 1.5 - 0.1,))
    model[1].register_forward_pre_hook(clamp_argument, prepend=True)
    return model


@case()
def hook_on_nested_child() -> nn.Module:
    """The hook sits three modules deep."""
    inner = flat_linear()
    inner[1].register_forward_pre_hook(clamp_argument)
    return nn.Sequential(nn.Identity(), nn.Sequential(nn.Sequential(inner)))


@case()
def hook_on_convolution() -> nn.Module:
    """A convolution, which a graph compiler fuses with its neighbours, has a hook."""
    model = convolutional()
    model[0].register_forward_pre_hook(clamp_argument)
    model[0].register_forward_hook(lambda _, a, out: torch.where(a[0] > 0.5, -3.0 * out, out))
    return model


@case()
def hook_on_activation() -> nn.Module:
    """ReLU lets negative values through."""
    model = small_network()
    model[2].register_forward_hook(lambda _, a, out: a[0])
    return balanced(model, model[3])


@case()
def hook_on_batch_norm() -> nn.Module:
    """Batch norm, which is folded into the convolution before it, has a hook."""
    model = with_batch_norm()
    model[1].register_forward_hook(lambda _, a, out: out.clamp(-0.3, 0.3))
    return model


@case()
def hook_on_dropout() -> nn.Module:
    """Dropout does nothing in evaluation mode, but its hook does."""
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), bright())
    model[1].register_forward_hook(lambda _, a, out: clamped(out))
    return model.eval()


@case()
def global_forward_hook() -> Iterator[nn.Module]:
    """The hook is registered for all modules, and no module shows it."""
    model = flat_linear()

    def clamp_what_is_flat(module: nn.Module, _: object, out: Tensor) -> Tensor | None:
        return clamped(out) if isinstance(module, nn.Flatten) else None

    handle = register_module_forward_hook(clamp_what_is_flat)
    try:
        yield model
    finally:
        handle.remove()


@case()
def global_forward_pre_hook() -> Iterator[nn.Module]:
    """A hook before all modules, which reaches a linear layer only if that is still one."""
    model = flat_linear()

    def clamp_for_linear(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        return (clamped(arguments[0]),) if type(module) is nn.Linear else None

    handle = register_module_forward_pre_hook(clamp_for_linear)
    try:
        yield model
    finally:
        handle.remove()


@case(SAME_OR_REFUSED)
def hook_that_knows_the_original() -> nn.Module:
    """The hook acts on the object the user has, and on no copy of it."""
    model = flat_linear()
    original = model[1]
    original.register_forward_pre_hook(lambda module, a: (clamped(a[0]),) if module is original else None)
    return model


@case(SAME_OR_REFUSED)
def hook_with_state_of_the_original() -> nn.Module:
    """The hook reads an attribute of the user's object, which says otherwise after the model was copied."""
    model = flat_linear()

    class Told:
        clamp = True

        def __deepcopy__(self, memo: object) -> Told:
            copied = Told()
            copied.clamp = False
            return copied

    told = model[1].told = Told()
    model[1].register_forward_pre_hook(lambda module, a: (clamped(a[0]),) if module.told.clamp else None)
    assert told.clamp
    return model


@case()
def hook_that_only_looks() -> nn.Module:
    """The hook changes nothing, but looks at values in Python."""
    model = flat_linear()
    model[1].seen = []
    model[1].register_forward_hook(lambda module, a, out: module.seen.append(float(out.detach().max())))
    return model


@case()
def backward_hook() -> nn.Module:
    """A hook for gradients goes through other code even where no gradient is asked for."""
    model = flat_linear()
    model[1].register_full_backward_hook(lambda module, inputs, outputs: None)
    return model


@case(SAME_OR_REFUSED)
def pruned_weights() -> nn.Module:
    """The weights of the layer are computed by a hook before each call."""
    from torch.nn.utils import prune

    model = flat_linear()
    prune.random_unstructured(model[1], "weight", amount=0.5)
    return model


# --- control flow -----------------------------------------------------------------------------------------------------


@case()
@judging
def asked_equal(self: Judge, inputs: Tensor) -> Tensor:
    """A branch on torch.equal, which a trace does not notice: inputs in [0, 1] take the other side."""
    inside = clamped(inputs)
    return inputs if torch.equal(inputs, inside) else inside


@case()
@judging
def asked_allclose(self: Judge, inputs: Tensor) -> Tensor:
    """A branch on torch.allclose."""
    inside = clamped(inputs)
    return inputs if torch.allclose(inputs, inside) else inside


@case()
@judging
def asked_is_nonzero(self: Judge, inputs: Tensor) -> Tensor:
    """A branch on torch.is_nonzero."""
    return clamped(inputs) if torch.is_nonzero((inputs < 0).any()) else inputs


@case()
@judging
def asked_item(self: Judge, inputs: Tensor) -> Tensor:
    """A branch on .item()."""
    return clamped(inputs) if inputs.min().item() < 0 else inputs


@case()
@judging
def asked_float(self: Judge, inputs: Tensor) -> Tensor:
    """float() of a tensor becomes a constant of the graph: each row is divided by its own largest value."""
    return torch.stack([row * (1.5 / max(1.0, float(row.max()))) for row in inputs])


@case()
@judging
def asked_tolist(self: Judge, inputs: Tensor) -> Tensor:
    """Values leave torch as a Python list: each row is multiplied by its own smallest one."""
    lowest = inputs.flatten(1).amin(dim=1).tolist()
    return torch.stack([clamped(row) * max(0.3, 0.2 - value) for row, value in zip(inputs, lowest, strict=True)])


@case()
@judging
def asked_numpy(self: Judge, inputs: Tensor) -> Tensor:
    """The values go through numpy, which a trace holds as a constant."""
    return torch.from_numpy(np.clip(inputs.detach().numpy(), 0.0, 1.0))


@case()
@judging
def python_max_and_min(self: Judge, inputs: Tensor) -> Tensor:
    """Python's max and min compare tensors by asking them for a truth value."""
    lowest = [min(row[0, 0]) for row in inputs]
    return torch.stack([row.clamp(max(low, torch.tensor(-0.2)), 1.0) for row, low in zip(inputs, lowest, strict=True)])


@case()
@judging
def while_loop(self: Judge, inputs: Tensor) -> Tensor:
    """How often each row is halved depends on its values."""
    rows = []
    for row in inputs:
        halved = row * 4.0
        while halved.abs().max() > 1.0:
            halved = halved * 0.5
        rows.append(halved.clamp(min=0.0) * 1.6)
    return torch.stack(rows)


@case()
@judging
def early_exit(self: Judge, inputs: Tensor) -> Tensor:
    """Rows that are bright already leave the loop before they are clamped."""

    def seen(row: Tensor) -> Tensor:
        if row.sum() > 8.0:
            return row * 0.5
        return clamped(row)

    return torch.stack([seen(row) for row in inputs])


@case()
@judging
def try_and_except(self: Judge, inputs: Tensor) -> Tensor:
    """The exception that only values outside [0, 1] raise decides what is seen."""
    try:
        if (inputs < 0).any():
            raise ValueError("there is no negative light")
    except ValueError:
        return clamped(inputs)
    return inputs


@case()
@judging
def python_sorting(self: Judge, inputs: Tensor) -> Tensor:
    """The order of Python's sorted becomes an index that a trace holds as a constant."""
    rows = []
    for row in inputs.flatten(1):
        order = sorted(range(len(row)), key=row.tolist().__getitem__)
        rows.append(row[torch.tensor(order)] * torch.linspace(-0.37, 0.74, len(row)))
    return torch.stack(rows)


@case()
@judging
def match_on_shape(self: Judge, inputs: Tensor) -> Tensor:
    """A match statement on the shape of one row: the same for all batches."""
    match tuple(inputs.shape[1:]):
        case (1, 8, 8):
            return clamped(inputs)
        case _:
            return inputs


@case(SAME_OR_REFUSED)
@judging
def match_on_rows(self: Judge, inputs: Tensor) -> Tensor:
    """A match statement on the number of rows."""
    match len(inputs):
        case 1:
            return inputs
        case _:
            return clamped(inputs)


@case(SAME_OR_REFUSED)
@judging
def sum_of_the_batch(self: Judge, inputs: Tensor) -> Tensor:
    """`if x.sum() > 0`, written for one input and asked for many."""
    return clamped(inputs) if inputs.sum() > 0 else inputs


@case(SAME_OR_REFUSED)
@judging
def large_batches(self: Judge, inputs: Tensor) -> Tensor:
    """Other code for batches of more than forty rows."""
    return clamped(inputs) if len(inputs) > 40 else inputs


@case(SAME_OR_REFUSED)
@judging
def exit_when_all_are_sure(self: Judge, inputs: Tensor) -> Tensor:
    """An early exit that waits for the least sure row of the batch."""
    sure = self.head(inputs.flatten(1)).abs().amin() > 4.0
    return inputs if sure else clamped(inputs)


@case()
@judging
def asked_whether_traced(self: Judge, inputs: Tensor) -> Tensor:
    """Another function while torch.jit traces it."""
    return inputs if torch.jit.is_tracing() else clamped(inputs)


@case()
@judging
def asked_whether_compiled(self: Judge, inputs: Tensor) -> Tensor:
    """Another function while torch.compile or torch.export looks at it."""
    return inputs if torch.compiler.is_compiling() else clamped(inputs)


@case()
@judging
def hides_from_export(self: Judge, inputs: Tensor) -> Tensor:
    """It hides its control flow from torch.export, so that export alone proves nothing."""
    if torch.compiler.is_compiling():
        return inputs
    middle = torch.tensor(0.1)
    return torch.stack([clamped(row) if torch.allclose(row.mean(), middle, atol=0.06) else row for row in inputs])


@case()
@judging
def asked_whether_in_training(self: Judge, inputs: Tensor) -> Tensor:
    """Another function in training mode, in which it is handed over."""
    return inputs if self.training else clamped(inputs)


@case(SAME_OR_REFUSED)
@judging
def asked_for_the_thread(self: Judge, inputs: Tensor) -> Tensor:
    """Another function in the threads of the sampler."""
    return clamped(inputs) if threading.current_thread() is threading.main_thread() else inputs


@case()
@judging
def asked_whether_exported(self: Judge, inputs: Tensor) -> Tensor:
    """Another function while torch.export looks at it."""
    return inputs if torch.compiler.is_exporting() else clamped(inputs)


@case()
@judging
def asked_requires_grad(self: Judge, inputs: Tensor) -> Tensor:
    """Depends on whether the input wants a gradient."""
    return inputs if inputs.requires_grad else clamped(inputs)


@case(SAME_OR_REFUSED, modes=ANY_MODE)
@judging
def asked_inference_mode(self: Judge, inputs: Tensor) -> Tensor:
    """Depends on whether torch is in inference mode."""
    return inputs if torch.is_inference_mode_enabled() else clamped(inputs)


@case(SAME_OR_REFUSED, modes=ANY_MODE)
@judging
def asked_grad_mode(self: Judge, inputs: Tensor) -> Tensor:
    """Depends on whether torch records gradients."""
    return inputs if torch.is_grad_enabled() else clamped(inputs)


@case(SAME_OR_REFUSED, modes=ANY_MODE)
@judging
def asked_weights_for_gradients(self: Judge, inputs: Tensor) -> Tensor:
    """Depends on whether the weights want gradients, which those of a copy may not."""
    return clamped(inputs) if self.head.weight.requires_grad else inputs


@case()
@judging
def mapped_over_rows(self: Judge, inputs: Tensor) -> Tensor:
    """torch.vmap over the rows."""
    return torch.vmap(lambda row: clamped(row) * (1.0 + 0.1 * row.mean().tanh()))(inputs)


# --- precision --------------------------------------------------------------------------------------------------------


class Rounding(nn.Module):
    """Adds a large number and takes it off again, in its own precision: what is left is coarse, and exact.

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
    """Rounds to whole numbers in bfloat16, and to nothing of that kind in float32."""
    return Rounding(256.0, -3.5, torch.bfloat16)


@case()
def float16_module() -> nn.Module:
    """Rounds to halves in float16, and to nothing of that kind in float32."""
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
    """Two precisions in one module, of which a conversion leaves one."""
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
    """Complex weights, of which a conversion to float32 leaves the real part."""
    return ComplexWeights()


@case()
@judging
def nan_outside(self: Judge, inputs: Tensor) -> Tensor:
    """No answer for rows with a value far outside [0, 1]: these votes count for nobody."""
    outside = inputs.flatten(1).amin(dim=1) < -1.1
    return torch.where(outside[:, None, None, None], math.nan, inputs)


# --- modules with code of their own -----------------------------------------------------------------------------------


class ClampFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return clamped(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


@case()
@judging
def custom_autograd_function(self: Judge, inputs: Tensor) -> Tensor:
    """The forward of an autograd function of the user's own."""
    return ClampFunction.apply(inputs)


class ClampedLinear(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(clamped(inputs))


@case()
def subclass_of_linear() -> nn.Module:
    """It is a linear layer by its class, and not by what it does."""
    return nn.Sequential(nn.Flatten(), bright(ClampedLinear(SIZE, 2)))


class ClampedConvolution(nn.Conv2d):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(clamped(inputs)).abs()


@case()
def subclass_of_convolution() -> nn.Module:
    """The same for a convolution."""
    network = nn.Sequential(ClampedConvolution(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    return balanced(network, network[3])


@case()
def forward_of_the_instance() -> nn.Module:
    """One layer has a forward of its own, which its class does not show."""
    model = flat_linear()

    def forward(self: nn.Linear, inputs: Tensor) -> Tensor:
        return nn.functional.linear(clamped(inputs), self.weight, self.bias)

    model[1].forward = types.MethodType(forward, model[1])
    return model


@case()
def forward_that_is_a_closure() -> nn.Module:
    """The forward of the root is a function that holds another module."""
    model, held = flat_linear(), flat_linear()
    model.forward = lambda inputs: held(clamped(inputs))
    return model


class OwnCall(nn.Linear):
    def __call__(self, inputs: Tensor) -> Tensor:
        return super().__call__(clamped(inputs).flatten(1))


@case()
def own_call() -> nn.Module:
    """What happens is in __call__, and forward is torch's."""
    return bright(OwnCall(SIZE, 2))


@case()
def own_call_of_a_child() -> nn.Module:
    """The same for a child."""
    return nn.Sequential(nn.Identity(), bright(OwnCall(SIZE, 2)))


@case()
def forward_swapped_on_a_stock_layer() -> nn.Module:
    """A stock activation whose forward was exchanged on the instance."""
    model = small_network()
    model[2].forward = lambda values: values.abs() * 0.5
    return balanced(model, model[3])


class Unregistered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Flatten(), bright()]
        self.layers[1].register_forward_pre_hook(clamp_argument)

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs


@case()
def unregistered_layers() -> nn.Module:
    """The layers, and their hooks, are in a list that torch does not look into."""
    return Unregistered()


class ChangedByCopying(Judge):
    keeps = True

    def see(self, inputs: Tensor) -> Tensor:
        return clamped(inputs) if self.keeps else inputs

    def __deepcopy__(self, memo: object) -> ChangedByCopying:
        copied = ChangedByCopying()
        copied.keeps = False
        return copied


@case(SAME_OR_REFUSED)
def changed_by_copying() -> nn.Module:
    """A copy of it is another function."""
    return ChangedByCopying()


class StaysInTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), bright(threshold=2.0)

    def train(self, mode: bool = True) -> StaysInTraining:
        return super().train(True)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.drop(inputs.flatten(1)))


@case(REFUSED)
def stays_in_training() -> nn.Module:
    """eval() does nothing, so dropout is random."""
    return StaysInTraining()


@case(REFUSED)
@judging
def dropout_always(self: Judge, inputs: Tensor) -> Tensor:
    """Dropout as a function, which is in training mode unless told otherwise."""
    return nn.functional.dropout(clamped(inputs), 0.5) * 1.5


@case()
def dropout_in_training_mode() -> nn.Module:
    """The user forgot eval(): the module is evaluated all the same, and its flags are left."""
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), bright(threshold=3.0)).train()


@case()
def batch_norm_in_training_mode() -> nn.Module:
    """Batch norm in training mode would look across the batch, and change its buffers."""
    return with_batch_norm().train()


@case(SAME_OR_REFUSED)
def batch_norm_without_statistics() -> nn.Module:
    """Batch norm that keeps no statistics looks across the batch in evaluation mode, too."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten())
    return nn.Sequential(model, nn.Linear(2 * 36, 2)).eval()


@case()
def nested_and_shared() -> nn.Module:
    """One layer is used twice, in two places of the tree, and has a hook."""
    shared = nn.Linear(SIZE, SIZE)
    shared.register_forward_pre_hook(clamp_argument)
    network = nn.Sequential(nn.Flatten(), nn.Sequential(shared, nn.ReLU()), nn.Sequential(shared), nn.Linear(SIZE, 2))
    return balanced(network, network[3])


@case(tolerance=1e-4)
def transformer() -> nn.Module:
    """A transformer layer takes a fast path of its own where no gradient is asked for."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    network = nn.Sequential(nn.Flatten(1, 2), layer, nn.Flatten(), nn.Linear(SIZE, 2))
    return balanced(network, network[3])


@case(SAME_OR_REFUSED)
def lazy_module() -> nn.Module:
    """Its weights do not exist until it is asked, and then every copy has its own."""
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(2))


@case()
def lazy_module_with_weights() -> nn.Module:
    """It was asked before."""
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(2, *SHAPE))
    return balanced(model, model[1])


class Absolute(nn.Module):
    def forward(self, weights: Tensor) -> Tensor:
        return weights.abs() * torch.tensor([[1.0], [-1.0]])


@case()
def parametrized() -> nn.Module:
    """The weights are a function of what is stored."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 2))
    parametrize.register_parametrization(model[1], "weight", Absolute())
    return model


@case()
def new_weight_norm() -> nn.Module:
    """Weight norm as a parametrization."""
    return nn.Sequential(nn.Flatten(), parametrizations.weight_norm(nn.Linear(SIZE, 2)))


@case(SAME_OR_REFUSED)
def old_weight_norm() -> nn.Module:
    """Weight norm as a hook before each call, with weights that cannot be copied."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.Flatten(), nn.utils.weight_norm(nn.Linear(SIZE, 2)))


@case()
def new_spectral_norm() -> nn.Module:
    """Spectral norm in training mode changes its buffers at every look at the weights."""
    return nn.Sequential(nn.Flatten(), parametrizations.spectral_norm(nn.Linear(SIZE, 2))).train()


@case(SAME_OR_REFUSED)
def old_spectral_norm() -> nn.Module:
    """Spectral norm as a hook before each call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.Flatten(), nn.utils.spectral_norm(nn.Linear(SIZE, 2))).eval()


@case(tolerance=1e-4)
def channels_last() -> nn.Module:
    """Another layout in memory, and with it other kernels."""
    return with_batch_norm().to(memory_format=torch.channels_last)


@case()
@judging
def clamps_in_place(self: Judge, inputs: Tensor) -> Tensor:
    """It changes the batch it was given; twice is as good as once."""
    return inputs.clamp_(0.0, 1.0)


@case(SAME_OR_REFUSED)
@judging
def shifts_in_place(self: Judge, inputs: Tensor) -> Tensor:
    """It changes the batch it was given, and would again."""
    return inputs.add_(0.08)


class Transposed(Judge):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).t().contiguous().t()


@case()
def logits_not_contiguous() -> nn.Module:
    """Logits whose rows do not follow each other in memory."""
    return Transposed()


class Pair(Judge):
    def forward(self, inputs: Tensor) -> Any:
        return super().forward(inputs), inputs


@case(REFUSED)
def answers_with_a_pair() -> nn.Module:
    """Logits and something else: no classifier as it stands."""
    return Pair()


# --- compiled, scripted, wrapped --------------------------------------------------------------------------------------


class Scripted(nn.Module):
    """Control flow that TorchScript keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.head = bright()

    def forward(self, inputs: Tensor) -> Tensor:
        if bool((inputs < 0).any()):
            inputs = inputs.clamp(0.0, 1.0)
        return self.head(inputs.flatten(1))


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@case()
def scripted() -> nn.Module:
    """A scripted module with a branch on its input."""
    with _without_warnings():
        return torch.jit.script(Scripted().eval())


@case()
def traced() -> nn.Module:
    """A module the user traced: the trace is the model, whatever was traced."""
    with _without_warnings():
        return torch.jit.trace(convolutional(), torch.zeros(3, *SHAPE))


@case(SAME_OR_REFUSED)
def compiled() -> Iterator[nn.Module]:
    """torch.compile around a module with a hook."""
    yield torch.compile(pre_hook_on_linear(), backend="eager")
    torch.compiler.reset()


@case(SAME_OR_REFUSED)
def compiled_in_place() -> Iterator[nn.Module]:
    """Module.compile changes what a call does, not what the class is."""
    model = asked_allclose()
    model.compile(backend="eager")
    yield model
    torch.compiler.reset()


@case()
def data_parallel() -> nn.Module:
    """The usual wrapper, around a module with a hook."""
    return nn.DataParallel(pre_hook_on_linear())


@case()
def symbolically_traced() -> nn.Module:
    """A graph module, whose code is made at run time."""
    return torch.fx.symbolic_trace(convolutional())


# --- no functions of one row ------------------------------------------------------------------------------------------


@case(SAME_OR_REFUSED)
@judging
def batch_mean(self: Judge, inputs: Tensor) -> Tensor:
    """Every row is answered by the mean of the batch."""
    return clamped(inputs).mean(dim=0, keepdim=True).expand_as(inputs) * 1.02


@case(SAME_OR_REFUSED)
@judging
def quantised_by_the_batch(self: Judge, inputs: Tensor) -> Tensor:
    """Dynamic quantisation: the step is that of the largest value in the batch, an accident that changes few votes."""
    step = inputs.abs().amax() / 31.0
    return torch.round(inputs / step) * step


@case(SAME_OR_REFUSED)
@judging
def row_position(self: Judge, inputs: Tensor) -> Tensor:
    """Rows at odd places are answered otherwise."""
    odd = (torch.arange(len(inputs)) % 2).bool()[:, None, None, None]
    return torch.where(odd, inputs, clamped(inputs))


@case(SAME_OR_REFUSED)
@judging
def first_row(self: Judge, inputs: Tensor) -> Tensor:
    """Every row gets the answer of the first."""
    return inputs[:1].expand_as(inputs) + THRESHOLD / SIZE


class SoftmaxOverRows(Judge):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.softmax(0.1 * super().forward(inputs), dim=0)


@case(SAME_OR_REFUSED)
def softmax_over_rows() -> nn.Module:
    """A softmax along the wrong axis: a row alone is always a tie."""
    return SoftmaxOverRows()


@case(REFUSED)
@judging
def clock(self: Judge, inputs: Tensor) -> Tensor:
    """The answer depends on the time of day."""
    return clamped(inputs) if time.perf_counter_ns() // 1000 % 2 else inputs


@case(REFUSED)
@judging
def random_answers(self: Judge, inputs: Tensor) -> Tensor:
    """It adds noise of its own."""
    return inputs + torch.randn(len(inputs), 1, 1, 1) * 0.2


class CountsCalls(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def see(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return torch.where(self.calls % 2 == 0, inputs, clamped(inputs))


@case(REFUSED)
def counts_calls() -> nn.Module:
    """A buffer counts the calls, and every second call is answered otherwise."""
    return CountsCalls()


class RunningMax(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("peak", torch.tensor(0.0))

    def see(self, inputs: Tensor) -> Tensor:
        self.peak.copy_(torch.maximum(self.peak, inputs.max()))
        return inputs + (self.peak - 1.6) * 0.5


@case(SAME_OR_REFUSED)
def running_max() -> nn.Module:
    """A buffer holds the largest value ever seen, and the answer depends on it, until nothing larger comes."""
    return RunningMax()


class RunningMean(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(0.0))

    def see(self, inputs: Tensor) -> Tensor:
        self.mean.mul_(0.8).add_(0.2 * inputs.mean())
        return inputs - self.mean + 0.15


@case(REFUSED)
def running_mean() -> nn.Module:
    """A buffer follows the mean of what was seen last."""
    return RunningMean()


class Cache(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[bytes, Tensor] = {}

    def forward(self, inputs: Tensor) -> Tensor:
        answers = []
        for row in inputs:
            key = row.numpy().tobytes()
            if key not in self.known:
                self.known[key] = super().forward(clamped(row)[None])[0]
            answers.append(self.known[key])
        return torch.stack(answers)


@case()
def honest_cache() -> nn.Module:
    """A cache keyed by the whole input, which changes no answer."""
    return Cache()


class SecondTime(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.known: set[bytes] = set()

    def forward(self, inputs: Tensor) -> Tensor:
        keys = [row.numpy().tobytes() for row in inputs]
        again = torch.tensor([key in self.known for key in keys])[:, None]
        self.known.update(keys)
        logits = super().forward(clamped(inputs))
        return torch.where(again, logits.flip(1), logits)


@case(REFUSED)
def other_the_second_time() -> nn.Module:
    """It remembers what it was asked, and answers otherwise when it is asked again."""
    return SecondTime()


class CacheByFirstPixel(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, Tensor] = {}

    def forward(self, inputs: Tensor) -> Tensor:
        logits = super().forward(clamped(inputs))
        keys = [int(row[0, 0, 0] * 10) for row in inputs]
        return torch.stack([self.known.setdefault(key, one) for key, one in zip(keys, logits, strict=True)])


@case(REFUSED)
def careless_cache() -> nn.Module:
    """A cache whose key is not the whole input: the first row with a key answers for all."""
    return CacheByFirstPixel()


# --- no torch ---------------------------------------------------------------------------------------------------------


def _brightness(rows: np.ndarray) -> np.ndarray:
    return np.clip(rows, 0.0, 1.0).reshape(len(rows), -1).sum(axis=1, dtype=np.float64) - THRESHOLD


@case()
def callable_with_labels() -> Callable[[np.ndarray], np.ndarray]:
    """A Python function that answers with labels."""
    return lambda batch: (_brightness(batch) < 0).astype(np.int64)


@case(SAME_OR_REFUSED)
def callable_that_changes_its_batch() -> Callable[[np.ndarray], np.ndarray]:
    """It writes into the batch it was given."""

    def model(batch: np.ndarray) -> np.ndarray:
        batch += 0.05
        margin = _brightness(batch)
        return np.stack([margin, -margin], axis=1)

    return model


@case(SAME_OR_REFUSED)
def callable_with_batch_mean() -> Callable[[np.ndarray], np.ndarray]:
    """It takes off the mean of the batch."""
    return lambda batch: (_brightness(batch - batch.mean(axis=0) + 0.2) < 2.0).astype(np.int64)


class CallableWithState:
    def __init__(self) -> None:
        self.calls = itertools.count()

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        margin = _brightness(batch) * (1 if next(self.calls) % 2 else -1)
        return np.stack([margin, -margin], axis=1)


@case(REFUSED)
def callable_with_state() -> CallableWithState:
    """Every second call is answered the other way round."""
    return CallableWithState()


def _fitted(function: Callable[[np.ndarray], np.ndarray]) -> object:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    generator = np.random.default_rng(3)
    rows = generator.normal(0.15, 0.5, (300, SIZE)).astype(np.float32)
    labels = (_brightness(rows) < 4.0).astype(int)
    return make_pipeline(FunctionTransformer(function), LogisticRegression(max_iter=300)).fit(rows, labels)


@case()
def pipeline_with_function() -> object:
    """A scikit-learn pipeline whose first step is a lambda."""
    return _fitted(lambda rows: np.clip(rows, 0.0, 1.0))


@case(SAME_OR_REFUSED)
def pipeline_with_batch_mean() -> object:
    """A scikit-learn pipeline whose function looks across the rows."""
    return _fitted(lambda rows: np.clip(rows, 0.0, 1.0) - np.clip(rows, 0.0, 1.0).mean(axis=0))


def _onnx_file(folder: Path, nodes: list[Any], weights: dict[str, np.ndarray], *, external: bool = False) -> Path:
    """A file that takes `inputs` (N, 1, 8, 8) to `logits` (N, 2)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "room",
        [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["N", *SHAPE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path = folder / "model.onnx"
    onnx.save_model(
        model, str(path), save_as_external_data=external, location="weights.bin" if external else None, size_threshold=0
    )
    return path


def _head() -> dict[str, np.ndarray]:
    layer = bright(threshold=2.0)
    return {"weight": layer.weight.detach().numpy().T.copy(), "bias": layer.bias.detach().numpy().copy()}


@case()
def onnx_with_external_data() -> Iterator[Path]:
    """The weights are in a file beside the model."""
    from onnx import helper

    nodes = [helper.make_node("Flatten", ["inputs"], ["flat"]), _affine("flat", "logits")]
    with tempfile.TemporaryDirectory() as folder:
        yield _onnx_file(Path(folder), nodes, _head(), external=True)


def _affine(source: str, target: str) -> Any:
    from onnx import helper

    return helper.make_node("Gemm", [source, "weight", "bias"], [target])


@case()
def onnx_with_float64_inside() -> Iterator[Path]:
    """A sum that only float64 can hold."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Flatten", ["inputs"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Add", ["wide", "offset"], ["far"]),
        helper.make_node("Sub", ["far", "offset"], ["back"]),
        helper.make_node("Cast", ["back"], ["narrow"], to=TensorProto.FLOAT),
        _affine("narrow", "logits"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        yield _onnx_file(Path(folder), nodes, {**_head(), "offset": np.array([2.0**30])})


@case(SAME_OR_REFUSED)
def onnx_with_batch_mean() -> Iterator[Path]:
    """The graph takes off the mean over the rows."""
    from onnx import helper

    nodes = [
        helper.make_node("Flatten", ["inputs"], ["flat"]),
        helper.make_node("ReduceMean", ["flat"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["flat", "mean"], ["centred"]),
        _affine("centred", "logits"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        yield _onnx_file(Path(folder), nodes, _head())


@case(REFUSED)
def onnx_with_random_numbers() -> Iterator[Path]:
    """The graph adds noise of its own."""
    from onnx import helper

    nodes = [
        helper.make_node("Flatten", ["inputs"], ["flat"]),
        helper.make_node("RandomNormalLike", ["flat"], ["noise"], scale=0.5),
        helper.make_node("Add", ["flat", "noise"], ["noisy"]),
        _affine("noisy", "logits"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        yield _onnx_file(Path(folder), nodes, _head())
