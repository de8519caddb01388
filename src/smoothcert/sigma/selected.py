"""A noise level chosen by a smoothed selector: what a selector's file says of its levels and of its own noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.errors import MissingExtraError, ModelError
from smoothcert.strict_json import strict_loads

_METADATA_KEY = "smoothcert"


@dataclass(frozen=True, slots=True)
class SelectorFacts:
    """levels: the noise levels that the outputs of a selector stand for, in order. sigma: of its own noise."""

    levels: tuple[float, ...]
    sigma: float

    def __post_init__(self) -> None:
        for value in (*self.levels, self.sigma):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{value:g} is not a positive noise level")

    def to_json(self) -> dict[str, Any]:
        return {"levels": list(self.levels), "sigma": self.sigma}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SelectorFacts:
        return cls(tuple(float(level) for level in document["levels"]), float(document["sigma"]))


def read_selector_facts(place: str) -> SelectorFacts | None:
    """What the file of a selector says, as `smoothcert selector train` writes it; None for anything else."""
    file = Path(place)
    if file.suffix != ".safetensors" or not file.is_file():
        return None
    try:
        import safetensors
    except ImportError as error:
        raise MissingExtraError("safetensors", "torch", "reading a selector") from error
    try:
        with safetensors.safe_open(file, framework="numpy") as stream:
            text = (stream.metadata() or {}).get(_METADATA_KEY)
        document = None if text is None else strict_loads(text)
        stated = document.get("selector") if isinstance(document, dict) else None
        return None if stated is None else SelectorFacts.from_json(stated)
    except (safetensors.SafetensorError, ValueError, OSError, RecursionError, KeyError, TypeError) as error:
        raise ModelError(f"{file} is not a readable selector: {error}; it may be cut short or damaged") from error
