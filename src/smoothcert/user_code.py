"""Code of the user, named as `package.module:attribute`."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from smoothcert.errors import ModelError, SmoothcertError

ZOO = "zoo:"
"""What the name of a network of the zoo begins with (`models.zoo`)."""


class RecordedFolderWarning(UserWarning):
    """Code is imported from a folder that a run has recorded, because it cannot be imported from here."""


def is_code_name(spec: str) -> bool:
    """Whether `spec` names code rather than a file."""
    return ":" in spec and not is_zoo_name(spec) and not Path(spec).exists()


def is_zoo_name(spec: str) -> bool:
    """Whether `spec` names a network of the zoo."""
    return spec.startswith(ZOO)


def import_object(spec: str, *, code_folder: str | None = None) -> object:
    """Import `package.module:attribute`. A class, or a function without required arguments, is called.

    code_folder: imported from there, with a warning, if there is no such module here.
    """
    return call_factory(spec, find_object(spec, code_folder=code_folder))


def find_object(spec: str, *, code_folder: str | None = None) -> object:
    """Import what `import_object` does, and do not call it."""
    module_name, _, attribute = spec.partition(":")
    with _naming_failures(spec, module_name):
        module = _import_module(module_name, code_folder)
        found: Any = module
        for name in attribute.split("."):
            if not hasattr(found, name):
                place = getattr(module, "__file__", None) or "a folder without modules"
                raise ModelError(f"{spec}: {module_name} ({place}) has no attribute {name!r}")
            found = getattr(found, name)
        return found


def call_factory(spec: str, found: Any) -> object:
    """What a class or a function without required arguments returns. Anything else is returned as it is."""
    is_class = inspect.isclass(found)
    if not is_class and not inspect.isroutine(found):
        return found
    required = list_required_arguments(found)
    if not is_class and _takes_a_batch(required):
        return found
    if required:
        raise needs_arguments_error(spec, required)
    with _naming_failures(spec, spec.partition(":")[0]):
        return found()


def needs_arguments_error(spec: str, required: Sequence[inspect.Parameter]) -> ModelError:
    """For a class or a factory that cannot be called without arguments."""
    names = [parameter.name for parameter in required]
    module_name, _, attribute = spec.partition(":")
    call = f"{attribute}({', '.join(f'{name}=...' for name in names)})"
    return ModelError(
        f"{spec} needs {'the argument ' if len(names) == 1 else 'the arguments '}{', '.join(names)}, and a class or "
        f"factory is called without arguments. Add a function to {module_name}, such as\n"
        f"    def make_model():\n        return {call}\nand give {module_name}:make_model"
    )


def list_required_arguments(found: Any) -> list[inspect.Parameter]:
    """The parameters without a default; none if the signature is not known."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # some that are written in C
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one for one in parameters if one.default is inspect.Parameter.empty and one.kind not in optional]


def locate_code(spec: str) -> str | None:
    """The folder from which the module of `spec` was imported; None if it has not been imported from a file."""
    module_name = spec.partition(":")[0]
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    levels = module_name.count(".") + (path.stem == "__init__")
    return str(path.parents[levels]) if levels < len(path.parents) else None


def source_text(function: object) -> str:
    """Source of a function, or of the class of an object. Empty if it is not available."""
    for thing in (function, type(function)):
        try:
            return inspect.getsource(thing)  # type: ignore[arg-type]
        except (OSError, TypeError):
            continue
    return ""


def _takes_a_batch(required: Sequence[inspect.Parameter]) -> bool:
    return len(required) == 1 and required[0].kind is not inspect.Parameter.KEYWORD_ONLY


@contextmanager
def _naming_failures(spec: str, module_name: str) -> Iterator[None]:
    """Whatever the user's code raises becomes a ModelError that names it."""
    try:
        yield
    except SmoothcertError:
        raise
    except ImportError as error:
        raise ModelError(
            f"{spec}: {module_name} cannot be imported ({error}); is its folder the current one, or in PYTHONPATH?"
        ) from error
    except Exception as error:
        raise ModelError(f"{spec} failed while it was imported: {type(error).__name__}: {error}") from error


def _import_module(name: str, code_folder: str | None) -> ModuleType:
    """Import a module from the current folder or the usual places; if it is not there, from `code_folder`."""
    with _searching_first(Path.cwd()):
        try:
            module = importlib.import_module(name)
            if code_folder is None or not _is_bare_folder(module):
                return module
        except ModuleNotFoundError as error:
            is_itself = f"{name}.".startswith(f"{error.name}.")
            if code_folder is None or not is_itself:
                raise
    folder = Path(code_folder)
    # A relative folder would depend on where the command is run, which the sender of a run does not know.
    if not folder.is_absolute() or not folder.is_dir():
        raise ModuleNotFoundError(
            f"no module named {name!r} here, and the recorded {folder} is not the absolute path of a folder"
        )
    warnings.warn(
        f"{name} is not in the current folder or installed: its code is imported from {folder}, which the run recorded",
        RecordedFolderWarning,
        stacklevel=2,
    )
    _forget_bare_folders(name)
    with _searching_first(folder):
        importlib.invalidate_caches()
        return importlib.import_module(name)


def _is_bare_folder(module: ModuleType) -> bool:
    """Whether a folder without `__init__.py` was imported, perhaps only because it has the name of the module."""
    return hasattr(module, "__path__") and getattr(module, "__file__", None) is None


def _forget_bare_folders(name: str) -> None:
    """So that they do not hide the module."""
    parts = name.split(".")
    for known in (".".join(parts[:count]) for count in range(1, len(parts) + 1)):
        if known in sys.modules and _is_bare_folder(sys.modules[known]):
            del sys.modules[known]


@contextmanager
def _searching_first(folder: Path) -> Iterator[None]:
    """Search a folder first: an installed command does not search the current one, unlike `python -m` and scripts."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
