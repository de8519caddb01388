"""Taking archives apart without trusting them."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from smoothcert.errors import DataError

_MAX_MEMBERS = 10_000
_DPKG_SECONDS = 300


def extract_archive(archive: Path, destination: Path, *, size_limit: int) -> None:
    """Unpack a .tgz, .tar.gz or .deb into `destination`; anything suspicious in it is a DataError.

    size_limit: bytes all members together may have. Only plain files and folders inside `destination` are made.
    """
    if archive.suffix == ".deb":
        payload = destination / ".payload.tar"
        try:
            _unwrap_deb(archive, payload)
            extract_tar(payload, destination, size_limit=size_limit)
        finally:
            payload.unlink(missing_ok=True)
    else:
        extract_tar(archive, destination, size_limit=size_limit)


def extract_tar(archive: Path, destination: Path, *, size_limit: int) -> None:
    """Unpack a tar file, compressed or not; links, devices, paths that lead outside and excess size are refused."""
    total = 0
    try:
        with tarfile.open(archive) as tar:
            for count, member in enumerate(tar, start=1):
                if not (member.isfile() or member.isdir()):
                    raise DataError(f"{archive.name} holds {member.name!r}, which is neither a file nor a folder")
                total += member.size
                if total > size_limit or count > _MAX_MEMBERS:
                    raise DataError(
                        f"{archive.name} unpacks to more than {size_limit:,} bytes or {_MAX_MEMBERS:,} files: refused"
                    )
                tar.extract(member, destination, filter="data")
    except tarfile.FilterError as error:
        raise DataError(f"{archive.name} tries to write outside its folder: {error}") from error
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{archive.name} cannot be unpacked: {error}") from error


def _unwrap_deb(archive: Path, payload: Path) -> None:
    """Only the tar stream is taken from dpkg-deb, so that a .deb goes through the same checks as every archive."""
    program = shutil.which("dpkg-deb")
    if program is None:
        raise DataError(f"{archive.name} needs dpkg-deb, which is not installed")
    with payload.open("wb") as stream:
        try:
            done = subprocess.run(
                [program, "--fsys-tarfile", str(archive.resolve())],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.PIPE,
                timeout=_DPKG_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"{archive.name} cannot be unpacked: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip()
        raise DataError(f"{archive.name} cannot be unpacked: {reason or 'dpkg-deb failed'}")
