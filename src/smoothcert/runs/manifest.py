"""Manifests on disk."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from smoothcert.environment import code_digest, list_versions
from smoothcert.errors import CorruptRunError
from smoothcert.spec import RunManifest, decode_manifest, to_json
from smoothcert.strict_json import strict_loads


def dump_manifest(manifest: RunManifest) -> bytes:
    return (json.dumps(to_json(manifest), indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def state_environment(manifest: RunManifest) -> RunManifest:
    """The same manifest with the digest of this code and the versions of the libraries."""
    digests = msgspec.structs.replace(manifest.digests, code=code_digest())
    return msgspec.structs.replace(manifest, environment=list_versions(), digests=digests)


def parse_manifest(content: bytes, *, path: Path) -> RunManifest:
    """The manifest in these bytes; a CorruptRunError that names the field if it is invalid."""
    try:
        document = strict_loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptRunError(f"{path} is not a manifest of a run, or it is damaged: {error}") from error
    return decode_manifest(document, source=path)
