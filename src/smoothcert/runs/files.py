"""Writing the files of a run, and what is made from runs."""

from __future__ import annotations

from pathlib import Path

from smoothcert.errors import RunError
from smoothcert.files import write_whole


def write_atomically(path: Path, content: bytes, *, overwrite: bool) -> None:
    """`write_whole`, with a RunError where it cannot be done; an existing file is left alone unless `overwrite`."""
    if path.exists() and not overwrite:
        raise RunError(
            f"{path} already exists and is not overwritten: choose another name (or --force, where the verb has it)"
        )
    try:
        write_whole(path, content, overwrite=overwrite)
    except FileExistsError as error:
        raise RunError(f"{path} was made by another program meanwhile and is not overwritten") from error
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
