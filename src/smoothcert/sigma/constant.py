"""A constant noise level."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, InputArray
from smoothcert.records.envelopes import ConstantSigma


@dataclass(frozen=True, slots=True)
class ConstantRule:
    """σ(x) = sigma."""

    sigma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise InputError(f"sigma {self.sigma} must be a positive finite number, in the units of the input")

    @property
    def envelope(self) -> ConstantSigma:
        return ConstantSigma()

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"constant {self.sigma!r}".encode()).hexdigest()

    @property
    def description(self) -> str:
        return f"{self.sigma:g} everywhere"

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        return np.full(len(inputs), self.sigma)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "constant", "sigma": self.sigma}
