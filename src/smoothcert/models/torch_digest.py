"""Digests of torch networks: of modules with their hooks, tensors, graphs and scripts, and of exported programs."""

from __future__ import annotations

import hashlib
import io
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from smoothcert.models.digests import feed, object_digest, text_digest
from smoothcert.models.object_parts import Named, Parts, qualified_name

_SIZE_SYMBOL = re.compile(r"\b[su]\d+\b")
_HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_HOOK_FLAGS = ("_with_kwargs", "_always_called")
_BOOKKEEPING = frozenset(
    {
        *_HOOK_TABLES,
        *(table + flag for table in _HOOK_TABLES for flag in _HOOK_FLAGS),
        # These act when weights are saved or loaded, not when the module is called.
        "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
        "_non_persistent_buffers_set",
        # Only its presence counts: it was compiled from the module itself.
        "_compiled_call_impl",
        "_parameters", "_buffers", "_modules",
    }
)  # fmt: skip
_GRAPH_BOOKKEEPING = frozenset(
    {"_graph", "_code", "_lineno_map", "_prologue_start", "_tracer_cls", "_tracer_extras", "meta", "shape_env"}
    | {"_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks"}
)
"""A graph module computes by the `forward` generated from its graph, which belongs to its class."""

_MANGLED = re.compile(rb"___torch_mangle_\d+")
_SCRIPT_NOTES = re.compile(r"\.debug_pkl$|serialization_id$|^traced_inputs")


def module_digest(network: nn.Module, *, backend: str, program: ExportedProgram | None = None) -> str:
    """SHA-256 over everything the network computes with, the back end, and the exported program, if any.

    For every submodule: name, class, all attributes (functions by their code and what they refer to), training flag,
    hooks of every kind, a replaced `forward`, parameters and buffers with names, types, shapes, memory layout and
    bytes. Hooks on all modules of the process count too. Classes of the user count with their code and the global names
    it reads, classes of other installed packages with their code. torch and smoothcert are identified by their
    versions, which the manifest of a run records. Unreadable objects, such as locks, count by their type only.
    """
    global_hooks = tuple(hooks_of(vars(torch_module), prefix="_global"))
    graph = "" if program is None else exported_program_digest(program)
    return text_digest(object_digest((network, global_hooks), lenient=True), backend, graph)


def feed_tensors(hasher: hashlib._Hash, tensors: Mapping[str, Tensor]) -> None:
    """Add names, types, shapes and bytes, in the order of the names."""
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        feed(hasher, f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        feed(hasher, tensor.reshape(-1).view(torch.uint8).numpy().tobytes())


def exported_program_digest(program: ExportedProgram) -> str:
    """SHA-256 over an exported graph: its operations in order, and the bytes of all tensors.

    Nodes are named by their position, and symbolic sizes by their order, so the exporter's names do not count.
    """
    symbols: dict[str, str] = {}

    def rename(text: str) -> str:
        return _SIZE_SYMBOL.sub(lambda found: symbols.setdefault(found[0], f"size {len(symbols)}"), text)

    signature = program.graph_signature
    held: dict[str, object] = {
        str(spec.arg.name): program.state_dict.get(spec.target, program.constants.get(spec.target))
        for spec in signature.input_specs
        if spec.kind is not InputKind.USER_INPUT and spec.target is not None
    }
    kinds = [(str(spec.kind), held.get(getattr(spec.arg, "name", ""))) for spec in signature.input_specs]
    graph = _graph_parts(program.graph_module, rename)
    outputs = [str(spec.kind) for spec in signature.output_specs]
    ranges = sorted((rename(str(symbol)), rename(str(limits))) for symbol, limits in program.range_constraints.items())
    return object_digest((kinds, graph, outputs, ranges), lenient=True)


def _graph_parts(owner: nn.Module, rename: Callable[[str], str]) -> list[object]:
    graph = owner.graph
    assert isinstance(graph, fx.Graph)
    places = {node: place for place, node in enumerate(graph.nodes)}

    def to_plain(argument: Any) -> object:
        if isinstance(argument, fx.Node):
            return ("node", places[argument])
        if isinstance(argument, (list, tuple)):
            return [to_plain(one) for one in argument]
        if isinstance(argument, dict):
            return {name: to_plain(one) for name, one in argument.items()}
        if isinstance(argument, slice):
            return ("slice", to_plain(argument.start), to_plain(argument.stop), to_plain(argument.step))
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return rename(str(argument))
        return argument

    return [
        (node.op, _target(owner, node, rename), to_plain(node.args), to_plain(node.kwargs), _shapes(node, rename))
        for node in graph.nodes
    ]


def _target(owner: nn.Module, node: fx.Node, rename: Callable[[str], str]) -> object:
    """An operation by its name, a constant by its value, an inner graph by its nodes."""
    if node.op in ("placeholder", "output"):
        return None
    if node.op == "get_attr":
        value: Any = owner
        for name in str(node.target).split("."):
            value = getattr(value, name)
        return _graph_parts(value, rename) if isinstance(value, fx.GraphModule) else value
    target = node.target
    return f"{type(target).__name__} {target}" if isinstance(target, torch._ops.OperatorBase) else target


def _shapes(node: fx.Node, rename: Callable[[str], str]) -> object:
    """Type and shape of each tensor that a node returns."""
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return [
        (str(one.dtype), rename(str(tuple(one.shape)))) if isinstance(one, Tensor) else type(one).__name__
        for one in values
    ]


def parts_of_torch(value: Any) -> Parts | None:
    """Parts of an object of torch; None for everything else."""
    if isinstance(value, Tensor):
        return _parts_of_tensor(value)
    if isinstance(value, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return _parts_of_script(value)
    if isinstance(value, nn.Module):
        return _parts_of_nn_module(value)
    if isinstance(value, type) and value.__module__ == parametrize.__name__ and issubclass(value, nn.Module):
        return _parts_of_parametrized(value)
    if isinstance(value, RemovableHandle):
        return Parts("handle of a hook")
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format, torch.device)):
        return Parts(f"torch {value}")
    return None


def hooks_of(owner: Mapping[str, Any], *, prefix: str = "") -> Iterator[tuple[str, object]]:
    """All forward and backward hooks with their flags, in the order of the calls.

    owner: `vars` of a module or, with prefix "_global", of the torch file that holds the hooks on all modules.
    """
    for table in _HOOK_TABLES:
        for number, hook in (owner.get(prefix + table) or {}).items():
            flags = tuple(bool((owner.get(prefix + table + flag) or {}).get(number)) for flag in _HOOK_FLAGS)
            yield table, (hook, flags)


def _parts_of_nn_module(module: nn.Module) -> Parts:
    content = vars(module)
    skipped: Set[str] = _BOOKKEEPING
    if isinstance(module, fx.GraphModule):
        skipped |= _GRAPH_BOOKKEEPING
    if "_orig_mod" in content["_modules"]:
        # A result of torch.compile has nothing but the module and the state of the compiler.
        skipped = content.keys()
    attributes = tuple((name, value) for name, value in content.items() if name not in skipped)
    return Parts(
        "torch module",
        (
            type(module),
            Named(attributes),
            Named(tuple(content["_parameters"].items())),
            Named(tuple(content["_buffers"].items())),
            tuple(content["_modules"].items()),
            tuple(hooks_of(content)),
            content.get("_compiled_call_impl") is not None,
        ),
        lenient=True,
    )


def _parts_of_parametrized(kind: type[nn.Module]) -> Parts:
    """A class that torch made for one module whose parameters are computed.

    The closures of its functions are left out: they hold the module it was made for, not a copy that uses the class.
    """
    made = ((name, part.fget) for name, part in vars(kind).items() if isinstance(part, property))
    codes = tuple((name, None if getter is None else getter.__code__) for name, getter in made)
    return Parts(f"parametrized {kind.__qualname__}", (kind.__bases__, Named(codes)), lenient=True)


def _parts_of_tensor(tensor: Tensor) -> Parts:
    name = qualified_name(type(tensor))
    if nn.parameter.is_lazy(tensor):
        return Parts(f"tensor {name} without values")
    attributes = Named(tuple(vars(tensor).items()))
    label = f"tensor {name} {tensor.dtype} {tuple(tensor.shape)} {tensor.layout}"
    inner = getattr(tensor, "__tensor_flatten__", None)
    if inner is not None:
        names, context = inner()
        return Parts(label, (*(getattr(tensor, one) for one in names), context, attributes), lenient=True)
    return Parts(f"{label} {_memory_layout(tensor)}", (*_values_of(tensor.detach()), attributes), lenient=True)


def _memory_layout(tensor: Tensor) -> str:
    """The strides, because they decide which kernel runs. Strides along sides of length 1 mean nothing."""
    if tensor.layout is not torch.strided or tensor.numel() <= 1:
        return ""
    return str([step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1])


def _values_of(tensor: Tensor) -> tuple[object, ...]:
    if tensor.is_meta:
        return ("no values",)
    if tensor.is_nested:
        return tuple(tensor.unbind())
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return (whole.indices(), whole.values())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    if tensor.is_quantized:
        return (tensor.int_repr(), str(tensor.qscheme()), tensor.dequantize())
    plain = tensor.resolve_conj().resolve_neg().cpu().contiguous()
    return (hashlib.sha256(plain.reshape(-1).view(torch.uint8).numpy().data).digest(),)


def _parts_of_script(script: Any) -> Parts:
    """The file that TorchScript would write, without notes on its source and the example it was traced with.

    TorchScript numbers classes of equal names. The numbers are replaced by the order in which they appear.
    """
    numbers: dict[bytes, bytes] = {}

    def renumber(text: bytes) -> bytes:
        return _MANGLED.sub(lambda found: numbers.setdefault(found[0], b"number %d" % len(numbers)), text)

    with zipfile.ZipFile(io.BytesIO(script.save_to_buffer())) as archive:
        # "archive/data.pkl" → "data.pkl"
        entries = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    # Memo entries depend on how many references an object has; unused ones are dropped.
    entries |= {name: pickletools.optimize(entries[name]) for name in entries if name.endswith(".pkl")}
    names = sorted(name for name in entries if not _SCRIPT_NOTES.search(name))
    # The objects come first: they name their classes in the order of the modules, not of their numbers.
    names.sort(key=lambda name: name != "data.pkl")
    content = Named(tuple((renumber(name.encode()).decode(), renumber(entries[name])) for name in names))
    hooks = tuple(hooks_of(vars(script))) if isinstance(script, nn.Module) else ()
    return Parts("torch script", (content, hooks), lenient=True)
