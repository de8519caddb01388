"""Taking archives apart without trusting them.

An archive is read as one stream, from its beginning to its end, and never more of it than may be there: what a few
kilobytes unpack to is found out a piece at a time, in headers as well as in files.
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
"""What a member takes besides its content: headers and filling up."""
_LAST_RECORD = 1 << 20
"""How much may follow the last member; programs fill archives up to whole records."""
_COMPRESSED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_UNREADABLE = (
    tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError,
    # What the standard library raises for numbers in headers that are none, or of no sensible size.
    ValueError, OverflowError, IndexError, KeyError, RecursionError,
)  # fmt: skip


def extract_archive(archive: Path, destination: Path, *, size_limit: int) -> None:
    """Unpack a .tgz, .tar.gz or .deb into `destination`; anything suspicious in it is a DataError.

    size_limit: bytes all members together may have. Only plain files and folders inside `destination` are made.
    """
    if archive.suffix != ".deb":
        extract_tar(archive, destination, size_limit=size_limit)
        return
    with _content_of_deb(archive) as stream:
        _extract_stream(stream, archive.name, destination, size_limit=size_limit)


def extract_tar(archive: Path, destination: Path, *, size_limit: int) -> None:
    """Unpack a tar file, compressed or not; links, devices, paths that lead outside and excess size are refused."""
    try:
        with archive.open("rb") as raw:
            start = raw.read(6)
            raw.seek(0)
            unpack = next((unpack for magic, unpack in _COMPRESSED.items() if start.startswith(magic)), None)
            stream = raw if unpack is None else cast(BinaryIO, unpack(raw, "rb"))
            _extract_stream(stream, archive.name, destination, size_limit=size_limit)
    except OSError as error:
        raise DataError(f"{archive.name} cannot be unpacked: {error}") from error


class _Limited:
    """A stream that ends with an error after so many bytes, whoever reads them and why."""

    def __init__(self, stream: IO[bytes], name: str, *, most: int) -> None:
        self._stream = stream
        self._name = name
        self._left = most

    def read(self, size: int) -> bytes:
        piece = self._stream.read(min(size, self._left + 1))
        self._left -= len(piece)
        if self._left < 0:
            raise _TooMuchError(f"{self._name} unpacks to more than it may: refused")
        return piece


class _TooMuchError(DataError):
    """An archive goes on and on."""


def _extract_stream(stream: IO[bytes], name: str, destination: Path, *, size_limit: int) -> None:
    total = 0
    limited = _Limited(stream, name, most=size_limit + _MAX_MEMBERS * _HEADER_BYTES + _LAST_RECORD)
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
def _content_of_deb(archive: Path) -> Iterator[IO[bytes]]:
    """Only the tar stream is taken from dpkg-deb, so that a .deb goes through the same checks as every archive.

    It goes through a pipe: a package that would unpack to more than the disk holds is stopped where it has to be.
    """
    program = shutil.which("dpkg-deb")
    if program is None:
        raise DataError(f"{archive.name} needs dpkg-deb, which is not installed")
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                [program, "--fsys-tarfile", str(archive.resolve())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
        except OSError as error:
            raise DataError(f"{archive.name} cannot be unpacked: {error}") from error
        too_long = threading.Timer(_DPKG_SECONDS, process.kill)
        too_long.start()
        assert process.stdout is not None
        try:
            with process.stdout:
                yield process.stdout
                if len(process.stdout.read(_LAST_RECORD + 1)) > _LAST_RECORD:
                    raise _TooMuchError(f"{archive.name} goes on behind its last file: refused")
            failed = process.wait() != 0
        except DataError as error:
            process.kill()
            # A package that dpkg-deb cannot read ends in the middle; what it has to say says more.
            reason = "" if isinstance(error, _TooMuchError) else _said(complaints, process)
            if not reason:
                raise
            raise DataError(f"{archive.name} cannot be unpacked: {reason}") from error
        finally:
            too_long.cancel()
            process.kill()
            process.wait()
        if failed:
            reason = _said(complaints, process)
            raise DataError(f"{archive.name} cannot be unpacked: {reason or 'dpkg-deb failed, or took too long'}")


def _said(complaints: IO[bytes], process: subprocess.Popen[bytes]) -> str:
    process.wait()
    complaints.seek(0)
    return complaints.read(4096).decode(errors="replace").strip()
