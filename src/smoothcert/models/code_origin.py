"""The origin of code: a library identified by its version, another installed package, or the user's own files."""

from __future__ import annotations

import functools
import site
import sys
import sysconfig
from enum import Enum
from pathlib import Path
from types import FunctionType

VERSIONED = frozenset({"numpy", "scipy", "sklearn", "smoothcert", "torch"})
"""Libraries whose versions the manifest of a run records."""


class Origin(Enum):
    """VERSIONED: the standard library and `VERSIONED`, identified by name. INSTALLED: any other installed package; its
    code is read, but not what that code refers to. OWN: everything else.
    """

    VERSIONED = "versioned"
    INSTALLED = "installed"
    OWN = "own"


def origin_of_type(kind: type) -> Origin:
    """Origin of a class. One that cannot be found under its name was made at run time and counts as the user's own."""
    found: object = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return module_origin(kind.__module__) if found is kind else Origin.OWN


def origin_of_function(function: FunctionType) -> Origin:
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
