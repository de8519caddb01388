"""Parts of a network as a symbolic trace shows them, and the affine maps that they compute."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, fx, nn

from smoothcert.models.standardise import Standardise
from smoothcert.records import FloatArray

_ROWS_AT_ONCE = 1024


class LayerTracer(fx.Tracer):
    """A symbolic trace that follows the code of the network, and takes layers of torch and `Standardise` as units."""

    def is_leaf_module(self, module: nn.Module, qualified_name: str) -> bool:
        # Its forward reads the number of dimensions, which a trace cannot follow.
        return type(module) is Standardise or super().is_leaf_module(module, qualified_name)


def graph_of(
    network: nn.Module, nodes: Sequence[fx.Node], *, output: fx.Node | None, entry: fx.Node | None
) -> nn.Module:
    """A module of some nodes: from the input, or from the result of `entry`, to `output`, or to the end."""
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    if entry is not None:
        known[entry] = graph.placeholder("hidden")
    for node in nodes:
        known[node] = graph.node_copy(node, lambda source: known[source])
    if output is not None:
        graph.output(known[output])
    return fx.GraphModule(network, graph)


def affine_map(front: nn.Module, input_shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """M (size, width) and c (width,) in float64 of x ↦ xM + c, computed from unit vectors."""
    front = copy.deepcopy(front).double()
    size = math.prod(input_shape)

    def apply(rows: Tensor) -> FloatArray:
        with torch.inference_mode():
            return cast(FloatArray, front(rows.reshape(-1, *input_shape)).flatten(1).numpy())

    offset = apply(torch.zeros(1, size, dtype=torch.float64))[0]
    parts = []
    for start in range(0, size, _ROWS_AT_ONCE):
        units = torch.zeros(min(_ROWS_AT_ONCE, size - start), size, dtype=torch.float64)
        units[:, start:].fill_diagonal_(1.0)
        parts.append(apply(units) - offset)
    return np.concatenate(parts), offset
