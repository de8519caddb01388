"""Rules for the noise level on disk: one safetensors file with numbers and no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, MissingExtraError, ModelError
from smoothcert.files import require_readable, write_whole
from smoothcert.sigma.rule import SigmaRule
from smoothcert.strict_json import strict_loads

FORMAT_VERSION = 1
SUFFIX = ".safetensors"
_METADATA_KEY = "smoothcert-sigma"


@runtime_checkable
class StorableRule(SigmaRule, Protocol):
    """A rule that `to_tensors` and `to_json` describe completely. Its class has `from_tensors(tensors, document)`."""

    @property
    def kind(self) -> str:
        """The name of its class in a file."""

    def to_tensors(self) -> Mapping[str, NDArray[Any]]: ...


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A rule and facts about its fit, such as the dataset. The facts have no effect."""

    rule: SigmaRule
    facts: Mapping[str, Any]


def save_rule(path: Path, rule: StorableRule, *, facts: Mapping[str, Any] | None = None) -> None:
    """Write the rule to a new file, completely or not at all. An existing file is an error."""
    content = dump_rule(rule, facts=facts)
    try:
        write_whole(path, content, overwrite=False)
    except FileExistsError as error:
        raise InputError(f"{path} exists and is never overwritten; choose another name or move it away") from error
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def dump_rule(rule: StorableRule, *, facts: Mapping[str, Any] | None = None) -> bytes:
    """The content of the file of a rule."""
    numpy_format = _import_safetensors().numpy
    document = {
        "format": FORMAT_VERSION,
        "kind": rule.kind,
        "rule": dict(rule.to_json()),
        "digest": rule.digest,
        "facts": dict(facts or {}),
    }
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in rule.to_tensors().items()}
    content: bytes = numpy_format.save(tensors, metadata={_METADATA_KEY: json.dumps(document)})
    return content


def load_rule(path: Path) -> SigmaRule:
    """Load a rule written by `save_rule`, the same to the bit. Raise ModelError if the file is invalid or damaged."""
    return load_stored_rule(path).rule


def load_stored_rule(path: Path) -> RuleFile:
    """Load a rule with its facts; see `load_rule`."""
    tensors, document = _read(path)
    if document.get("format") != FORMAT_VERSION:
        raise ModelError(f"{path} has format {document.get('format')}; this smoothcert reads format {FORMAT_VERSION}")
    try:
        rule = _build(str(document["kind"]), tensors, document["rule"])
        stored_digest, facts = document["digest"], dict(document["facts"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path} does not describe a rule for sigma: {error}; fit it again") from error
    if rule.digest != stored_digest:
        raise ModelError(f"{path} is damaged: its content does not match the digest stored in it; fit it again")
    return RuleFile(rule=rule, facts=facts)


def _build(kind: str, tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> SigmaRule:
    match kind:
        case "knn":
            from smoothcert.sigma.knn import KnnSigma

            return KnnSigma.from_tensors(tensors, document)
        case "network":
            from smoothcert.sigma.network import SigmaNetwork

            return SigmaNetwork.from_tensors(tensors, document)
    raise ValueError(f"its kind {kind!r} is unknown")


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    safetensors = _import_safetensors()
    require_readable(path, ModelError(f"there is no file {path}; `smoothcert sigma fit` writes a rule for sigma"))
    try:
        with safetensors.safe_open(path, framework="numpy") as stream:
            text = (stream.metadata() or {}).get(_METADATA_KEY)
            document = None if text is None else strict_loads(text)
            tensors = {} if text is None else {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    # RecursionError: deeply nested JSON. TypeError, AttributeError: a data type that numpy does not know.
    except (safetensors.SafetensorError, ValueError, OSError, RecursionError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path} is not a readable safetensors file: {error}; it may be cut short or damaged"
        ) from error
    if not isinstance(document, dict):
        raise ModelError(f"{path} holds no rule for sigma; `smoothcert sigma fit` writes one")
    return tensors, document


def _import_safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtraError("safetensors", "torch", "reading and writing rules for sigma") from error
    return safetensors
