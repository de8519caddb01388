"""Two rewrites of an exported network that make it faster in onnxruntime: the same function of real numbers.

Both change only weights, in float64, rounded once. Unknown graph structures are left unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.records import FloatArray

_BLOCK = 8
"""Channels that onnxruntime's convolutions process at once (16 with AVX-512, which is not faster here)."""

_Array = NDArray[np.floating[Any]]


def simplify(model: Any) -> Any:
    """Fold standardisation into the first layer and fill up channel blocks. Changes the onnx.ModelProto in place."""
    graph = _Graph(model)
    _fold_standardisation(graph)
    for node in list(model.graph.node):
        if node.op_type == "Conv":
            _fill_channels(graph, node)
    return model


class _Graph:
    """The readers of each value, and the weights by name."""

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self._proto = model.graph
        self._to_array, self._from_array = numpy_helper.to_array, numpy_helper.from_array
        self._weights = {entry.name: entry for entry in model.graph.initializer}

    @property
    def input(self) -> str:
        return str(self._proto.input[0].name)

    def reader(self, value: str) -> Any | None:
        """The node that reads this value, if there is exactly one and the value is not an output."""
        readers = [node for node in self._proto.node if value in node.input]
        if len(readers) != 1 or any(output.name == value for output in self._proto.output):
            return None
        return readers[0]

    def weight(self, node: Any, place: int) -> _Array | None:
        """The constant that only this node reads, at this place."""
        name = node.input[place] if place < len(node.input) else ""
        if name not in self._weights or self.reader(name) is not node:
            return None
        found: _Array = self._to_array(self._weights[name])
        return found

    def set_weight(self, node: Any, place: int, value: FloatArray) -> None:
        entry = self._weights[node.input[place]]
        entry.CopyFrom(self._from_array(value.astype(np.float32), entry.name))

    def remove(self, node: Any) -> None:
        """Remove a node; its readers read its input instead."""
        source, target = node.input[0], node.output[0]
        for other in self._proto.node:
            for place, name in enumerate(other.input):
                if name == target:
                    other.input[place] = source
        self._proto.node.remove(node)


def _attribute(node: Any, name: str, default: Any) -> Any:
    from onnx import helper

    return next((helper.get_attribute_value(entry) for entry in node.attribute if entry.name == name), default)


def _fold_standardisation(graph: _Graph) -> None:
    """Make (x - mean) / std part of the first layer.

    A convolution with zero padding pads after the standardisation, so only std can move into its weights.
    """
    subtract = graph.reader(graph.input)
    if subtract is None or subtract.op_type != "Sub" or subtract.input[0] != graph.input:
        return
    divide = graph.reader(subtract.output[0])
    if divide is None or divide.op_type != "Div" or divide.input[0] != subtract.output[0]:
        return
    mean, std = graph.weight(subtract, 1), graph.weight(divide, 1)
    layer, flat = _skip_flatten(graph, graph.reader(divide.output[0]))
    if layer is None or mean is None or std is None:
        return
    weight, bias = graph.weight(layer, 1), graph.weight(layer, 2)
    if weight is None or bias is None or layer.op_type != ("Gemm" if flat or mean.ndim == 2 else "Conv"):
        return
    means, stds = _by_column(layer, weight, mean), _by_column(layer, weight, std)
    if means is None or stds is None:
        return
    scaled = weight / stds
    if not any(_attribute(layer, "pads", [])) and _attribute(layer, "auto_pad", b"NOTSET") == b"NOTSET":
        shift = (scaled * means).reshape(len(weight), -1).sum(axis=1)
        graph.set_weight(layer, 2, bias - shift)
        graph.remove(subtract)
    graph.set_weight(layer, 1, scaled)
    graph.remove(divide)


def _skip_flatten(graph: _Graph, node: Any | None) -> tuple[Any | None, bool]:
    """The node, or the reader of its output if it is a Flatten; and whether it is one."""
    if node is None or node.op_type != "Flatten" or _attribute(node, "axis", 1) != 1:
        return node, False
    return graph.reader(node.output[0]), True


def _by_column(layer: Any, weight: _Array, values: _Array) -> FloatArray | None:
    """One value per channel, in a shape that broadcasts with the layer's weights; None if that is not clear."""
    per_channel = values.astype(np.float64).reshape(-1)
    if values.ndim < 2 or values.shape[1] != len(per_channel):
        return None
    if layer.op_type == "Conv":
        if _attribute(layer, "group", 1) != 1 or len(per_channel) not in (1, weight.shape[1]):
            return None
        return per_channel.reshape(1, -1, *(1,) * (weight.ndim - 2))
    plain = _attribute(layer, "transB", 0) == 1 and _attribute(layer, "alpha", 1.0) == 1.0
    if not plain or _attribute(layer, "beta", 1.0) != 1.0 or weight.shape[1] % len(per_channel):
        return None
    return np.repeat(per_channel, weight.shape[1] // len(per_channel))[None, :]


def _fill_channels(graph: _Graph, convolution: Any) -> None:
    """Append zero channels up to a whole block, if the convolution is pooled.

    Pooling uses the layout of the convolutions for whole blocks only; otherwise all values are converted to another
    layout and back. The next layer gets zero weights for the added channels.
    """
    weight, bias = graph.weight(convolution, 1), graph.weight(convolution, 2)
    layer, pooled = graph.reader(convolution.output[0]), False
    while layer is not None and layer.op_type in ("Relu", "MaxPool"):
        pooled |= layer.op_type == "MaxPool"
        layer = graph.reader(layer.output[0])
    layer, flat = _skip_flatten(graph, layer)
    if not pooled or layer is None or layer.op_type != ("Gemm" if flat else "Conv") or weight is None or bias is None:
        return
    following = graph.weight(layer, 1)
    channels = len(weight)
    missing = -channels % _BLOCK
    alone = all(_attribute(node, "group", 1) == 1 for node in (convolution, layer))
    columns_first = layer.op_type == "Conv" or _attribute(layer, "transB", 0) == 1
    if following is None or not missing or channels < _BLOCK or not alone or not columns_first:
        return
    graph.set_weight(convolution, 1, _pad_zeros(weight, missing, axis=0))
    graph.set_weight(convolution, 2, _pad_zeros(bias, missing, axis=0))
    # In a flattened input the values of a channel are adjacent.
    graph.set_weight(layer, 1, _pad_zeros(following, missing * following.shape[1] // channels if flat else missing))


def _pad_zeros(array: _Array, count: int, *, axis: int = 1) -> FloatArray:
    widths = [(0, count if place == axis else 0) for place in range(array.ndim)]
    return np.pad(array.astype(np.float64), widths)
