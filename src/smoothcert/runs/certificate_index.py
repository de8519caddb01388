"""The index of a directory of certificates: how many there are, and the digest of each.

It is written before the first certificate, without digests, and replaced after the last one. So a directory whose
export was cut short says so, and the same command can continue it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from smoothcert.errors import CorruptRunError, RunError
from smoothcert.files import write_atomically
from smoothcert.strict_json import strict_loads

INDEX = "certificates.index"


class CertificateIndex(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """run_digest: of what the certificates are of. digests: of certificates, by file name; None while they are written.

    certificates: how many there are, or will be.
    """

    run_digest: str
    certificates: int
    digests: Mapping[str, str] | None = None
    format: Literal["smoothcert certificates"] = "smoothcert certificates"
    version: Literal[1] = 1

    def write(self, folder: Path) -> None:
        content = json.dumps(msgspec.to_builtins(self), indent=1) + "\n"
        write_atomically(folder / INDEX, content.encode(), overwrite=True)


def begin_index(folder: Path, *, run_digest: str, certificates: int, overwrite: bool) -> None:
    """Begin an index, or resume one of the same run. A RunError if the directory is complete or of another run."""
    begun = None if overwrite else _read_index(folder / INDEX)
    if begun is not None and begun.run_digest != run_digest:
        raise RunError(
            f"{folder} holds certificates of another run: choose another directory (or --force, if the command has it)"
        )
    if begun is not None and begun.digests is not None:
        raise RunError(
            f"{folder} already holds all {begun.certificates} certificates of the run, and is not overwritten: choose "
            "another name (or --force, if the command has it)"
        )
    CertificateIndex(run_digest, certificates).write(folder)


def _read_index(file: Path) -> CertificateIndex | None:
    try:
        return msgspec.convert(strict_loads(file.read_bytes()), CertificateIndex)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CorruptRunError(
            f"{file} is not an index of certificates, or it is damaged ({error}): choose another directory"
        ) from error
