"""Envelopes: all that a certificate needs to know of a noise level σ(·) that varies with the input.

Around an input with σ(x) = σ₀, an envelope says between which values σ may lie at any point within distance a. A
σ-function without a proven envelope can be sampled, but not certified.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records.tallies import FloatArray
from smoothcert.user_code import source_text

_OUTWARD = 1e-15
"""Relative rounding error of the formulas below, allowed for on the safe side."""
_MONOTONE_POINTS = 33


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
        exponent = self.rate * distance
        return sigma * np.exp(-exponent) * (1.0 - _OUTWARD * (1.0 + np.minimum(exponent, 1e3)))

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        with np.errstate(over="ignore"):
            exponent = self.rate * distance
            return sigma * np.exp(exponent) * (1.0 + _OUTWARD * (1.0 + exponent))

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

    That they are true of the σ-function, and monotone, is for their author to prove. Wherever they are used, 33
    distances up to the radius are looked at, and an envelope that is not monotone there or does not enclose σ₀ is
    refused.
    """

    name: str
    lower: Callable[[FloatArray, FloatArray], FloatArray]
    upper: Callable[[FloatArray, FloatArray], FloatArray]

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return np.asarray(self.lower(sigma, distance), dtype=np.float64) * (1.0 - _OUTWARD)

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return np.asarray(self.upper(sigma, distance), dtype=np.float64) * (1.0 + _OUTWARD)

    def to_json(self) -> Mapping[str, Any]:
        text = "\0".join(source_text(function) for function in (self.lower, self.upper))
        return {"kind": "user", "name": self.name, "source": hashlib.sha256(text.encode()).hexdigest()}


@dataclass(frozen=True, slots=True)
class Widened:
    """An envelope with room for the error with which σ is computed and carried by the noise, relative to σ.

    shift: by how much further apart than x and x' the points may be that σ was computed for.
    """

    inner: Envelope
    slack: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.slack < 1.0:
            raise InputError(f"slack {self.slack} must lie in [0, 1): a relative error of sigma")
        if not 0.0 <= self.shift < np.inf:
            raise InputError(f"shift {self.shift} must be a distance")

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return self.inner.low(sigma, distance + self.shift) * (1.0 - self.slack)

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return self.inner.high(sigma, distance + self.shift) * (1.0 + self.slack)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "widened", "slack": self.slack, "shift": self.shift, "inner": dict(self.inner.to_json())}


def envelope_from_json(document: Mapping[str, Any]) -> Envelope:
    """The envelope a manifest describes; one of the user's own, a function, cannot be read back."""
    match document:
        case {"kind": "constant"}:
            return ConstantSigma()
        case {"kind": "semi-elastic", "rate": rate}:
            return SemiElastic(rate=float(rate))
        case {"kind": "lipschitz", "constant": constant, "floor": floor}:
            return LipschitzSigma(constant=float(constant), floor=float(floor))
        case {"kind": "widened", "slack": slack, "inner": inner}:
            return Widened(envelope_from_json(inner), slack=float(slack), shift=float(document.get("shift", 0.0)))
    raise InputError(f"{document!r} is not the description of an envelope")


def check_encloses(envelope: Envelope, sigma: FloatArray, radius: FloatArray) -> None:
    """Refuse an envelope that is not one, at some distances up to the radius that relied on it. sigma, radius: (m,)."""
    distances = np.linspace(0.0, 1.0, _MONOTONE_POINTS)[:, None] * radius
    levels = np.broadcast_to(sigma, distances.shape)
    low = np.asarray(envelope.low(levels, distances), dtype=np.float64)
    high = np.asarray(envelope.high(levels, distances), dtype=np.float64)
    outside = ~((low <= sigma) & (high >= sigma)).all(axis=0)
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"sigma {float(sigma[at]):g} lies outside its own envelope {dict(envelope.to_json())}, which starts with "
            f"{float(low[0, at]):g} … {float(high[0, at]):g}: is it below the floor?"
        )
    rounding = 1e-13 * sigma
    if not ((low[1:] <= low[:-1] + rounding).all() and (high[1:] >= high[:-1] - rounding).all()):
        raise InputError(
            f"the envelope {dict(envelope.to_json())} is not one: its lower end must fall and its upper end must grow "
            "with the distance"
        )


def _check_slope(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} {value} must be a finite number that is not negative: how fast sigma may change")
