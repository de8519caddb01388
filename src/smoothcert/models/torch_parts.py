"""What torch's objects are made of, for their digests: modules with their hooks, tensors, graphs, scripts."""

from __future__ import annotations

import hashlib
import io
import pickletools
import re
import zipfile
from collections.abc import Iterator, Mapping, Set
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from smoothcert.models.object_parts import Named, Parts

_HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_HOOK_FLAGS = ("_with_kwargs", "_always_called")
_BOOKKEEPING = frozenset(
    {
        *_HOOK_TABLES,
        *(table + flag for table in _HOOK_TABLES for flag in _HOOK_FLAGS),
        # These act when weights are saved or loaded, not when the module is called.
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
        "_non_persistent_buffers_set",
        # Only its presence counts: what it was compiled from is the module itself.
        "_compiled_call_impl",
        "_parameters",
        "_buffers",
        "_modules",
    }
)
_GRAPH_BOOKKEEPING = frozenset(
    {"_graph", "_code", "_lineno_map", "_prologue_start", "_tracer_cls", "_tracer_extras", "meta", "shape_env"}
    | {"_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks"}
)
"""A graph computes by the `forward` generated from it, which is a part of its class."""


_MANGLED = re.compile(rb"___torch_mangle_\d+")
_SCRIPT_NOTES = re.compile(r"\.debug_pkl$|serialization_id$|^traced_inputs")


def parts_of_torch(value: Any) -> Parts | None:
    """Parts of what belongs to torch; None for everything else."""
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
    """All forward and backward hooks, in the order they are called, each with its flags.

    owner: `vars` of a module, or with prefix "_global" of torch's own, where hooks on all modules lie.
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
        # What torch.compile gives: besides the module there is only the machinery of the compiler.
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
    """A class that torch made for one module whose parameters are computed; how, the module's own parts tell.

    What its functions enclose is left out: the module they were made for, which a copy of it has outlived.
    """
    made = ((name, part.fget) for name, part in vars(kind).items() if isinstance(part, property))
    codes = tuple((name, None if getter is None else getter.__code__) for name, getter in made)
    return Parts(f"parametrized {kind.__qualname__}", (kind.__bases__, Named(codes)), lenient=True)


def _parts_of_tensor(tensor: Tensor) -> Parts:
    kind = type(tensor)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if nn.parameter.is_lazy(tensor):
        return Parts(f"tensor {name} without values")
    attributes = Named(tuple(vars(tensor).items()))
    label = f"tensor {name} {tensor.dtype} {tuple(tensor.shape)} {tensor.layout}"
    inner = getattr(tensor, "__tensor_flatten__", None)
    if inner is not None:
        names, context = inner()
        return Parts(label, (*(getattr(tensor, one) for one in names), context, attributes), lenient=True)
    return Parts(f"{label} {_layout_of(tensor)}", (*_values_of(tensor.detach()), attributes), lenient=True)


def _layout_of(tensor: Tensor) -> str:
    """How the values lie in memory, since that decides which kernel computes with them.

    A step along a side of length 1 is never taken, so its stride means nothing.
    """
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
    """What TorchScript would write to a file, without notes about its source and the example it was traced with.

    TorchScript numbers classes that have the same name; the numbers are replaced by the order in which they appear.
    """
    numbers: dict[bytes, bytes] = {}

    def renumbered(text: bytes) -> bytes:
        return _MANGLED.sub(lambda found: numbers.setdefault(found[0], b"number %d" % len(numbers)), text)

    with zipfile.ZipFile(io.BytesIO(script.save_to_buffer())) as archive:
        # "archive/data.pkl" → "data.pkl"
        entries = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    # What is noted for later use depends on how many others hold an object; unused notes are dropped.
    entries |= {name: pickletools.optimize(entries[name]) for name in entries if name.endswith(".pkl")}
    told = sorted(name for name in entries if not _SCRIPT_NOTES.search(name))
    # The objects come first: they name their classes in the order of the modules, not of their numbers.
    told.sort(key=lambda name: name != "data.pkl")
    content = Named(tuple((renumbered(name.encode()).decode(), renumbered(entries[name])) for name in told))
    hooks = tuple(hooks_of(vars(script))) if isinstance(script, nn.Module) else ()
    return Parts("torch script", (content, hooks), lenient=True)
