"""A memory's log as a file for other programs."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path

import numpy as np

from smoothcert.errors import InputError, RegionMemoryError
from smoothcert.files import write_whole
from smoothcert.memory.log import Claim, bytes_of
from smoothcert.memory.regions import RegionMemory

SUFFIXES = (".csv", ".npz")


def export_claims(memory: RegionMemory, path: Path, *, overwrite: bool = False) -> int:
    """Write every claim, by its position, and return how many there were.

    .csv: one line a claim; the centre as the SHA-256 of its bytes (float32, little-endian), by which an input can be
    found. .npz: the same columns as arrays, with `centre` (n, d) float32 itself, and `key`, the memory's key as JSON.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"--output {path} must end in {' or '.join(SUFFIXES)}")
    claims = list(memory.claims())
    content = _csv(claims) if path.suffix == ".csv" else _npz(claims, memory)
    try:
        write_whole(path, content, overwrite=overwrite)
    except FileExistsError as error:
        raise InputError(f"{path} exists; give another --output, or --force to replace it") from error
    except OSError as error:
        raise RegionMemoryError(f"{path} cannot be written: {error.strerror or error}") from error
    return len(claims)


def _csv(claims: list[Claim]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_columns([]), "centre_sha256"])
    for claim in claims:
        fields = [column[0] for column in _columns([claim]).values()]
        writer.writerow([*fields, hashlib.sha256(bytes_of(claim.centre)).hexdigest()])
    return text.getvalue().encode()


def _npz(claims: list[Claim], memory: RegionMemory) -> bytes:
    centres = np.array([claim.centre for claim in claims], dtype=np.float32).reshape(len(claims), memory.key.dimension)
    held = io.BytesIO()
    columns = {name: np.array(values) for name, values in _columns(claims).items()}
    np.savez(held, allow_pickle=False, key=np.array(memory.key.to_text()), centre=centres, **columns)
    return held.getvalue()


def _columns(claims: list[Claim]) -> dict[str, list[int] | list[float] | list[str]]:
    return {
        "position": [claim.position for claim in claims],
        "label": [claim.label for claim in claims],
        "radius": [claim.radius for claim in claims],
        "asked_label": [claim.asked_label for claim in claims],
        "asked_radius": [claim.asked_radius for claim in claims],
        "settlement": [claim.settlement.name.lower() for claim in claims],
        "claimed_at": [claim.claimed_at.isoformat() for claim in claims],
        "entry": [claim.entry for claim in claims],
    }
