"""Adversarial models: modules with custom code, and compiled, scripted or wrapped modules."""

from __future__ import annotations

import contextlib
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from adversarial_cases import (
    REFUSED,
    SAME_OR_REFUSED,
    SHAPE,
    SIZE,
    Judge,
    balanced,
    bright,
    case,
    clamp_argument,
    clamped,
    convolutional,
    flat_linear,
    judging,
    small_network,
    with_batch_norm,
)
from adversarial_control_flow import asked_allclose
from adversarial_hooks import pre_hook_on_linear


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
    """The forward of a user-defined autograd function."""
    return ClampFunction.apply(inputs)


class ClampedLinear(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(clamped(inputs))


@case()
def subclass_of_linear() -> nn.Module:
    """A subclass of a linear layer that computes something else."""
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
    """One layer has a replaced forward, which its class does not show."""
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
    """The code is in __call__, and forward is torch's."""
    return bright(OwnCall(SIZE, 2))


@case()
def own_call_of_a_child() -> nn.Module:
    """The same for a child."""
    return nn.Sequential(nn.Identity(), bright(OwnCall(SIZE, 2)))


@case()
def forward_swapped_on_a_stock_layer() -> nn.Module:
    """A stock activation whose forward was replaced on the instance."""
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
    """The layers, and their hooks, are in a list that torch does not traverse."""
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
    """Dropout as a function, which is in training mode by default."""
    return nn.functional.dropout(clamped(inputs), 0.5) * 1.5


@case()
def dropout_in_training_mode() -> nn.Module:
    """The user forgot eval(): the module is evaluated anyway, and its flags are kept."""
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), bright(threshold=3.0)).train()


@case()
def batch_norm_in_training_mode() -> nn.Module:
    """Batch norm in training mode would mix the rows of a batch and change its buffers."""
    return with_batch_norm().train()


@case(SAME_OR_REFUSED)
def batch_norm_without_statistics() -> nn.Module:
    """Batch norm without statistics mixes the rows of a batch in evaluation mode too."""
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
    """A transformer layer uses a fast path if no gradient is requested."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    network = nn.Sequential(nn.Flatten(1, 2), layer, nn.Flatten(), nn.Linear(SIZE, 2))
    return balanced(network, network[3])


@case(SAME_OR_REFUSED)
def lazy_module() -> nn.Module:
    """Its weights do not exist before the first call, and then every copy has different ones."""
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(2))


@case()
def lazy_module_with_weights() -> nn.Module:
    """A lazy module that was called before."""
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(2, *SHAPE))
    return balanced(model, model[1])


class Absolute(nn.Module):
    def forward(self, weights: Tensor) -> Tensor:
        return weights.abs() * torch.tensor([[1.0], [-1.0]])


@case()
def parametrized() -> nn.Module:
    """The weights are computed from stored tensors."""
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
    """Spectral norm in training mode changes its buffers whenever the weights are read."""
    return nn.Sequential(nn.Flatten(), parametrizations.spectral_norm(nn.Linear(SIZE, 2))).train()


@case(SAME_OR_REFUSED)
def old_spectral_norm() -> nn.Module:
    """Spectral norm as a hook before each call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.Flatten(), nn.utils.spectral_norm(nn.Linear(SIZE, 2))).eval()


@case(tolerance=1e-4)
def channels_last() -> nn.Module:
    """Another memory layout, and so other kernels."""
    return with_batch_norm().to(memory_format=torch.channels_last)


@case()
@judging
def clamps_in_place(self: Judge, inputs: Tensor) -> Tensor:
    """Changes its input in place; a second time has no effect."""
    return inputs.clamp_(0.0, 1.0)


@case(SAME_OR_REFUSED)
@judging
def shifts_in_place(self: Judge, inputs: Tensor) -> Tensor:
    """Changes its input in place, each time further."""
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
        return super().forward(inputs), inputs.flatten(1)


@case(REFUSED)
def answers_with_a_pair() -> nn.Module:
    """Returns two things that could be logits, so it is not known which of them decides."""
    return Pair()


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
    """A module that the user traced: the trace is the model."""
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
