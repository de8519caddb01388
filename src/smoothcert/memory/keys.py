"""The key of a memory: which smoothed classifier its regions belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from smoothcert.errors import InputError
from smoothcert.records import Norm


@dataclass(frozen=True, slots=True)
class MemoryKey:
    """Identifies a smoothed classifier. Regions under different keys are independent of each other.

    model, sigma_rule, preprocessing: digests. noise: its name, with the grid if the noise is on one, and that features
    are divided by a scale if they are: regions are then those of the quotients.
    norm: of the balls. dimension: numbers per input, at least 1.
    """

    model: str
    sigma_rule: str
    noise: str
    norm: Norm
    preprocessing: str
    dimension: int

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise InputError(f"a memory for inputs of dimension {self.dimension} is not possible; expected at least 1")
        object.__setattr__(self, "norm", Norm(self.norm))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "norm": self.norm.value}

    def to_text(self) -> str:
        """Canonical JSON: sorted names, no spaces, ASCII."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        return cls(**{name: document[name] for name in cls.__dataclass_fields__})
