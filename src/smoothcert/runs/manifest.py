"""What a run depends on: digests of the code, versions of the libraries, and how two manifests differ."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from smoothcert.errors import CorruptRunError
from smoothcert.records import SCHEMA_VERSION, RunManifest
from smoothcert.strict_json import strict_loads

_LIBRARIES = ("numpy", "scipy", "numba", "torch", "onnxruntime", "scikit-learn")
_ROOMS_WITHOUT_INFLUENCE = {
    "cli", "analysis", "report", "training", "attacks", "__main__.py",
}  # fmt: skip
_NOT_COMPARED = "extra"
_LARGEST = 1e300
"""Beyond any level of noise; an integer of a manifest may even be too large for a float."""


def environment() -> dict[str, str]:
    """Versions of all that computes: interpreter, machine type and numerical libraries that are installed."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@functools.cache
def code_digest() -> str:
    """SHA-256 of the source files that can change a result; printing, drawing and training are left out."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        relative = file.relative_to(package)
        if relative.parts[0] in _ROOMS_WITHOUT_INFLUENCE:
            continue
        digest.update(relative.as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def differences(stored: RunManifest, wanted: RunManifest) -> list[str]:
    """One line for every value that is not the same; `extra` (where things lie, when it was made) is not compared."""
    old, new = ({**m.to_json(), _NOT_COMPARED: {}} for m in (stored, wanted))
    return differing_values(old, new, holder="run")


def differing_values(stored: Mapping[str, Any], wanted: Mapping[str, Any], *, holder: str) -> list[str]:
    """One line for every value of two JSON objects, however deep, that is not the same. holder: of the stored one."""
    old, new = (dict(_flatten(document)) for document in (stored, wanted))
    return [
        f"{key}: the {holder} has {old.get(key, 'nothing')!r}, now {new.get(key, 'nothing')!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def dump_manifest(manifest: RunManifest) -> bytes:
    return (json.dumps(manifest.to_json(), indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def parse_manifest(content: bytes, *, path: Path) -> RunManifest:
    """The manifest in these bytes, or CorruptRunError."""
    try:
        document = strict_loads(content)
        manifest = RunManifest.from_json(document)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptRunError(f"{path} is not a manifest of a run, or it is damaged") from error
    mappings = (manifest.parameters, manifest.model, manifest.data, manifest.environment, manifest.extra)
    well_typed = (
        all(isinstance(m, dict) for m in mappings) and type(manifest.seed) is int and isinstance(manifest.task, str)
    )
    if not well_typed or not _parameters_make_sense(manifest):
        raise CorruptRunError(f"{path} is not a manifest of a run: a field has the wrong type")
    if manifest.schema != SCHEMA_VERSION:
        raise CorruptRunError(
            f"{path} was written in format {manifest.schema!r}; this version reads format {SCHEMA_VERSION}"
        )
    return manifest


def _parameters_make_sense(manifest: RunManifest) -> bool:
    """The values other rooms compute with have the types they count on, where they are there at all."""
    numbers, counts, texts = ("alpha", "sigma"), ("n", "n0", "batch", "inputs"), ("certificate",)
    found = manifest.parameters
    return (
        all(type(found[key]) in (int, float) and abs(found[key]) < _LARGEST for key in numbers if key in found)
        and all(type(found[key]) is int for key in counts if key in found)
        and all(type(found[key]) is str for key in texts if key in found)
        and type(manifest.model.get("num_classes", 0)) is int
    )
