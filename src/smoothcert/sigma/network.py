"""A learned noise level: a ReLU network that is Lipschitz by construction (Bergstrom, Sager and Anderson).

Certifying needs numpy alone; what trains such a network is in `smoothcert.training.sigma_network`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, InputArray
from smoothcert.records.envelopes import LipschitzSigma

_UNIT = 2.0**-53
"""Relative rounding error of one float64 operation."""
_PROMISED = 1e-11
"""The relative error that every rule for sigma keeps to."""


@dataclass(frozen=True, slots=True, eq=False)
class SigmaNetwork:
    """σ(x) = floor + ReLU(z), at most `most`; z the last of linear layers with ReLU between them, of the flattened x.

    Neither ReLU nor cutting σ at `most` makes it change faster, so σ is Lipschitz with the product of the layers'
    spectral norms. weights: (width, width before) for each layer, the last of width 1; biases: (width,). Float64.
    """

    weights: tuple[FloatArray, ...] = field(repr=False)
    biases: tuple[FloatArray, ...] = field(repr=False)
    floor: float
    most: float | None = None
    _norms: tuple[float, ...] = field(init=False, repr=False)
    _lengths: tuple[tuple[float, float], ...] = field(init=False, repr=False)
    _digest: str = field(init=False, repr=False)

    kind: ClassVar[str] = "network"

    def __post_init__(self) -> None:
        self._check_numbers()
        object.__setattr__(self, "weights", tuple(_frozen(weight) for weight in self.weights))
        object.__setattr__(self, "biases", tuple(_frozen(bias) for bias in self.biases))
        self._check_layers()
        object.__setattr__(self, "_norms", tuple(spectral_norm_up(weight) for weight in self.weights))
        lengths = ((_length(weight), _length(bias)) for weight, bias in zip(self.weights, self.biases, strict=True))
        object.__setattr__(self, "_lengths", tuple(lengths))
        object.__setattr__(self, "_digest", self._computed_digest())

    @property
    def widths(self) -> tuple[int, ...]:
        """Size of an input, then of every layer."""
        return (self.weights[0].shape[1], *(len(bias) for bias in self.biases))

    @property
    def lipschitz_constant(self) -> float:
        """|σ(x) - σ(x')| ≤ this · ‖x-x'‖₂: the product of the layers' largest singular values, rounded up."""
        return _product_up(self._norms)

    @property
    def envelope(self) -> LipschitzSigma:
        return LipschitzSigma(constant=self.lipschitz_constant, floor=self.floor)

    @property
    def digest(self) -> str:
        """SHA-256 over the parameters and the layers."""
        return self._digest

    @property
    def description(self) -> str:
        cap = "" if self.most is None else f", at most {self.most:g}"
        layers = "-".join(map(str, self.widths))
        return f"network {layers}, at least {self.floor:g}{cap}, Lipschitz constant {self.lipschitz_constant:.4g}"

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        """σ of every input, within 1e-11; NaN where an input is not finite or so large that this cannot be promised.

        inputs: (m, *input_shape) float32. Returns (m,) float64; each depends on its input alone, to the bit.
        """
        rows = np.asarray(inputs, dtype=np.float64).reshape(len(inputs), -1)
        if rows.shape[1] != self.widths[0]:
            raise InputError(
                f"inputs of shape {inputs.shape[1:]} were given, but this sigma was made for {self.widths[0]} numbers"
            )
        # One input at a time and no matrix product: how a library sums one may depend on the batch and on threads.
        return np.array([self._sigma(row) for row in rows], dtype=np.float64)

    def to_json(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "widths": list(self.widths),
            "floor": self.floor,
            "most": self.most,
            "lipschitz": self.lipschitz_constant,
        }

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """What a file must hold beside `to_json`."""
        named: dict[str, NDArray[Any]] = {}
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            named[f"weight.{number}"] = weight
            named[f"bias.{number}"] = bias
        return named

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> Self:
        """The rule that `to_tensors` and `to_json` describe; a KeyError or ValueError where they do not.

        The Lipschitz constant is computed again, never believed.
        """
        layers = range(len(document["widths"]) - 1)
        most = document["most"]
        return cls(
            weights=tuple(tensors[f"weight.{number}"] for number in layers),
            biases=tuple(tensors[f"bias.{number}"] for number in layers),
            floor=float(document["floor"]),
            most=None if most is None else float(most),
        )

    def _sigma(self, row: FloatArray) -> float:
        hidden, error = row, 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for weight, bias, norm, lengths in zip(self.weights, self.biases, self._norms, self._lengths, strict=True):
                error = norm * error + _rounding_of_layer(hidden, weight_length=lengths[0], bias_length=lengths[1])
                hidden = np.maximum((weight * hidden).sum(axis=1) + bias, 0.0)
        sigma = self.floor + float(hidden[0])
        if self.most is not None and sigma > self.most:
            sigma = self.most
        return sigma if error + 2.0 * _UNIT * sigma <= _PROMISED * sigma < math.inf else math.nan

    def _computed_digest(self) -> str:
        # Not over the Lipschitz constant: it follows from the layers, up to how a library computes singular values.
        hasher = hashlib.sha256(json.dumps([self.kind, self.widths, self.floor, self.most]).encode())
        for array in (*self.weights, *self.biases):
            hasher.update(array.astype("<f8", copy=False).data.cast("B"))
        return hasher.hexdigest()

    def _check_numbers(self) -> None:
        if not (math.isfinite(self.floor) and self.floor > 0):
            raise InputError(f"floor {self.floor} must be a positive finite number: the smallest value sigma takes")
        if self.most is not None and not (math.isfinite(self.most) and self.most >= self.floor):
            raise InputError(f"most {self.most} must be a finite number and not below the floor {self.floor}")

    def _check_layers(self) -> None:
        shapes = [weight.shape for weight in self.weights]
        chained = all(len(shape) == 2 and min(shape) > 0 for shape in shapes) and all(
            before[0] == after[1] for before, after in pairwise(shapes)
        )
        fitting = [bias.shape for bias in self.biases] == [shape[:1] for shape in shapes]
        if not shapes or not chained or not fitting or shapes[-1][0] != 1:
            raise InputError(
                f"layers of shapes {shapes} with biases {[bias.shape for bias in self.biases]} do not make a network "
                "with one output: expected (width, width before) and (width,) each, the last width 1"
            )
        if not all(bool(np.isfinite(array).all()) for array in (*self.weights, *self.biases)):
            raise InputError("the network for sigma has weights that are not finite numbers; train it again")


def spectral_norm_up(matrix: FloatArray) -> float:
    """The largest singular value, rounded up; matrix: (m, n) float64, finite.

    The bound is verified, whatever the library did: for the U, S and V it returned, ‖W‖ ≤ s₁ ‖U‖ ‖V‖ + ‖W - USVᵀ‖ and
    ‖U‖² ≤ 1 + ‖UᵀU - I‖_F. A product over k terms is computed to within 2k roundings, relative to the product of the
    Frobenius norms.
    """
    scale = float(np.abs(matrix).max())
    if scale == 0.0:
        return 0.0
    # By a power of two, which is exact: squares then neither overflow nor vanish.
    exponent = math.frexp(scale)[1]
    scaled = np.ldexp(matrix, -exponent)
    left, singular, right = np.linalg.svd(scaled, full_matrices=False)
    weighted = left * singular
    rounding = 2.0 * (len(singular) + 2) * _UNIT * _length(weighted) * _length(right) + 4.0 * _UNIT * _length(scaled)
    residual = _length(scaled - weighted @ right) + rounding
    bound = float(singular[0]) * math.sqrt(_squared_norm_up(left) * _squared_norm_up(right.T)) + residual
    return math.ldexp(bound * (1.0 + 16.0 * _UNIT), exponent)


def shrunk(weights: Sequence[FloatArray], *, lipschitz: float) -> tuple[FloatArray, ...]:
    """The weights times one factor, where needed for the product of their spectral norms to be at most `lipschitz`."""
    product = _product_up([spectral_norm_up(weight) for weight in weights])
    if product <= lipschitz:
        return tuple(weights)
    factor = (_ten_digits(lipschitz, ROUND_FLOOR) / product) ** (1.0 / len(weights)) * (1.0 - 1e-14)
    return tuple(weight * factor for weight in weights)


def _product_up(norms: Sequence[float]) -> float:
    """The product, rounded up to ten digits: what is written of it is then the same whatever library is used."""
    exact = math.prod(norms) * (1.0 + 2.0 * len(norms) * _UNIT)
    return _ten_digits(exact, ROUND_CEILING)


def _ten_digits(value: float, rounding: str) -> float:
    return float(Context(prec=10, rounding=rounding).create_decimal_from_float(value))


def _squared_norm_up(columns: FloatArray) -> float:
    """An upper bound on ‖U‖₂² of nearly orthonormal columns, (n, k)."""
    rounding = 2.0 * (len(columns) + 2) * _UNIT * _length(columns) ** 2
    return 1.0 + _length(columns.T @ columns - np.eye(columns.shape[1])) + rounding


def _length(array: FloatArray) -> float:
    """The Frobenius norm; good to 1e-12, which the factor 2 on all rounding terms covers."""
    return float(np.linalg.norm(array))


def _rounding_of_layer(hidden: FloatArray, *, weight_length: float, bias_length: float) -> float:
    """A bound on the length of the error of one layer, as numpy adds: runs of 128 in eight sums each, then a tree."""
    terms = len(hidden)
    depth = 2.0 + min(terms, 26.0 + math.log2(max(terms / 128.0, 1.0)))
    return 1.01 * depth * _UNIT * (weight_length * _length(hidden) + bias_length)


def _frozen(array: NDArray[Any]) -> FloatArray:
    """A float64 copy, contiguous, that nobody can change."""
    copied = np.array(array, dtype=np.float64, order="C")
    copied.setflags(write=False)
    return copied
