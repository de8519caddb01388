"""Writing a file whole or not at all, and alone; each room says in its own words what went wrong."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from smoothcert.errors import RunBusyError, RunError


def write_whole(path: Path, content: bytes, *, overwrite: bool = True, prefix: str | None = None) -> None:
    """Write `content` under a temporary name next to `path`, then move it there in one step.

    At any moment, also after a crash or a power cut, `path` is absent, old or complete. With overwrite=False an
    existing file is left alone and FileExistsError is raised, also when it appeared while we were writing. Other
    failures are OSErrors too; none leaves the temporary file behind. prefix: of the temporary name, which always ends
    in ".part".
    """
    if not overwrite and path.exists():
        raise FileExistsError(f"{path} already exists")
    handle, name = tempfile.mkstemp(prefix=prefix or f".{path.name}.", suffix=".part", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(_default_mode())
        if overwrite:
            os.replace(temporary, path)
        else:
            move_to_unused_name(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def move_to_unused_name(source: Path, target: Path) -> None:
    """Give a finished file its name, on the same disk; FileExistsError if the name is taken."""
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
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask


def lock_beside(path: Path) -> Path:
    """The file whose lock stands for `path`."""
    return path.with_name(path.name + ".lock")


@contextlib.contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Holds the lock of `path`, a file beside it, so that no other process writes there; RunBusyError where one does.

    The operating system drops the lock with the process, however it ends. The file, `lock_beside`, stays.
    """
    lock = FileLock(lock_beside(path))
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
