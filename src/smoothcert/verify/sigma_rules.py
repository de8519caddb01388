"""The digest of a rule for σ, computed from what its file holds."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smoothcert.verify.reading import MalformedError, parse_json
from smoothcert.verify.sentences import shown

_MOST_HEADER = 1 << 26


def rule_digest(file: Path) -> str:
    """The digest of the rule for σ in a safetensors file, computed from its parameters and its numbers.

    Nearest neighbours: of the parameters as JSON, the type of the points, and the points. A network: of kind, widths,
    floor and cap as JSON, and of weights and biases in float64.
    """
    header, tensors = _safetensors(file)
    document = parse_json(header["__metadata__"]["smoothcert-sigma"])
    rule, kind = document["rule"], document["kind"]
    if kind == "knn":
        hasher = hashlib.sha256(json.dumps(rule, sort_keys=True).encode())
        name = {"U8": "uint8", "F32": "float32"}[header["points"]["dtype"]]
        hasher.update(f"\n{name}\n".encode())
        hasher.update(tensors["points"])
    elif kind == "network":
        weights, biases = (_numbered(header, prefix) for prefix in ("weight", "bias"))
        widths = [header[weights[0]]["shape"][1], *(header[bias]["shape"][0] for bias in biases)]
        hasher = hashlib.sha256(json.dumps([kind, widths, rule["floor"], rule["most"]]).encode())
        for name in (*weights, *biases):
            if header[name]["dtype"] != "F64":
                raise MalformedError(f"the layer {name} is not in float64")
            hasher.update(tensors[name])
    else:
        raise MalformedError(f"its kind is {shown(kind)}")
    found = hasher.hexdigest()
    if document["digest"] != found:
        raise MalformedError("its numbers do not have the digest written with them")
    return found


def _numbered(header: Mapping[str, Any], prefix: str) -> list[str]:
    names = [name for name in header if name.startswith(prefix)]
    return sorted(names, key=lambda name: int("".join(filter(str.isdigit, name)) or "0"))


def _safetensors(file: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The header of a safetensors file, and the bytes of every tensor."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > _MOST_HEADER:
            raise MalformedError(f"its header is {length} bytes long")
        header = parse_json(stream.read(length))
        content = stream.read()
    spans = {name: told["data_offsets"] for name, told in header.items() if name != "__metadata__"}
    return header, {name: content[start:stop] for name, (start, stop) in spans.items()}
