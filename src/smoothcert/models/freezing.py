"""A torch module as a frozen, fused graph for the processor."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from smoothcert.errors import ModelError

Forward = Callable[[Tensor], Tensor]


class RowwiseLinear(nn.Module):
    """A linear layer the graph optimiser leaves alone.

    It would store the weights transposed; the matrix kernel then chosen for few classes gives a row other
    last bits at odd positions of the batch than at even ones. The product as torch itself writes it does not,
    and is no slower.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight = layer.weight
        self.bias = layer.bias

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2:
            return nn.functional.linear(inputs, self.weight, self.bias)
        return torch.addmm(self.bias, inputs, self.weight.t())


def frozen_graph(network: nn.Module, input_shape: tuple[int, ...]) -> Forward | None:
    """The traced, frozen and fused network, or None where that cannot be done faithfully."""
    batches = check_batches(input_shape)
    try:
        graph = _traced(network, batches[0])
        # Twice: the first calls of a graph only observe, the optimised plan runs from then on.
        agrees = all(same_logits(network, graph, batch) for batch in batches * 2)
    except ModelError:
        raise
    except Exception:  # whatever a graph compiler may raise: the module itself still works
        return None
    return graph if agrees else None


def _traced(network: nn.Module, example: Tensor) -> Forward:
    with warnings.catch_warnings(), torch.no_grad():
        # torch.jit is deprecated in favour of a compiler that needs a C++ tool chain on the user's machine.
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.", category=DeprecationWarning)
        # Raised where Python code looks at values: the trace would hold one branch only.
        warnings.filterwarnings("error", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        rowwise = _with_rowwise_layers(copy.deepcopy(network))
        traced = torch.jit.trace(rowwise, example, check_trace=False)  # type: ignore[no-untyped-call]
        return cast(Forward, torch.jit.optimize_for_inference(traced))


def check_batches(input_shape: tuple[int, ...]) -> list[Tensor]:
    """Batches of several sizes on which a faster form of a network is compared with it."""
    generator = torch.Generator().manual_seed(0)
    return [torch.rand((rows, *input_shape), generator=generator) for rows in (16, 32, 48)]


def same_logits(network: nn.Module, graph: Forward, batch: Tensor) -> bool:
    """Whether another form of the network gives its logits, to within 10⁻⁴ of the largest.

    ModelError where the network does not repeat its own.
    """
    with torch.inference_mode():
        expected, again, fused = network(batch), network(batch), graph(batch)
    scale = float(expected.nan_to_num(0.0, 0.0, 0.0).abs().max())
    if not torch.allclose(expected, again, rtol=1e-5, atol=1e-5 * scale, equal_nan=True):
        raise ModelError(
            "the model gives different logits for the same batch; a base classifier must be "
            "deterministic: noise belongs to the smoothing, and dropout must follow eval mode"
        )
    return torch.allclose(expected, fused, rtol=1e-4, atol=1e-4 * scale, equal_nan=True)


def _with_rowwise_layers(network: nn.Module) -> nn.Module:
    """Every linear layer with a bias replaced, in place; subclasses keep whatever they do differently."""
    if type(network) is nn.Linear and network.bias is not None:
        return RowwiseLinear(network)
    for name, child in network.named_children():
        setattr(network, name, _with_rowwise_layers(child))
    return network
