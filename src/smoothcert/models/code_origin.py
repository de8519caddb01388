"""Where code comes from: a library that its version identifies, another installed package, or the user's own files."""

from __future__ import annotations

import functools
import site
import sys
import sysconfig
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType

VERSIONED = frozenset({"numpy", "scipy", "sklearn", "smoothcert", "torch"})
"""Libraries whose versions the manifest of a run holds."""


class Origin(Enum):
    """VERSIONED: the standard library and `VERSIONED`, identified by name. INSTALLED: any other package that was
    installed, whose code is read but not what that code refers to. OWN: everything else.
    """

    VERSIONED = "versioned"
    INSTALLED = "installed"
    OWN = "own"


def origin_of_type(kind: type) -> Origin:
    """A class that cannot be found under its name was made at run time and is taken for the user's own."""
    origin = module_origin(kind.__module__)
    return origin if origin is Origin.OWN or _named(kind.__module__, kind.__qualname__) is kind else Origin.OWN


def origin_of_function(function: FunctionType) -> Origin:
    """By the module whose global names the function reads: `functools.wraps` copies `__module__`, but not those."""
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or vars(module) is not function.__globals__:
        return Origin.OWN
    return module_origin(module.__name__)


def module_origin(name: str) -> Origin:
    """Origin of the module with that name, by the place of its top-level package."""
    top = name.partition(".")[0]
    if top in VERSIONED:
        return Origin.VERSIONED
    module = sys.modules.get(top)
    if module is None or top == "__main__":
        return Origin.OWN
    file = _file(module)
    if file is None:
        return Origin.VERSIONED if top in sys.stdlib_module_names else Origin.OWN
    return _origin_of_file(file)


@functools.lru_cache(maxsize=4096)
def _origin_of_file(file: str) -> Origin:
    place = Path(file).resolve()
    # Installed packages lie inside the folder of the standard library, so they are looked for first.
    if any(place.is_relative_to(folder) for folder in _package_folders()):
        return Origin.INSTALLED
    return Origin.VERSIONED if any(place.is_relative_to(folder) for folder in _library_folders()) else Origin.OWN


def _file(module: ModuleType) -> str | None:
    # A namespace package has folders and no file.
    return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)


@functools.cache
def _package_folders() -> tuple[Path, ...]:
    names = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()]
    return tuple(Path(name).resolve() for name in (*names, *site.getsitepackages()))


@functools.cache
def _library_folders() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


def _named(module: str, qualname: str) -> object:
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
