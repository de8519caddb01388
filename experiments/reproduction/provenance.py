"""Which files a product was made from: digests of files, and what a run's manifest says about its inputs.

Checkpoints and σ rules are safetensors files. Their header is JSON and holds a digest of the numbers, so no library is
needed to read it. Loading the file checks the numbers against the digest; this module does not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.reproduction.plan import Step
from smoothcert.errors import CorruptRunError
from smoothcert.runs.run_database import MANIFEST
from smoothcert.runs.store import RunStore, read_manifest

_HEADERS = {"smoothcert": "tensors_sha256", "smoothcert-sigma": "digest"}
"""Metadata keys of smoothcert's headers, and the field in each that holds the digest of the numbers."""
_WITHOUT_INFLUENCE = {"training", "facts"}
_LONGEST_HEADER = 100_000_000


@dataclass(frozen=True, slots=True)
class MemoryPromise:
    """Regions that a run promised in a memory.

    key: digest of what the memory belongs to. claims: how many claims the memory must hold at least.
    """

    memory: str
    key: str
    claims: int


def compute_digest(path: Path) -> str | None:
    """SHA-256 of a product; None if it does not exist.

    For a run: of its manifest, which states everything the results depend on. For a checkpoint or a σ rule: of the
    parts of its header that can change a result.
    """
    if path.is_dir():
        manifest = path / MANIFEST
        return _hash_file(manifest) if manifest.is_file() else None
    if not path.is_file():
        return None
    header = read_header(path) if path.suffix == ".safetensors" else None
    if header is None:
        return _hash_file(path)
    # Seconds and curves of a training differ each time; identical weights are the same model.
    relevant = {key: value for key, value in header.items() if key not in _WITHOUT_INFLUENCE}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()


def read_rule_digest(path: Path) -> str | None:
    """Digest of the σ rule in a file, as manifests store it; None if the file is not a σ rule."""
    header = read_header(path) if path.is_file() else None
    return None if header is None or "rule" not in header else str(header["digest"])


def describe_difference(product: str, file: str, before: str, now: str) -> str:
    """Say that a product was made from another version of a file."""
    return f"{product} was made with another {file}: its digest was {before[:12]}, now it is {now[:12]}"


def find_contradictions(step: Step, directory: Path, *, logs: Path | None) -> list[str]:
    """Describe every file that differs from the one that the finished run of this step states in its manifest.

    Checks the σ rule by its digest, and that the memory exists.
    """
    run = step.path(directory, logs)
    if not RunStore.exists(run):
        return []
    contradictions = []
    name, before = step.option("--sigma-rule"), read_manifest(run).digests.sigma
    now = None if name is None else read_rule_digest(directory / name)
    if name is not None and now is not None and now != before:
        contradictions.append(describe_difference(step.product, name, str(before), now))
    promise = read_promise(step, directory, logs=logs)
    if promise is not None and not (directory / promise.memory).is_file():
        # The memory keeps the regions disjoint. Without it, the promised regions are not certified.
        contradictions.append(f"{step.product} promised regions in {promise.memory}, which does not exist")
    return contradictions


def read_promise(step: Step, directory: Path, *, logs: Path | None) -> MemoryPromise | None:
    """Regions that the run of this step promised; None if it has no memory or promised nothing."""
    name, run = step.option("--memory"), step.path(directory, logs)
    if name is None or not RunStore.exists(run):
        return None
    with RunStore.open(run) as store:
        positions = [point.promise.position for point in store.points(with_tallies=False) if point.promise is not None]
        key = store.manifest.digests.memory
    return MemoryPromise(memory=name, key=str(key), claims=max(positions)) if positions else None


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise CorruptRunError(f"{path} cannot be read: {error.strerror or error}") from error


def read_header(path: Path) -> Mapping[str, Any] | None:
    """Header that smoothcert wrote into a safetensors file; None if there is none or the file is damaged."""
    try:
        with path.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            metadata = json.loads(stream.read(size)).get("__metadata__", {}) if size <= _LONGEST_HEADER else {}
        for name, key in _HEADERS.items():
            if name in metadata and key in (header := json.loads(metadata[name])):
                return dict(header)
    except (OSError, ValueError, AttributeError, TypeError):
        return None
    return None
