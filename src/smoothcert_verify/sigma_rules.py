"""A rule for σ in a safetensors file: its digest, what is proved about it, and σ of an input."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.findings import Finding, note, refuse
from smoothcert_verify.json_values import parse_json

_MOST_HEADER = 1 << 26
_NORM_ERROR = 1e-9
"""Relative, of a product of spectral norms in floating point; what is written of it is rounded up to ten digits."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SigmaRuleFile:
    """What a file says of a rule for σ, and its numbers: points, or weights and biases by turns."""

    digest: str
    kind: str
    rule: Mapping[str, Any]
    arrays: tuple[Array, ...]

    def compare(self, stated: Mapping[str, Any], *, digest: str | None) -> Iterator[Finding]:
        """How the rule differs from what a manifest states of it."""
        if digest != self.digest:
            yield note("differs", field="digest", value=self.digest, expected=digest)
        for name in sorted(self.rule.keys() | stated.keys()):
            if self.rule.get(name) != stated.get(name):
                yield note("differs", field=name, value=self.rule.get(name), expected=stated.get(name))
        if self.kind == "network":
            norm = math.prod(float(np.linalg.norm(weight, 2)) for weight in self.arrays[0::2])
            if not norm <= self.rule["lipschitz"] * (1 + _NORM_ERROR):
                yield note("steeper-network", norm=norm, stated=self.rule["lipschitz"])

    def sigma(self, x: NDArray[np.float32]) -> float:
        """σ of one input, to about twelve digits."""
        row, most = x.astype(np.float64).reshape(-1), self.rule["most"]
        if self.kind == "knn":
            k = self.rule["k"]
            squares = ((self.arrays[0].reshape(len(self.arrays[0]), -1) - row) ** 2).sum(axis=1)
            mean = math.fsum(np.sqrt(np.partition(squares, k - 1)[:k]).tolist()) / k
            exponent = self.rule["rate"] * (mean - self.rule["offset"])
            found = self.rule["base_sigma"] * math.exp(min(exponent, 700.0))
        else:
            for weight, bias in zip(self.arrays[0::2], self.arrays[1::2], strict=True):
                row = np.maximum(weight @ row + bias, 0.0)
            found = self.rule["floor"] + float(row[0])
        return float(found if most is None else min(found, most))


def read_rule(file: Path) -> SigmaRuleFile:
    """The rule for σ in a safetensors file. Its digest is computed from its parameters and its numbers.

    Nearest neighbours: of the parameters as JSON, the type of the points, and the points. A network: of kind, widths,
    floor and cap as JSON, and of weights and biases in float64.
    """
    header, tensors = _read_safetensors(file)
    document = parse_json(header["__metadata__"]["smoothcert-sigma"])
    rule, kind = document["rule"], document["kind"]
    arrays: list[Array] = []
    if kind == "knn":
        hasher = hashlib.sha256(json.dumps(rule, sort_keys=True).encode())
        shape, code = header["points"]["shape"], header["points"]["dtype"]
        name = {"U8": "uint8", "F32": "float32"}[code]
        hasher.update(f"\n{name}\n".encode())
        hasher.update(tensors["points"])
        if shape != [rule["points"], *rule["input_shape"]]:
            raise refuse("invalid-value", field="points.shape", value=shape, expected="the stated shape")
        points = np.frombuffer(tensors["points"], dtype={"U8": "u1", "F32": "<f4"}[code]).reshape(shape)
        if code == "U8":  # grey levels, which stand for float32(g/255)
            points = points.astype(np.float32) / np.float32(255)
        arrays = [points.astype(np.float64)]
    elif kind == "network":
        weights, biases = (_list_numbered(header, prefix) for prefix in ("weight", "bias"))
        widths = [header[weights[0]]["shape"][1], *(header[bias]["shape"][0] for bias in biases)]
        hasher = hashlib.sha256(json.dumps([kind, widths, rule["floor"], rule["most"]]).encode())
        for name in (*weights, *biases):
            if header[name]["dtype"] != "F64":
                raise refuse("invalid-value", field=name, value=header[name]["dtype"], expected="F64")
            hasher.update(tensors[name])
        for pair in zip(weights, biases, strict=True):
            arrays += [np.frombuffer(tensors[name], dtype="<f8").reshape(header[name]["shape"]) for name in pair]
    else:
        raise refuse("invalid-value", field="kind", value=kind, expected="knn or network")
    known = {"points"} if kind == "knn" else {*weights, *biases}
    if set(tensors) != known:
        raise refuse("unknown-tensors", names=sorted(set(tensors) ^ known))
    found = hasher.hexdigest()
    if document["digest"] != found:
        raise refuse("digest-differs", field="digest")
    return SigmaRuleFile(found, kind, rule, tuple(arrays))


def _list_numbered(header: Mapping[str, Any], prefix: str) -> list[str]:
    names = [name for name in header if name.startswith(prefix)]
    return sorted(names, key=lambda name: int("".join(filter(str.isdigit, name)) or "0"))


def _read_safetensors(file: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The header of a safetensors file, and the bytes of every tensor."""
    with file.open("rb") as stream:
        beginning = stream.read(8)
        if len(beginning) < 8:
            raise refuse("invalid-value", field="length of the file", value=len(beginning), expected="at least 8 bytes")
        (length,) = struct.unpack("<Q", beginning)
        if length > _MOST_HEADER:
            raise refuse("invalid-value", field="header length", value=length, expected=f"at most {_MOST_HEADER}")
        header = parse_json(stream.read(length))
        content = stream.read()
    spans = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    at = 0
    for start, stop in sorted(spans.values()):
        if not (type(start) is type(stop) is int and at == start <= stop):
            raise refuse("gap-in-tensors")
        at = stop
    if at != len(content):
        raise refuse("length-of-tensors", expected=at, length=len(content))
    return header, {name: content[start:stop] for name, (start, stop) in spans.items()}
