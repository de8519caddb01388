"""Envelopes: what a certificate needs to know about a noise level σ(·) that depends on the input.

For an input with σ(x) = σ₀, an envelope bounds σ at all points within distance a. A σ-function without a proven
envelope can be sampled, but not certified.
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
"""Bound on the relative rounding error of the formulas below."""
_MONOTONE_POINTS = 33


class Envelope(Protocol):
    """Bounds on σ: low(σ₀, a) ≤ σ(x') ≤ high(σ₀, a) for all ‖x'-x‖₂ ≤ a, where σ(x) = σ₀.

    Both take arrays of one shape, σ₀ > 0 and a ≥ 0, and return that shape. low is rounded down and does not increase
    with a; high is rounded up and does not decrease with a; low ≤ σ₀ ≤ high.
    """

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray: ...

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray: ...

    def to_json(self) -> Mapping[str, Any]:
        """The form stored in a manifest. `envelope_from_json` reads it."""


@dataclass(frozen=True, slots=True)
class ConstantSigma:
    """σ is constant."""

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
            raise InputError(f"floor {self.floor} must be a positive finite number: the smallest value of sigma")

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return np.maximum(sigma - self.constant * distance * (1.0 + _OUTWARD), self.floor) * (1.0 - _OUTWARD)

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return (sigma + self.constant * distance) * (1.0 + 2.0 * _OUTWARD)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "lipschitz", "constant": self.constant, "floor": self.floor}


@dataclass(frozen=True, slots=True)
class MonotoneEnvelope:
    """A user-defined envelope: two vectorised functions (σ₀, a) → σ, lower decreasing and upper increasing in a.

    The user must prove that they bound the σ-function and are monotone. Each use checks 33 distances up to the radius,
    and refuses an envelope that is not monotone there or does not enclose σ₀.
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
    """An envelope widened by numerical errors of σ.

    slack: relative error of σ, as computed and as applied by the noise. shift: the most by which the distance of the
    points that σ was computed for can exceed that of x and x'.
    """

    inner: Envelope
    slack: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.slack < 1.0:
            raise InputError(f"slack {self.slack} must be in [0, 1): a relative error of sigma")
        if not 0.0 <= self.shift < np.inf:
            raise InputError(f"shift {self.shift} must be a finite distance of at least 0")

    def low(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return self.inner.low(sigma, distance + self.shift) * (1.0 - self.slack)

    def high(self, sigma: FloatArray, distance: FloatArray, /) -> FloatArray:
        return self.inner.high(sigma, distance + self.shift) * (1.0 + self.slack)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "widened", "slack": self.slack, "shift": self.shift, "inner": dict(self.inner.to_json())}


def envelope_from_json(document: Mapping[str, Any]) -> Envelope:
    """Read an envelope from a manifest. User-defined envelopes are functions and cannot be read."""
    match document:
        case {"kind": "constant"}:
            return ConstantSigma()
        case {"kind": "semi-elastic", "rate": rate}:
            return SemiElastic(rate=float(rate))
        case {"kind": "lipschitz", "constant": constant, "floor": floor}:
            return LipschitzSigma(constant=float(constant), floor=float(floor))
        case {"kind": "widened", "slack": slack, "inner": inner}:
            return Widened(envelope_from_json(inner), slack=float(slack), shift=float(document.get("shift", 0.0)))
    raise InputError(f"{document!r} does not describe an envelope")


def check_encloses(envelope: Envelope, sigma: FloatArray, radius: FloatArray) -> None:
    """Raise an InputError if the envelope is invalid at some distance up to the radius. sigma, radius: (m,)."""
    distances = np.linspace(0.0, 1.0, _MONOTONE_POINTS)[:, None] * radius
    levels = np.broadcast_to(sigma, distances.shape)
    low = np.asarray(envelope.low(levels, distances), dtype=np.float64)
    high = np.asarray(envelope.high(levels, distances), dtype=np.float64)
    outside = ~((low <= sigma) & (high >= sigma)).all(axis=0)
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"sigma {float(sigma[at]):g} is outside its envelope {dict(envelope.to_json())}, which is "
            f"{float(low[0, at]):g} … {float(high[0, at]):g} at distance 0; check that it is not below the floor"
        )
    rounding = 1e-13 * sigma
    if not ((low[1:] <= low[:-1] + rounding).all() and (high[1:] >= high[:-1] - rounding).all()):
        raise InputError(
            f"the envelope {dict(envelope.to_json())} is not monotone: its lower bound must decrease and its upper "
            "bound must increase with the distance"
        )


def _check_slope(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} {value} must be a finite number of at least 0: how fast sigma changes")
