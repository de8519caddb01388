"""Writing a file so that it is either whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from smoothcert.errors import RunError


def write_atomically(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Write `content` under a temporary name next to `path`, then move it there in one step.

    A reader sees the old file or the new one, never a part. With overwrite=False an existing file is left
    alone and RunError is raised, also when it appeared while we were writing.
    """
    if path.exists() and not overwrite:
        raise RunError(
            f"{path} already exists and is not overwritten: choose another name (or --force, where the verb has it)"
        )
    try:
        handle, temporary_name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
    temporary = Path(temporary_name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(_default_mode())
        if overwrite:
            temporary.replace(path)
        else:
            _move_to_unused_name(temporary, path)
    except FileExistsError as error:
        raise RunError(f"{path} was made by another program meanwhile and is not overwritten") from error
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _move_to_unused_name(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links. Creating the name first claims it, or fails if it is taken.
        target.touch(exist_ok=False)
        source.replace(target)


def _default_mode() -> int:
    """The permissions an ordinary new file would get; mkstemp gives the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
