"""A user's own code, named as `package.module:attribute`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothcert.errors import ModelError, SmoothcertError


def is_own_code(spec: str) -> bool:
    """Whether this is a name of code rather than a file."""
    return ":" in spec and not Path(spec).exists()


def imported(spec: str) -> object:
    """The object `package.module:attribute` names; a class, or a function without required arguments, is
    called.
    """
    module_name, _, attribute = spec.partition(":")
    with _working_directory_first():
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
    """The source of a function, or of the class of an object, as far as it can be read; else nothing."""
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
def _working_directory_first() -> Iterator[None]:
    """Python run as an installed command does not look in the current folder; `-m` and scripts do."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
