"""Envelopes: all that a certificate needs to know of a noise level σ(·) that varies with the input.

Around an input with σ(x) = σ₀, an envelope says between which values σ may lie at any point within distance a. A
σ-function without a proven envelope can be sampled, but not certified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from smoothcert.errors import InputError
from smoothcert.tallies import FloatArray

_OUTWARD = 1e-15
"""Relative rounding error of the formulas below, allowed for on the safe side."""


class Envelope(Protocol):
    """How far σ may move: low(σ₀, a) ≤ σ(x') ≤ high(σ₀, a) for all ‖x'-x‖₂ ≤ a, where σ(x) = σ₀.

    Both take arrays of one shape, σ₀ > 0 and a ≥ 0, and return that shape; low is rounded down and does not grow with
    a, high is rounded up and does not fall with a, and low ≤ σ₀ ≤ high.
    """

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray: ...

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray: ...

    def to_json(self) -> Mapping[str, Any]:
        """What a manifest says of it; `envelope_from_json` reads it back."""


@dataclass(frozen=True, slots=True)
class ConstantSigma:
    """σ is the same everywhere."""

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return np.broadcast_arrays(sigma, distance)[0]

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return np.broadcast_arrays(sigma, distance)[0]

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "constant"}


@dataclass(frozen=True, slots=True)
class SemiElastic:
    """|log σ(x) - log σ(x')| ≤ rate · ‖x-x'‖₂ (Súkeník et al. 2022, section 2)."""

    rate: float

    def __post_init__(self) -> None:
        _check_slope("rate", self.rate)

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return sigma * np.exp(-self.rate * distance) * (1.0 - _OUTWARD)

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        with np.errstate(over="ignore"):
            return sigma * np.exp(self.rate * distance) * (1.0 + _OUTWARD)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "semi-elastic", "rate": self.rate}


@dataclass(frozen=True, slots=True)
class LipschitzSigma:
    """|σ(x) - σ(x')| ≤ constant · ‖x-x'‖₂ and σ ≥ floor everywhere (Bergstrom et al., section 3)."""

    constant: float
    floor: float

    def __post_init__(self) -> None:
        _check_slope("constant", self.constant)
        if not (math.isfinite(self.floor) and self.floor > 0):
            raise InputError(f"floor {self.floor} must be a positive finite number: the smallest value sigma takes")

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return np.maximum(sigma - self.constant * distance * (1.0 + _OUTWARD), self.floor) * (1.0 - _OUTWARD)

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return (sigma + self.constant * distance) * (1.0 + 2.0 * _OUTWARD)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "lipschitz", "constant": self.constant, "floor": self.floor}


@dataclass(frozen=True, slots=True)
class MonotoneEnvelope:
    """An envelope of one's own: two functions (σ₀, a) → σ, vectorised, the lower falling and the upper growing with a.

    That they are true of the σ-function is for their author to prove. That they are monotone and enclose σ₀ is checked
    wherever they are used, and no radius is given where they are not.
    """

    name: str
    lower: Callable[[FloatArray, FloatArray], FloatArray]
    upper: Callable[[FloatArray, FloatArray], FloatArray]

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return np.asarray(self.lower(sigma, distance), dtype=np.float64) * (1.0 - _OUTWARD)

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return np.asarray(self.upper(sigma, distance), dtype=np.float64) * (1.0 + _OUTWARD)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "user", "name": self.name}


@dataclass(frozen=True, slots=True)
class Widened:
    """An envelope with room for the error with which σ is computed and carried by the noise, relative to σ."""

    inner: Envelope
    slack: float

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return self.inner.low(sigma, distance) * (1.0 - self.slack)

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return self.inner.high(sigma, distance) * (1.0 + self.slack)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "widened", "slack": self.slack, "inner": dict(self.inner.to_json())}


def envelope_from_json(document: Mapping[str, Any]) -> Envelope:
    """The envelope a manifest describes; one of the user's own is known by name only and cannot be read back."""
    match document:
        case {"kind": "constant"}:
            return ConstantSigma()
        case {"kind": "semi-elastic", "rate": rate}:
            return SemiElastic(rate=float(rate))
        case {"kind": "lipschitz", "constant": constant, "floor": floor}:
            return LipschitzSigma(constant=float(constant), floor=float(floor))
        case {"kind": "widened", "slack": slack, "inner": inner}:
            return Widened(envelope_from_json(inner), slack=float(slack))
        case {"kind": "user", "name": name}:
            raise InputError(f"the envelope {name!r} is a function that was not stored: give it again")
    raise InputError(f"{dict(document)} is not the description of an envelope")


def _check_slope(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} {value} must be a finite number that is not negative: how fast sigma may change")
