"""Write files and directories whole or not at all, and lock files against other processes.

What is being written has a temporary name beside its final one, ending in ".part", and is locked as long as its writer
lives. So the next writer can remove what processes left behind that were killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from smoothcert.errors import RunBusyError, RunError, SmoothcertError

Content = bytes | Callable[[IO[bytes]], object]
"""What a file will hold, or a function that writes it."""

_PART = ".part"
_RANDOM = re.compile("[a-z0-9_]{8}")
"""What tempfile puts between prefix and suffix."""


def write_whole(
    path: Path, content: Content, *, overwrite: bool = True, prefix: str | None = None, tidy: bool = True
) -> None:
    """Write `content` to a temporary file next to `path`, then rename it in one step.

    At any time, also after a crash or power failure, `path` is absent, old or complete. With overwrite=False, an
    existing file is kept and FileExistsError is raised, also if it appeared during the writing. Other failures are
    OSErrors that name a file. The temporary file is always removed; with `tidy` also those that killed processes left.
    prefix: of its name, which ends in ".part".
    """
    if not overwrite and path.exists():
        raise FileExistsError(f"{path} already exists")
    prefix = _prefix_of(path) if prefix is None else prefix
    if tidy:
        remove_dead_parts(path.parent, prefix)
    with _naming(path), _hold_part(lambda: tempfile.mkstemp(prefix=prefix, suffix=_PART, dir=path.parent)) as temporary:
        with temporary.open("wb") as stream:
            stream.write(content) if isinstance(content, bytes) else content(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(_default_mode())
        if overwrite:
            os.replace(temporary, path)
        else:
            move_to_unused_name(temporary, path)


def write_atomically(path: Path, content: Content, *, overwrite: bool, tidy: bool = True) -> None:
    """`write_whole` with a RunError for all failures."""
    if path.exists() and not overwrite:
        raise RunError(
            f"{path} already exists and is not overwritten: choose another name (or --force, if the command has it)"
        )
    try:
        write_whole(path, content, overwrite=overwrite, tidy=tidy)
    except FileExistsError as error:
        raise RunError(f"{path} was created by another program in the meantime and is not overwritten") from error
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def write_whole_directory(path: Path) -> Iterator[Path]:
    """A new directory to fill, which gets the name `path` when the block ends, or is removed if it raises.

    `path` is absent or an empty directory. If it is neither when the block ends, FileExistsError is raised.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_dead_parts(path.parent, _prefix_of(path))

    def make() -> tuple[int, str]:
        name = tempfile.mkdtemp(prefix=_prefix_of(path), suffix=_PART, dir=path.parent)
        return _open_directory(name), name

    with _hold_part(make) as temporary:
        yield temporary
        with _naming(path):
            temporary.chmod(_default_mode() | 0o111 & ~_umask())
            _rename_directory(temporary, path)


def remove_dead_parts(folder: Path, prefix: str = ".") -> None:
    """Remove temporary files and directories of processes that were killed. prefix: of their names."""
    try:
        names = [entry.name for entry in os.scandir(folder) if _is_part(entry.name, prefix)]
    except OSError:
        return  # the folder does not exist yet, or cannot be read
    for name in names:
        _remove_if_dead(folder / name)


def _is_part(name: str, prefix: str) -> bool:
    """Whether this is a temporary name with the prefix; with ".", with the prefix of any path."""
    if not (name.startswith(prefix) and name.endswith(_PART)):
        return False
    middle = name.removesuffix(_PART).removeprefix(prefix)
    return _RANDOM.fullmatch(middle.rsplit(".", 1)[-1] if prefix == "." else middle) is not None


def _remove_if_dead(part: Path) -> None:
    """Only what can be locked is known to be left behind. What cannot be removed does no harm."""
    with contextlib.suppress(OSError):
        descriptor = _open_directory(str(part)) if part.is_dir() else os.open(part, os.O_RDWR)
        try:
            if _lock(descriptor):
                _remove(part)
        finally:
            _close(descriptor)


@contextlib.contextmanager
def _hold_part(make: Callable[[], tuple[int, str]]) -> Iterator[Path]:
    """A temporary file or directory that is locked inside the block, and removed after it if it is still there."""
    while True:
        descriptor, name = make()
        _lock(descriptor)
        if _is_still_named(descriptor, name):
            break
        _close(descriptor)  # another process took it for a dead one before it was locked
    part = Path(name)
    try:
        if sys.platform == "win32":
            _close(descriptor)  # an open file cannot be renamed there
        yield part
    finally:
        _remove(part)
        if sys.platform != "win32":
            _close(descriptor)


def _is_still_named(descriptor: int, name: str) -> bool:
    if sys.platform == "win32":
        return True
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False


def _open_directory(name: str) -> int:
    return -1 if sys.platform == "win32" else os.open(name, os.O_RDONLY | os.O_DIRECTORY)


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an open file or directory until it is closed, which a dying process does. False if it is not possible."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by a living process, or a file system without locks
        return False
    return True


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


def _rename_directory(source: Path, target: Path) -> None:
    """Rename to a name that is unused or that of an empty directory."""
    try:
        if sys.platform == "win32" and target.is_dir():
            target.rmdir()
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(f"{target} already exists") from error
        raise


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say which file an OSError is about: those of writing and of syncing do not."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        error.filename = str(path)
        raise


def _prefix_of(path: Path) -> str:
    return f".{path.name}."


def require_readable(path: Path, missing: SmoothcertError) -> None:
    """Raise `missing` if there is no such file, and an exception of its kind if there is one that cannot be read."""
    try:
        if path.is_file():
            path.open("rb").close()
            return
    except OSError as error:
        raise type(missing)(f"{path} cannot be read: {error.strerror or error}") from error
    raise missing


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
    return 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


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
