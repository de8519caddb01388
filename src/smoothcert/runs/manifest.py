"""Manifests on disk, and what they say about the code and the libraries."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path

from smoothcert.errors import CorruptRunError
from smoothcert.spec import RunManifest, decode_manifest, to_json
from smoothcert.strict_json import strict_loads

_LIBRARIES = ("numpy", "scipy", "numba", "torch", "onnxruntime", "scikit-learn")


def list_versions() -> dict[str, str]:
    """Versions of the interpreter, the machine type and the installed numerical libraries."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@functools.cache
def code_digest() -> str:
    """SHA-256 of the source files of the package, as information: it does not decide whether a run can be resumed."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def dump_manifest(manifest: RunManifest) -> bytes:
    return (json.dumps(to_json(manifest), indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def parse_manifest(content: bytes, *, path: Path) -> RunManifest:
    """The manifest in these bytes; a CorruptRunError that names the field if it is invalid."""
    try:
        document = strict_loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptRunError(f"{path} is not a manifest of a run, or it is damaged: {error}") from error
    return decode_manifest(document, source=path)
