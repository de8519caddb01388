"""Code of the user, named as `package.module:attribute`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothcert.errors import ModelError, SmoothcertError


def is_code_name(spec: str) -> bool:
    """Whether `spec` names code rather than a file."""
    return ":" in spec and not Path(spec).exists()


def import_object(spec: str) -> object:
    """Import `package.module:attribute`. A class, or a function without required arguments, is called."""
    module_name, _, attribute = spec.partition(":")
    with _import_from_working_directory():
        try:
            found: Any = importlib.import_module(module_name)
            for name in attribute.split("."):
                found = getattr(found, name)
            return found() if _is_factory(found) else found
        except ImportError as error:
            raise ModelError(
                f"{spec}: {module_name} cannot be imported ({error}); is its folder the current one?"
            ) from error
        except AttributeError as error:
            raise ModelError(f"{spec}: {error}") from error
        except SmoothcertError:
            raise
        except Exception as error:
            raise ModelError(f"{spec} failed while it was imported: {type(error).__name__}: {error}") from error


def source_text(function: object) -> str:
    """Source of a function, or of the class of an object. Empty if it is not available."""
    for thing in (function, type(function)):
        try:
            return inspect.getsource(thing)  # type: ignore[arg-type]
        except (OSError, TypeError):
            continue
    return ""


def _is_factory(found: Any) -> bool:
    if inspect.isclass(found):
        return True
    if not inspect.isroutine(found):
        return False
    parameters = inspect.signature(found).parameters.values()
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(one.default is not inspect.Parameter.empty or one.kind in optional for one in parameters)


@contextmanager
def _import_from_working_directory() -> Iterator[None]:
    """Search the current folder first: an installed command does not, unlike `python -m` and scripts."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
