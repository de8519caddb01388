"""Digests of torch networks: of the module as it was given, and of the graph it was exported to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.nn.modules import module as torch_module

from smoothcert.models.digests import Hasher, feed, object_digest, text_digest
from smoothcert.models.torch_parts import hooks_of

_SYMBOL = re.compile(r"\b[su]\d+\b")


def module_digest(network: nn.Module, *, backend: str, program: ExportedProgram | None = None) -> str:
    """SHA-256 over everything the network computes with, the back end, and the graph it was exported to, if any.

    Of every submodule: name, class, all attributes (functions by their code and what they refer to), training flag,
    hooks of every kind, an own `forward`, parameters and buffers with names, types, shapes, memory layout and bytes.
    Hooks on all modules of the process count too. Classes of the user's own count with their code and the global names
    it reads, classes of other installed packages with their code; torch and smoothcert are identified by their
    versions, which the manifest of a run holds. What cannot be read, such as a lock, counts by its type alone.
    """
    hooks_on_all = tuple(hooks_of(vars(torch_module), prefix="_global"))
    graph = "" if program is None else exported_program_digest(program)
    return text_digest(object_digest((network, hooks_on_all), lenient=True), backend, graph)


def exported_program_digest(program: ExportedProgram) -> str:
    """SHA-256 over an exported graph: its operations in order, and the bytes of all it computes with.

    Nodes are named by their position and sizes that are not fixed by the order in which they appear, so names given
    while exporting do not count.
    """
    held = _held_values(program)
    symbols: dict[str, str] = {}

    def renamed(text: str) -> str:
        return _SYMBOL.sub(lambda found: symbols.setdefault(found[0], f"size {len(symbols)}"), text)

    signature = program.graph_signature
    kinds = [(str(spec.kind), held.get(getattr(spec.arg, "name", ""))) for spec in signature.input_specs]
    graph = _graph_parts(program.graph_module, renamed)
    outputs = [str(spec.kind) for spec in signature.output_specs]
    ranges = sorted(
        (renamed(str(symbol)), renamed(str(limits))) for symbol, limits in program.range_constraints.items()
    )
    return object_digest((kinds, graph, outputs, ranges), lenient=True)


def feed_tensors(hasher: Hasher, tensors: Mapping[str, Tensor]) -> None:
    """Adds names, types, shapes and bytes, in the order of the names."""
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        feed(hasher, f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        feed(hasher, tensor.reshape(-1).view(torch.uint8).numpy().tobytes())


def _held_values(program: ExportedProgram) -> dict[str, object]:
    """Parameters, buffers and constants, under the names of the placeholders they are put in for."""
    held: dict[str, object] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT or spec.target is None:
            continue
        held[str(spec.arg.name)] = program.state_dict.get(spec.target, program.constants.get(spec.target))
    return held


def _graph_parts(owner: nn.Module, renamed: Callable[[str], str]) -> list[object]:
    graph = owner.graph
    assert isinstance(graph, fx.Graph)
    places = {node: place for place, node in enumerate(graph.nodes)}

    def plain(argument: Any) -> object:
        if isinstance(argument, fx.Node):
            return ("node", places[argument])
        if isinstance(argument, (list, tuple)):
            return [plain(one) for one in argument]
        if isinstance(argument, dict):
            return {name: plain(one) for name, one in argument.items()}
        if isinstance(argument, slice):
            return ("slice", plain(argument.start), plain(argument.stop), plain(argument.step))
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return renamed(str(argument))
        return argument

    return [
        (node.op, _target(owner, node, renamed), plain(node.args), plain(node.kwargs), _shape_of(node, renamed))
        for node in graph.nodes
    ]


def _target(owner: nn.Module, node: fx.Node, renamed: Callable[[str], str]) -> object:
    """What a node computes with: an operation by its name, a constant by its value, a graph inside by its nodes."""
    if node.op in ("placeholder", "output"):
        return None
    if node.op == "get_attr":
        value: Any = owner
        for name in str(node.target).split("."):
            value = getattr(value, name)
        return _graph_parts(value, renamed) if isinstance(value, fx.GraphModule) else value
    target = node.target
    if isinstance(target, torch._ops.OperatorBase):
        return f"{type(target).__name__} {target}"
    return target


def _shape_of(node: fx.Node, renamed: Callable[[str], str]) -> object:
    """Type and shape of what a node gives, as far as it is one tensor or several."""
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return [
        (str(one.dtype), renamed(str(tuple(one.shape)))) if isinstance(one, Tensor) else type(one).__name__
        for one in values
    ]
