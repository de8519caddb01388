"""Adversarial models: ordinary networks, and networks with hooks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from adversarial_cases import (
    SAME_OR_REFUSED,
    balanced,
    bright,
    case,
    clamp_argument,
    clamped,
    convolutional,
    flat_linear,
    flip_outside,
    small_network,
    with_batch_norm,
)


@case()
def plain_mlp() -> nn.Module:
    """Not adversarial: two linear layers."""
    return small_network()


@case()
def plain_convolution() -> nn.Module:
    """Not adversarial: a small convolutional network."""
    return convolutional()


@case()
def plain_batch_norm() -> nn.Module:
    """Not adversarial: batch norm in evaluation mode."""
    return with_batch_norm()


ORDINARY = ("plain_mlp", "plain_convolution", "plain_batch_norm")


@case()
def pre_hook_on_linear() -> nn.Module:
    """The layer that is replaced by a faster one has a hook that clamps its input."""
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
    """The logits are swapped if the input is far outside [0, 1]."""
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
    """The hook acts on the user's object, but not on copies of it."""
    model = flat_linear()
    original = model[1]
    original.register_forward_pre_hook(lambda module, a: (clamped(a[0]),) if module is original else None)
    return model


@case(SAME_OR_REFUSED)
def hook_with_state_of_the_original() -> nn.Module:
    """The hook reads an attribute of the user's object that changes when the model is copied."""
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
    """A hook for gradients uses other code even if no gradient is requested."""
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
