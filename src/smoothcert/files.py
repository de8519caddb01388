"""Write files atomically, and lock files against other processes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from smoothcert.errors import RunBusyError, RunError

Content = bytes | Callable[[IO[bytes]], object]
"""What a file will hold, or a function that writes it."""


def write_whole(path: Path, content: Content, *, overwrite: bool = True, prefix: str | None = None) -> None:
    """Write `content` to a temporary file next to `path`, then rename it in one step.

    At any time, also after a crash or power failure, `path` is absent, old or complete. With overwrite=False, an
    existing file is kept and FileExistsError is raised, also if it appeared during the writing. Other failures are
    OSErrors. The temporary file is always removed. prefix: of its name, which ends in ".part".
    """
    if not overwrite and path.exists():
        raise FileExistsError(f"{path} already exists")
    handle, name = tempfile.mkstemp(prefix=prefix or f".{path.name}.", suffix=".part", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content) if isinstance(content, bytes) else content(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(_default_mode())
        if overwrite:
            os.replace(temporary, path)
        else:
            move_to_unused_name(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: Content, *, overwrite: bool) -> None:
    """`write_whole` with a RunError for all failures."""
    if path.exists() and not overwrite:
        raise RunError(
            f"{path} already exists and is not overwritten: choose another name (or --force, if the command has it)"
        )
    try:
        write_whole(path, content, overwrite=overwrite)
    except FileExistsError as error:
        raise RunError(f"{path} was created by another program in the meantime and is not overwritten") from error
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error


def move_to_unused_name(source: Path, target: Path) -> None:
    """Rename a file on the same disk. Raises FileExistsError if the new name exists."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links. `touch` reserves the name, or fails if it exists.
        target.touch(exist_ok=False)
        source.replace(target)


def _default_mode() -> int:
    """The permissions of an ordinary new file. Files of mkstemp are readable by the owner only."""
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask


def lock_path_of(path: Path) -> Path:
    """The lock file of `path`."""
    return path.with_name(path.name + ".lock")


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, so that no other process writes to it. Raises a RunBusyError if one does.

    The operating system releases the lock when the process ends, for any reason. The file `lock_path_of(path)` remains.
    """
    lock = FileLock(lock_path_of(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RunBusyError(f"another process is writing to {path}") from error
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()
