"""Networks of the user, named as `package.module:attribute`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoothcert.errors import ModelError
from smoothcert.user_code import import_object


def import_network(name: str) -> nn.Module:
    """Import and run the code of that name: a module class, or a function that makes a module, without arguments."""
    try:
        found = import_object(name)
    except (SystemExit, GeneratorExit) as error:
        raise ModelError(f"{name} ended while it was imported: {type(error).__name__}: {error}") from error
    if not isinstance(found, nn.Module):
        raise ModelError(
            f"{name} is a {type(found).__name__}, not a network: name a subclass of torch.nn.Module, or a function "
            "that returns one, without required arguments"
        )
    return found


def initialise_lazy_layers(network: nn.Module, *, input_shape: tuple[int, ...], name: str) -> None:
    """Give layers such as LazyLinear their shapes and weights, by one input of zeros."""
    if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
        count_logits(network, input_shape=input_shape, name=name)


def count_logits(network: nn.Module, *, input_shape: tuple[int, ...], name: str) -> int:
    """Number of logits for one input of zeros, in evaluation mode.

    A network that does not map (B, *input_shape) to (B, classes) is a ModelError.
    """
    device = next((tensor.device for tensor in network.parameters()), torch.device("cpu"))
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            answer = network(torch.zeros((1, *input_shape), device=device))
    except Exception as error:  # code of the user can raise anything
        raise ModelError(
            f"{name} fails for an input of shape {input_shape}: {type(error).__name__}: {error}"
        ) from error
    finally:
        network.train(was_training)
    if not isinstance(answer, Tensor):
        raise ModelError(f"{name} answers with a {type(answer).__name__}: expected logits, a tensor (batch, classes)")
    if answer.ndim != 2 or len(answer) != 1 or not answer.is_floating_point():
        raise ModelError(
            f"{name} answers one input of shape {input_shape} with {answer.dtype} values of shape "
            f"{tuple(answer.shape)}: expected floating-point logits of shape (1, classes)"
        )
    return int(answer.shape[1])
