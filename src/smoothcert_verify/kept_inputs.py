"""Inputs and labels that a run keeps in its directory: whether they are those that its manifest states."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from smoothcert_verify.document_checks import CheckedInput
from smoothcert_verify.findings import Finding, note
from smoothcert_verify.run_facts import RunFacts
from smoothcert_verify.samples import IntArray

INPUTS = "inputs.npz"
_LEVELS = {"float32": None, "uint8": 256}
_BYTES_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """labels: -1 for an input without one."""

    digest: str
    labels: IntArray

    def compare(self, run: RunFacts, entries: Sequence[CheckedInput]) -> Iterator[Finding]:
        """How they differ from the digest in a manifest, and from the labels of its inputs.

        A run without any label says nothing of them, like that of a selector, whose classes are noise levels.
        """
        expected = run.manifest["digests"]["data"]
        if self.digest != expected:
            yield note("other-data", field="digest", value=self.digest, expected=expected)
            return
        for one in entries if any(one.label is not None for one in entries) else ():
            label, known = one.label, int(self.labels[one.index])
            if label != (known if known >= 0 else None):
                yield note("differs", field=f"label of input {one.index}", value=label, expected=known)


def read_kept_inputs(file: Path) -> KeptInputs:
    """Labels, and the digest of type, levels, shape, number of classes, values and labels. Values are not kept."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{member.filename} is compressed")
        with archive.open("x.npy") as stream:
            shape, dtype = _read_header(stream)
        labels: IntArray = np.full(shape[0], -1, dtype=np.int64)
        if "y.npy" in archive.namelist():
            labels = _read_labels(archive, shape[0])
        classes = _count_classes(archive, labels)
        hasher = hashlib.sha256(f"smoothcert-data-1 {dtype.name} {_LEVELS[dtype.name]} {shape} {classes}\n".encode())
        with archive.open("x.npy") as stream:
            _read_header(stream)
            while part := stream.read(_BYTES_AT_ONCE):
                hasher.update(part)
        hasher.update(labels.astype("<i8").tobytes())
    return KeptInputs(hasher.hexdigest(), labels)


def _count_classes(archive: zipfile.ZipFile, labels: IntArray) -> int:
    """As many as there are names, or as the labels show; at least two if there is any."""
    names = 0
    if "class_names.npy" in archive.namelist():
        with archive.open("class_names.npy") as stream:
            names = _read_header(stream)[0][0]
    largest = max(names, int(labels.max()) + 1)
    return max(2, largest) if largest else 0


def _read_labels(archive: zipfile.ZipFile, count: int) -> IntArray:
    with archive.open("y.npy") as stream:
        shape, dtype = _read_header(stream)
        if shape != (count,) or dtype != np.dtype("<i8"):
            raise ValueError(f"labels are {dtype} of shape {shape}, expected int64 of shape ({count},)")
        return np.frombuffer(stream.read(8 * count), dtype="<i8").astype(np.int64)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array; its values follow, row by row, in little-endian order."""
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("another version of the format of arrays")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    if by_columns or dtype.byteorder == ">" or not shape or shape[0] < 1:
        raise ValueError(f"an array of shape {shape} and type {dtype.str}")
    return shape, dtype
