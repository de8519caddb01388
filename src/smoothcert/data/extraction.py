"""Unpacking of untrusted archives.

An archive is read as one stream, and never more of it than the limit allows, in headers as well as in files: a few
kilobytes may unpack to any size.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import shutil
import subprocess
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from smoothcert.errors import DataError

_MAX_MEMBERS = 10_000
_DPKG_SECONDS = 300.0
_HEADER_BYTES = 2048
"""Bytes of a member besides its content: headers and padding."""
_LAST_RECORD = 1 << 20
"""Bytes allowed after the last member: archives are padded to whole records."""
_COMPRESSED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_UNREADABLE = (
    tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError,
    # Raised by the standard library for invalid numbers in headers.
    ValueError, OverflowError, IndexError, KeyError, RecursionError,
)  # fmt: skip


def extract_archive(archive: Path, destination: Path, *, size_limit: int) -> None:
    """Unpack a .tgz, .tar.gz or .deb into `destination`. Suspicious content is a DataError.

    size_limit: most bytes of all members together. Only plain files and folders inside `destination` are created.
    """
    if archive.suffix != ".deb":
        extract_tar(archive, destination, size_limit=size_limit)
        return
    with _open_deb(archive) as stream:
        _extract_stream(stream, archive.name, destination, size_limit=size_limit)


def extract_tar(archive: Path, destination: Path, *, size_limit: int) -> None:
    """Unpack a tar file, compressed or not. Links, devices, paths that lead outside and excess size are refused."""
    try:
        with archive.open("rb") as raw:
            start = raw.read(6)
            raw.seek(0)
            unpack = next((unpack for magic, unpack in _COMPRESSED.items() if start.startswith(magic)), None)
            stream = raw if unpack is None else cast(BinaryIO, unpack(raw, "rb"))
            _extract_stream(stream, archive.name, destination, size_limit=size_limit)
    except OSError as error:
        raise DataError(f"{archive.name} cannot be unpacked: {error}") from error


class _LimitedStream:
    """A stream that raises an error after a number of bytes."""

    def __init__(self, stream: IO[bytes], name: str, *, most: int) -> None:
        self._stream = stream
        self._name = name
        self._left = most

    def read(self, size: int) -> bytes:
        piece = self._stream.read(min(size, self._left + 1))
        self._left -= len(piece)
        if self._left < 0:
            raise _TooMuchError(f"{self._name} unpacks to more than the limit: refused")
        return piece


class _TooMuchError(DataError):
    """An archive exceeds the limit."""


def _extract_stream(stream: IO[bytes], name: str, destination: Path, *, size_limit: int) -> None:
    total = 0
    limited = _LimitedStream(stream, name, most=size_limit + _MAX_MEMBERS * _HEADER_BYTES + _LAST_RECORD)
    try:
        with tarfile.open(fileobj=cast(IO[bytes], limited), mode="r|") as tar:
            for count, member in enumerate(tar, start=1):
                if not (member.isfile() or member.isdir()):
                    raise DataError(f"{name} holds {member.name!r}, which is neither a file nor a folder")
                total += max(0, member.size)
                if total > size_limit or count > _MAX_MEMBERS:
                    raise DataError(
                        f"{name} unpacks to more than {size_limit:,} bytes or {_MAX_MEMBERS:,} files: refused"
                    )
                tar.extract(member, destination, filter="data")
    except tarfile.FilterError as error:
        raise DataError(f"{name} tries to write outside its folder: {error}") from error
    except _UNREADABLE as error:
        raise DataError(f"{name} cannot be unpacked: {error}") from error


@contextlib.contextmanager
def _open_deb(archive: Path) -> Iterator[IO[bytes]]:
    """Open the tar stream of a .deb through dpkg-deb, so that it passes the same checks as every archive.

    The stream is a pipe: a package that would fill the disk is stopped at the limit.
    """
    program = shutil.which("dpkg-deb")
    if program is None:
        raise DataError(f"{archive.name} needs dpkg-deb, which is not installed")
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                [program, "--fsys-tarfile", str(archive.resolve())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            raise DataError(f"{archive.name} cannot be unpacked: {error}") from error
        timer = threading.Timer(_DPKG_SECONDS, process.kill)
        timer.start()
        assert process.stdout is not None
        try:
            with process.stdout:
                yield process.stdout
                if len(process.stdout.read(_LAST_RECORD + 1)) > _LAST_RECORD:
                    raise _TooMuchError(f"{archive.name} continues after its last file: refused")
            failed = process.wait() != 0
        except DataError as error:
            process.kill()
            # If dpkg-deb cannot read a package, the stream ends early. The message of dpkg-deb is more specific.
            reason = "" if isinstance(error, _TooMuchError) else _read_errors(errors, process)
            if not reason:
                raise
            raise DataError(f"{archive.name} cannot be unpacked: {reason}") from error
        finally:
            timer.cancel()
            process.kill()
            process.wait()
        if failed:
            reason = _read_errors(errors, process)
            raise DataError(f"{archive.name} cannot be unpacked: {reason or 'dpkg-deb failed, or took too long'}")


def _read_errors(errors: IO[bytes], process: subprocess.Popen[bytes]) -> str:
    process.wait()
    errors.seek(0)
    return errors.read(4096).decode(errors="replace").strip()
