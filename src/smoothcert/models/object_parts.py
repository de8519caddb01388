"""Labels and parts of objects, down to numbers and texts, for their digests.

Objects are only read. An object without a specific rule is taken apart by the protocol of pickle (`__reduce_ex__`);
nothing is rebuilt from the result.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import site
import sys
import sysconfig
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

VERSIONED = frozenset({"numpy", "scipy", "sklearn", "smoothcert", "torch"})
"""Libraries whose versions the manifest of a run records."""
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


class Origin(Enum):
    """VERSIONED: the standard library and `VERSIONED`, identified by name. INSTALLED: any other installed package; its
    code is read, but not what that code refers to. OWN: everything else.
    """

    VERSIONED = "versioned"
    INSTALLED = "installed"
    OWN = "own"


class UnreadableError(Exception):
    """The content of an object cannot be read."""


@dataclass(frozen=True, slots=True)
class Parts:
    """An object as a label and other objects.

    ordered: whether the order of the children counts. lenient: an unreadable child counts by its type only, instead of
    failing the digest.
    """

    label: str
    children: Sequence[object] = ()
    ordered: bool = True
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """Named parts; the order of the names does not count."""

    items: tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class UsedOfModule:
    """The attributes of a module that some code may use: those with these names."""

    module: str
    names: frozenset[str]


def atom_digest(value: object) -> bytes | None:
    """SHA-256 of a number, text or other value without parts; None for other objects."""
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
    """Label and children of an object that `atom_digest` does not cover; UnreadableError if it cannot be read."""
    kind = type(value)
    if kind in (list, tuple):
        return Parts(kind.__name__, value)
    if kind in (dict, OrderedDict, types.MappingProxyType):
        return Parts(kind.__name__, list(value.items()))
    if isinstance(value, (set, frozenset)):
        return Parts(qualified_name(kind), list(value), ordered=False)
    if kind is Named:
        return Parts("named", value.items, ordered=False)
    if kind is UsedOfModule:
        return _parts_of_module(value)
    if kind in (np.ndarray, np.memmap):
        return _parts_of_array(value)
    if isinstance(value, np.generic) and not isinstance(value, np.object_):
        return Parts(f"scalar {_dtype_text(value.dtype)}", (value.tobytes(),))
    if "torch" in sys.modules:
        from smoothcert.models.torch_digest import parts_of_torch

        found = parts_of_torch(value)
        if found is not None:
            return found
    return _parts_of_code(value) or _parts_by_pickle(value)


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
    """Parts of functions, methods, classes, modules and similar objects; None for other objects."""
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
        try:
            return Parts("cell", (value.cell_contents,), lenient=True)
        except ValueError:  # the cell is empty
            return Parts("cell", (), lenient=True)
    if isinstance(value, (staticmethod, classmethod)):
        return Parts(qualified_name(type(value)), (value.__func__,))
    if isinstance(value, property):
        return Parts(qualified_name(type(value)), (value.fget, value.fset, value.fdel))
    if isinstance(value, functools.cached_property):
        return Parts(qualified_name(type(value)), (value.func,))
    if isinstance(value, weakref.ReferenceType):
        return Parts("weak reference", (value(),))
    return None


def _parts_of_function(function: types.FunctionType) -> Parts:
    """Code, defaults, closure and, for the user's own code, the global names it reads.

    A function of a versioned library counts by its name and closure: the wrapper that `torch.no_grad()` makes belongs
    to torch, the function inside does not.
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
    codes = list(_nested_codes(function.__code__))
    read = {
        str(instruction.argval)
        for code in codes
        for instruction in dis.get_instructions(code)
        if instruction.opname in _LOADS_OF_GLOBALS
    }
    mentioned = frozenset(name for code in codes for name in code.co_names)
    return _items_used(function.__globals__, read, mentioned)


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code and all code objects inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested_codes(constant)


def _parts_of_module(used: UsedOfModule) -> Parts:
    items = _items_used(vars(sys.modules[used.module]), used.names, used.names)
    return Parts(f"python module {used.module}", (Named(tuple(items)),), lenient=True)


def _items_used(
    content: Mapping[str, object], names: Set[str], mentioned: frozenset[str]
) -> Iterator[tuple[str, object]]:
    """The entries with these names. Of a module of the user only the attributes that are mentioned count."""
    for name in sorted(names & content.keys()):
        value = content[name]
        if isinstance(value, types.ModuleType) and module_origin(value.__name__) is Origin.OWN:
            value = UsedOfModule(value.__name__, mentioned)
        yield name, value


def _parts_of_type(kind: type) -> Parts:
    """The name of a class and its content; for a versioned library only methods that were added from outside."""
    label = f"class {qualified_name(kind)}"
    if origin_of_type(kind) is Origin.VERSIONED:
        return Parts(label, (Named(tuple(_added_methods(kind))),), lenient=True)
    content = Named(tuple((name, part) for name, part in vars(kind).items() if _computes(name, part)))
    return Parts(label, (type(kind), kind.__bases__, content), lenient=True)


def _added_methods(kind: type) -> Iterator[tuple[str, object]]:
    """Methods of a library's class, and of its bases, that are the user's own."""
    for base in kind.__mro__:
        for name, part in vars(base).items():
            if isinstance(part, types.FunctionType) and origin_of_function(part) is Origin.OWN:
                yield f"{qualified_name(base)}.{name}", part


def _computes(name: str, part: object) -> bool:
    """Whether an entry of a class can affect what its methods do. Documentation and Python's bookkeeping cannot."""
    if name.startswith("__") and name.endswith("__"):
        return isinstance(part, (types.FunctionType, classmethod, staticmethod, property))
    return name != "_abc_impl" and not isinstance(part, _DESCRIPTORS)


def qualified_name(kind: type) -> str:
    """Module and qualified name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _parts_by_pickle(value: Any) -> Parts:
    """What pickle would store: constructor, arguments, state, list items, dictionary items."""
    label = f"object {qualified_name(type(value))}"
    wrapped = getattr(value, "__wrapped__", None)
    if callable(wrapped) and origin_of_type(type(value)) is not Origin.OWN:
        # A cache or compiler around a function; its state does not affect what the function computes.
        return Parts(label, (wrapped,), lenient=True)
    if isinstance(value, np.ufunc) and set("".join(value.types)) <= set("O->"):
        raise UnreadableError("a function inside numpy.frompyfunc cannot be read")
    try:
        registered = copyreg.dispatch_table.get(type(value))
        reduced: Any = value.__reduce_ex__(4) if registered is None else registered(value)
    except Exception as error:  # any error of the object's own code
        raise UnreadableError(str(error)) from error
    if isinstance(reduced, str):
        return Parts(label, (getattr(value, "__module__", None), reduced))
    constructor, arguments, *rest = reduced
    return Parts(label, (constructor, arguments, *(_normalise(part) for part in rest)))


def _normalise(part: object) -> object:
    """A state without the order in which attributes were set; iterators as lists."""
    if type(part) is dict and all(isinstance(name, str) for name in part):
        return Named(tuple(part.items()))
    return list(part) if isinstance(part, Iterator) else part


def origin_of_type(kind: type) -> Origin:
    """Origin of a class. One that cannot be found under its name was made at run time and counts as the user's own."""
    found: object = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return module_origin(kind.__module__) if found is kind else Origin.OWN


def origin_of_function(function: types.FunctionType) -> Origin:
    """By the module whose globals the function reads, because `functools.wraps` copies `__module__`."""
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or vars(module) is not function.__globals__:
        return Origin.OWN
    return module_origin(module.__name__)


def module_origin(name: str) -> Origin:
    """Origin of the module with that name, by the location of its top-level package."""
    top = name.partition(".")[0]
    if top in VERSIONED:
        return Origin.VERSIONED
    module = sys.modules.get(top)
    if module is None or top == "__main__":
        return Origin.OWN
    # A namespace package has folders and no file.
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if file is None:
        return Origin.VERSIONED if top in sys.stdlib_module_names else Origin.OWN
    return _origin_of_file(file)


@functools.lru_cache(maxsize=4096)
def _origin_of_file(file: str) -> Origin:
    path = Path(file).resolve()
    packages, library = _installation_folders()
    # Packages are installed inside the folder of the standard library, so they are checked first.
    if any(path.is_relative_to(folder) for folder in packages):
        return Origin.INSTALLED
    return Origin.VERSIONED if any(path.is_relative_to(folder) for folder in library) else Origin.OWN


@functools.cache
def _installation_folders() -> tuple[list[Path], list[Path]]:
    """The folders of installed packages, and those of the standard library."""
    packages = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()]
    library = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    return [Path(name).resolve() for name in (*packages, *site.getsitepackages())], [
        Path(name).resolve() for name in library
    ]
