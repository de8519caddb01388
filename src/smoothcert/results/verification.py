"""The independent checker, with its errors as those of smoothcert."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.errors import InputError, InterruptedRunError, MissingExtraError, RegionMemoryError, RunError

if TYPE_CHECKING:
    from smoothcert.runs.held_run import HeldRun
    from smoothcert_verify.place_checks import Inspection


def verify_directory(path: Path, *, unfinished: bool) -> Inspection:
    """Check a run directory. unfinished: inputs may be missing."""
    with translate_checker_errors():
        from smoothcert_verify.place_checks import CheckOptions, inspect_places

        return inspect_places([path], CheckOptions(unfinished=unfinished))


def verify_held(run: HeldRun, *, name: str) -> Inspection:
    """Check the certificate of each input of a run in memory."""
    from smoothcert.runs.certificate_documents import list_documents

    with translate_checker_errors():
        from smoothcert_verify.place_checks import inspect_documents

        return inspect_documents((document for _, document in list_documents(run)), name=name)


@contextlib.contextmanager
def translate_checker_errors() -> Iterator[None]:
    """The checker has errors of its own, because it imports nothing of smoothcert."""
    from smoothcert_verify.findings import MemoryPlaceError, MissingPackageError, OptionError, PlaceError

    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptedRunError("stopped before everything was checked. Nothing was written: start again") from error
    except MissingPackageError as error:
        raise MissingExtraError(error.package, error.extra, error.purpose) from error
    except ModuleNotFoundError as error:
        if error.name != "flint":
            raise
        raise MissingExtraError("python-flint", "verify", "checking bounds and radii in ball arithmetic") from error
    except OptionError as error:
        raise InputError(str(error)) from error
    except PlaceError as error:
        raise RunError(str(error)) from error
    except MemoryPlaceError as error:
        raise RegionMemoryError(str(error)) from error
