"""What objects are made of, for their digests: labels and parts, down to numbers and texts.

Objects are only read. An object without a rule of its own is taken apart by the protocol pickle uses
(`__reduce_ex__`); nothing is ever rebuilt from what that gives.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.models.code_origin import Origin, module_origin, origin_of_function, origin_of_type

_ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_CODE_FLAGS = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags")
_CODE_NAMES = ("co_names", "co_varnames", "co_freevars", "co_cellvars")
_LOADS_OF_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


class UnreadableError(Exception):
    """An object that gives away nothing about its content."""


@dataclass(frozen=True, slots=True)
class Parts:
    """An object as a label and other objects.

    ordered: whether another order of the children is another object. lenient: a child that cannot be read counts by
    its type alone, instead of failing the digest.
    """

    label: str
    children: Sequence[object] = ()
    ordered: bool = True
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """Parts under names; the order of the names does not matter."""

    items: tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class UsedOfModule:
    """What some code may use of a module: the attributes with these names, as far as it has them."""

    module: str
    names: frozenset[str]


def atom_digest(value: object) -> bytes | None:
    """SHA-256 of a number, text or other value without parts; None for everything else."""
    kind = type(value)
    if kind not in _ATOMS:
        return None
    if isinstance(value, bytes):
        content = value
    elif isinstance(value, str):
        content = value.encode(errors="surrogatepass")
    else:
        # hex(): Python refuses to write very large whole numbers in decimal.
        content = (hex(value) if isinstance(value, int) else repr(value)).encode()
    return hashlib.sha256(kind.__name__.encode() + b"\0" + content).digest()


def parts_of(value: Any) -> Parts:
    """Label and children of an object that is no atom; UnreadableError where nothing can be found out."""
    kind = type(value)
    if kind in (list, tuple):
        return Parts(kind.__name__, value)
    if kind in (dict, OrderedDict, types.MappingProxyType):
        return Parts(kind.__name__, list(value.items()))
    if isinstance(value, (set, frozenset)):
        return Parts(_name(kind), list(value), ordered=False)
    if kind is Named:
        return Parts("named", value.items, ordered=False)
    if kind is UsedOfModule:
        return _parts_of_module(value)
    if kind in (np.ndarray, np.memmap):
        return _parts_of_array(value)
    if isinstance(value, np.generic) and not isinstance(value, np.object_):
        return Parts(f"scalar {_dtype_text(value.dtype)}", (value.tobytes(),))
    if "torch" in sys.modules:
        from smoothcert.models.torch_parts import parts_of_torch

        found = parts_of_torch(value)
        if found is not None:
            return found
    code = _parts_of_code(value)
    if code is not None:
        return code
    return _parts_by_pickle(value)


def _parts_of_array(array: np.ndarray[Any, Any]) -> Parts:
    # Matrix products sum a transposed matrix in another order.
    layout = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    label = f"array {_dtype_text(array.dtype)} {array.shape} {layout}"
    if array.dtype.hasobject:
        return Parts(label, array.ravel().tolist())
    return Parts(label, (hashlib.sha256(array.tobytes()).digest(),))


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return f"{dtype.str} {dtype}"


def _parts_of_code(value: Any) -> Parts | None:
    """Parts of functions, methods, classes, modules and the like; None if it is none of them."""
    if isinstance(value, types.FunctionType):
        return _parts_of_function(value)
    if isinstance(value, types.CodeType):
        numbers = [getattr(value, name) for name in (*_CODE_FLAGS, *_CODE_NAMES)]
        return Parts("code", (*numbers, value.co_code, value.co_exceptiontable, value.co_consts))
    if isinstance(value, type):
        return _parts_of_type(value)
    if isinstance(value, types.MethodType):
        return Parts("method", (value.__func__, value.__self__), lenient=True)
    if isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
        owner = value.__self__
        named = owner is None or isinstance(owner, types.ModuleType)
        module = getattr(value, "__module__", None)
        return Parts(f"builtin {module}.{value.__qualname__}", () if named else (owner,), lenient=True)
    if isinstance(value, _DESCRIPTORS):
        return Parts(f"descriptor {value.__name__}", (value.__objclass__,))
    if isinstance(value, types.ModuleType):
        return Parts(f"python module {value.__name__}")
    if isinstance(value, types.CellType):
        return Parts("cell", () if _is_empty(value) else (value.cell_contents,), lenient=True)
    if isinstance(value, (staticmethod, classmethod)):
        return Parts(_name(type(value)), (value.__func__,))
    if isinstance(value, property):
        return Parts(_name(type(value)), (value.fget, value.fset, value.fdel))
    if isinstance(value, functools.cached_property):
        return Parts(_name(type(value)), (value.func,))
    if isinstance(value, weakref.ReferenceType):
        return Parts("weak reference", (value(),))
    return None


def _is_empty(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _parts_of_function(function: types.FunctionType) -> Parts:
    """Code, defaults, closure and, for the user's own code, the global names it reads.

    A function of a library that its version identifies counts by its name, together with what it encloses: the wrapper
    that `torch.no_grad()` makes is torch's, the function inside is not.
    """
    enclosed = (function.__defaults__, function.__kwdefaults__, function.__closure__)
    origin = origin_of_function(function)
    if origin is Origin.VERSIONED:
        name = f"{function.__globals__.get('__name__')}.{function.__code__.co_qualname}"
        return Parts(f"function {name}", enclosed, lenient=True)
    read = () if origin is Origin.INSTALLED else tuple(_globals_read(function))
    attributes = Named(tuple((name, part) for name, part in vars(function).items() if name != "__wrapped__"))
    return Parts("function", (function.__code__, *enclosed, attributes, Named(read)), lenient=True)


def _globals_read(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    mentioned = frozenset(_names_mentioned(function.__code__))
    for name in sorted(set(_global_names(function.__code__))):
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        if isinstance(value, types.ModuleType) and module_origin(value.__name__) is Origin.OWN:
            value = UsedOfModule(value.__name__, mentioned)
        yield name, value


def _global_names(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS_OF_GLOBALS:
            yield str(instruction.argval)
    for inner in _inner_codes(code):
        yield from _global_names(inner)


def _names_mentioned(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in _inner_codes(code):
        yield from _names_mentioned(inner)


def _inner_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, types.CodeType))


def _parts_of_module(used: UsedOfModule) -> Parts:
    content = vars(sys.modules[used.module])
    items = []
    for name in sorted(used.names & content.keys()):
        value = content[name]
        if isinstance(value, types.ModuleType) and module_origin(value.__name__) is Origin.OWN:
            value = UsedOfModule(value.__name__, used.names)
        items.append((name, value))
    return Parts(f"python module {used.module}", (Named(tuple(items)),), lenient=True)


def _parts_of_type(kind: type) -> Parts:
    """The name of a class and what it consists of; of a library that its version identifies only what was put into the
    class later.
    """
    label = f"class {_name(kind)}"
    if origin_of_type(kind) is Origin.VERSIONED:
        return Parts(label, (Named(tuple(_methods_put_in(kind))),), lenient=True)
    content = Named(tuple((name, part) for name, part in vars(kind).items() if _computes(name, part)))
    return Parts(label, (type(kind), kind.__bases__, content), lenient=True)


def _methods_put_in(kind: type) -> Iterator[tuple[str, object]]:
    """Methods of a library's class, and of its bases, that are not the library's."""
    for base in kind.__mro__:
        for name, part in vars(base).items():
            if isinstance(part, types.FunctionType) and origin_of_function(part) is Origin.OWN:
                yield f"{_name(base)}.{name}", part


def _computes(name: str, part: object) -> bool:
    """Whether an entry of a class can change what its methods do: not its documentation and Python's own notes."""
    if name.startswith("__") and name.endswith("__"):
        return isinstance(part, (types.FunctionType, classmethod, staticmethod, property))
    return name != "_abc_impl" and not isinstance(part, _DESCRIPTORS)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _parts_by_pickle(value: Any) -> Parts:
    """What pickle would rebuild the object from: constructor, arguments, state, list items, dictionary items."""
    label = f"object {_name(type(value))}"
    wrapped = getattr(value, "__wrapped__", None)
    if callable(wrapped) and origin_of_type(type(value)) is not Origin.OWN:
        # A cache or compiler around a function; its own state is no part of what the function computes.
        return Parts(label, (wrapped,), lenient=True)
    if isinstance(value, np.ufunc) and set("".join(value.types)) <= set("O->"):
        raise UnreadableError("a function inside numpy.frompyfunc cannot be read")
    try:
        registered = copyreg.dispatch_table.get(type(value))
        reduced: Any = value.__reduce_ex__(4) if registered is None else registered(value)
    except Exception as error:  # whatever an object does when it is taken apart
        raise UnreadableError(str(error)) from error
    if isinstance(reduced, str):
        return Parts(label, (getattr(value, "__module__", None), reduced))
    constructor, arguments, *rest = reduced
    return Parts(label, (constructor, arguments, *(_readable(part) for part in rest)))


def _readable(part: object) -> object:
    """The state of an object without the order its attributes were set in; iterators over items as lists."""
    if type(part) is dict and all(isinstance(name, str) for name in part):
        return Named(tuple(part.items()))
    return list(part) if isinstance(part, Iterator) else part
