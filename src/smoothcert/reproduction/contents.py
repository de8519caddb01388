"""What a file or a run is, apart from when and where it was made: a digest of what can change a result.

Checkpoints and rules for sigma are safetensors files with a header of plain JSON, which holds a digest of their
numbers. It is read as it stands, in a moment and without any library. That the numbers fit it is checked by whoever
loads them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smoothcert.errors import CorruptRunError
from smoothcert.runs.store import MANIFEST

_HEADERS = {"smoothcert": "tensors_sha256", "smoothcert-sigma": "digest"}
"""Under which names our files keep their header, and what in it is the digest of their numbers."""
_WITHOUT_INFLUENCE = {"training", "facts"}
_LONGEST_HEADER = 100_000_000


def digest_of(path: Path) -> str | None:
    """SHA-256 of what a product is; None where there is none. Of a run: its manifest, which has all it depends on."""
    if path.is_dir():
        manifest = path / MANIFEST
        return _whole(manifest) if manifest.is_file() else None
    if not path.is_file():
        return None
    header = _header(path) if path.suffix == ".safetensors" else None
    if header is None:
        return _whole(path)
    # Seconds and curves of a training differ each time; the same weights made again are the same model.
    told = {key: value for key, value in header.items() if key not in _WITHOUT_INFLUENCE}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def rule_digest(path: Path) -> str | None:
    """The digest of the rule for sigma in a file, the one that manifests hold; None if the file is something else."""
    header = _header(path) if path.is_file() else None
    return None if header is None or "rule" not in header else str(header["digest"])


def _whole(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise CorruptRunError(f"{path} cannot be read: {error.strerror or error}") from error


def _header(path: Path) -> Mapping[str, Any] | None:
    """The JSON that smoothcert wrote into a safetensors file; None for a file of others, or one that is damaged."""
    try:
        with path.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            metadata = json.loads(stream.read(size)).get("__metadata__", {}) if size <= _LONGEST_HEADER else {}
        for name, key in _HEADERS.items():
            if name in metadata and key in (found := json.loads(metadata[name])):
                return dict(found)
    except (OSError, ValueError, AttributeError, TypeError):
        return None
    return None
