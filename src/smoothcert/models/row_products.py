"""Linear layers and small convolutions as matrix products that give a row the same bits anywhere in a batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

MOST_WEIGHTS = 1 << 15
"""The size of the largest matrix that replaces a convolution.

A convolution of few values spends most of its time on the layout of its data. Up to this size the product was 1.5 to 8
times faster on one core, in batches of 256 and 2048; at four times the size it was not faster any more.
"""


class RowwiseLinear(nn.Linear):
    """A linear layer that the graph optimiser does not change.

    The optimiser would store the weights transposed. The matrix kernel then chosen for few classes gives a row other
    last bits at odd positions of the batch than at even ones. The product as torch itself computes it does not, and is
    not slower.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2:
            return super().forward(inputs)
        return torch.addmm(self.bias, inputs, self.weight.t())


class _Product(nn.Module):
    """A convolution of rows of one shape, as a product with a matrix. given: the shape of a row of its output."""

    given: tuple[int, ...]
    matrix: Tensor
    offset: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.addmm(self.offset, inputs.flatten(1), self.matrix).reshape(-1, *self.given)


class _Product1d(_Product, nn.Conv1d):
    """`_Product` for signals."""


class _Product2d(_Product, nn.Conv2d):
    """`_Product` for images."""


class _Product3d(_Product, nn.Conv3d):
    """`_Product` for volumes."""


_PRODUCTS: dict[type[nn.Module], type[_Product]] = {
    nn.Conv1d: _Product1d,
    nn.Conv2d: _Product2d,
    nn.Conv3d: _Product3d,
}


def use_row_products(network: nn.Module, example: Tensor, *, may_replace: Callable[[nn.Module], bool]) -> None:
    """Replace linear layers and small convolutions of the network in place, if they are exactly of torch's classes.

    example: a batch of inputs, which shows the shapes that reach the convolutions.
    """
    layers = [layer for layer in network.modules() if may_replace(layer)]
    for layer in layers:
        if type(layer) is nn.Linear and layer.bias is not None:
            layer.__class__ = RowwiseLinear
    convolutions = [layer for layer in layers if type(layer) in _PRODUCTS]
    for layer, shapes in _shapes_given_to(convolutions, network, example).items():
        if len(shapes) == 1:
            _use_product(layer, shapes.pop())


def _shapes_given_to(layers: list[nn.Module], network: nn.Module, example: Tensor) -> dict[nn.Module, set[torch.Size]]:
    """The shapes of one row that each layer gets when the network is called."""
    seen: dict[nn.Module, set[torch.Size]] = {}

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.setdefault(layer, set()).add(inputs[0].shape[1:])

    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        network(example.clone())
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _use_product(layer: nn.Module, taken: torch.Size) -> None:
    """Turn a convolution of rows of this shape into a product, if its matrix is small."""
    weight: Tensor = layer.get_parameter("weight")
    zero = torch.zeros((1, *taken), dtype=weight.dtype)
    if zero.ndim != weight.ndim:  # a single input without an axis for the batch
        return
    offset = layer(zero)
    if zero.numel() * offset.numel() > MOST_WEIGHTS:
        return
    basis = torch.eye(zero.numel(), dtype=weight.dtype).reshape(-1, *taken)
    bias = layer.bias
    layer.register_parameter("bias", None)
    matrix = layer(basis)  # without the bias, so that its entries are the weights themselves
    layer.bias = bias
    layer.__class__ = _PRODUCTS[type(layer)]
    layer.given = tuple(offset.shape[1:])  # type: ignore[assignment]
    layer.register_buffer("matrix", matrix.flatten(1), persistent=False)
    layer.register_buffer("offset", offset.flatten(), persistent=False)
