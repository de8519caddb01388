"""The end of a network as matrix products with ReLU between them, computed by oneDNN.

For linear layers `torch.jit` calls the matrix product of the BLAS library that torch was built with. oneDNN, which
torch contains too, stores the weights in the order of its kernels and uses all vector instructions of processors of any
maker. On one core it was up to 2.3 times faster. A row has the same bits in every batch and at every position, as with
the other forms (`torch_classifier.ROW_MULTIPLE`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from smoothcert.models.graph_parts import LayerTracer, affine_map, graph_of
from smoothcert.models.row_products import MOST_WEIGHTS
from smoothcert.models.standardise import Standardise

Forward = Callable[[Tensor], Tensor]

_AFFINE_LAYERS = frozenset(
    {
        nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.AvgPool1d,
        nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout,
        nn.Dropout2d, Standardise,
    }
)  # fmt: skip
"""Layers that are affine in evaluation mode. Subclasses do not count."""
_RELU_FUNCTIONS = (torch.relu, functional.relu)


@dataclass(frozen=True, slots=True)
class Product:
    """x ↦ xM + c, and then ReLU if `rectifies`. weight: M, packed by oneDNN."""

    weight: Tensor
    offset: Tensor
    rectifies: bool

    def __call__(self, rows: Tensor) -> Tensor:
        # Not the ReLU of oneDNN: it turns NaN into 0, so a network that overflows would seem to answer.
        product = cast(Tensor, torch.ops.mkldnn._linear_pointwise(rows, self.weight, self.offset, "none", [], ""))
        return product.relu_() if self.rectifies else product


@dataclass(frozen=True, slots=True)
class ProductChain:
    """begin, then the products. begin: the first part of a network; None if the products are all of it."""

    begin: Forward | None
    products: tuple[Product, ...]

    def __call__(self, batch: Tensor) -> Tensor:
        rows = (batch if self.begin is None else self.begin(batch)).flatten(1)
        for product in self.products:
            rows = product(rows)
        return rows


def find_products(network: nn.Module, example: Tensor) -> tuple[nn.Module | None, tuple[Product, ...]]:
    """(first part, the longest end that is affine maps with ReLU between them). First part: None if the end is all.

    No products are returned where they gain nothing, for other types than float32, and where oneDNN is missing.
    network: of stock layers (`freezing.is_stock`). example: a batch of inputs, which shows the shapes. Each affine map
    is computed in float64 and rounded once; a convolution counts only if its matrix is small. The caller compares the
    result with the network.
    """
    if example.dtype is not torch.float32 or not _has_packed_products():
        return network, ()
    try:
        stages = _split_at_relu(network, example)
    except Exception:  # anything that a symbolic trace cannot follow: the network runs in another form
        return network, ()
    kept = 0
    while kept < len(stages) and stages[-1 - kept].is_product:
        kept += 1
    first, chain = stages[: len(stages) - kept], stages[len(stages) - kept :]
    if not chain or (first and max(stage.weights for stage in chain) <= MOST_WEIGHTS):
        return network, ()
    begin = None
    if first:
        nodes = [node for stage in first for node in stage.all_nodes]
        begin = graph_of(network, nodes, output=nodes[-1], entry=first[0].entry)
    return begin, tuple(stage.make_product() for stage in chain)


def _has_packed_products() -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@dataclass(frozen=True, slots=True)
class _Stage:
    """The part of a network between one ReLU and the next.

    entry: the node before it. nodes: without the ReLU that ends it, `relu`, which only the last stage may lack.
    network: of the nodes. layers: those that it calls. taken: the shape of one row of its input. given: the number of
    values in a row of its output.
    """

    entry: fx.Node
    nodes: tuple[fx.Node, ...]
    relu: fx.Node | None
    network: nn.Module
    layers: tuple[nn.Module, ...]
    taken: tuple[int, ...]
    given: int

    @property
    def all_nodes(self) -> tuple[fx.Node, ...]:
        return self.nodes if self.relu is None else (*self.nodes, self.relu)

    @property
    def weights(self) -> int:
        """The size of its matrix."""
        return math.prod(self.taken) * self.given

    @property
    def is_product(self) -> bool:
        """Whether it is affine, and its matrix small or not larger than its linear layers."""
        is_affine = all(_keeps_affine(node) for node in self.nodes) and all(
            type(layer) in _AFFINE_LAYERS and not layer.training for layer in self.layers
        )
        linear = sum(layer.weight.numel() for layer in self.layers if isinstance(layer, nn.Linear))
        return is_affine and self.weights <= max(MOST_WEIGHTS, linear)

    def make_product(self) -> Product:
        matrix, offset = affine_map(self.network, self.taken)
        weight = torch.from_numpy(matrix.T.copy()).float()
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        return Product(packed, torch.from_numpy(offset).float(), self.relu is not None)


def _keeps_affine(node: fx.Node) -> bool:
    """Whether a node is a layer, which is looked at elsewhere, or flattens rows."""
    if node.op == "call_module":
        return True
    flattens = node.target == "flatten" if node.op == "call_method" else node.target is torch.flatten
    return flattens and tuple(node.args[1:]) == (1,)


def _split_at_relu(network: nn.Module, example: Tensor) -> list[_Stage]:
    """The stages of a network whose operations are one chain. ValueError if they are not."""
    first, *nodes, last = LayerTracer().trace(network).nodes
    for before, after in pairwise((first, *nodes, last)):
        if after.all_input_nodes != [before] or len(before.users) != 1:
            raise ValueError(f"{after} does not take the result of {before} alone")
    modules = dict(network.named_modules())
    stages: list[_Stage] = []
    held: list[fx.Node] = []
    entry, value = first, example.clone()
    for node in nodes:
        ends = _is_relu(node, modules)
        if not ends:
            held.append(node)
        if ends or node is nodes[-1]:
            stage = _make_stage(network, entry, held, node if ends else None, value)
            stages.append(stage)
            value = stage.network(value)
            entry, held = node, []
    return stages


def _make_stage(
    network: nn.Module, entry: fx.Node, nodes: Sequence[fx.Node], relu: fx.Node | None, value: Tensor
) -> _Stage:
    part = graph_of(network, nodes, output=nodes[-1], entry=entry)
    modules = dict(network.named_modules())
    layers = tuple(modules[str(node.target)] for node in nodes if node.op == "call_module")
    given = part(value).flatten(1).shape[1]
    return _Stage(entry, tuple(nodes), relu, part, layers, tuple(value.shape[1:]), given)


def _is_relu(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(modules[str(node.target)]) is nn.ReLU
    return (node.op == "call_method" and node.target == "relu") or node.target in _RELU_FUNCTIONS
