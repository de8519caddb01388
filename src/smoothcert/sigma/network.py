"""A learned noise level: a ReLU network that is Lipschitz by construction (Bergstrom, Sager and Anderson).

Needs numpy only. `smoothcert.training.sigma_network` trains such networks.
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
"""The largest relative error of a rule for sigma."""


@dataclass(frozen=True, slots=True, eq=False)
class SigmaNetwork:
    """σ(x) = floor + ReLU(z), at most `most`; z is the output of linear layers with ReLU between them.

    ReLU and the limit `most` do not increase the Lipschitz constant, so it is at most the product of the layers'
    spectral norms. weights: (width, previous width) for each layer, the last of width 1; biases: (width,). Float64.
    digest: SHA-256 over the parameters and the layers.
    """

    weights: tuple[FloatArray, ...] = field(repr=False)
    biases: tuple[FloatArray, ...] = field(repr=False)
    floor: float
    most: float | None = None
    digest: str = field(init=False, repr=False)
    _norms: tuple[float, ...] = field(init=False, repr=False)
    _lengths: tuple[tuple[float, float], ...] = field(init=False, repr=False)

    kind: ClassVar[str] = "network"

    def __post_init__(self) -> None:
        self._check_numbers()
        object.__setattr__(self, "weights", tuple(_freeze(weight) for weight in self.weights))
        object.__setattr__(self, "biases", tuple(_freeze(bias) for bias in self.biases))
        self._check_layers()
        object.__setattr__(self, "_norms", tuple(spectral_norm_up(weight) for weight in self.weights))
        lengths = ((_length(weight), _length(bias)) for weight, bias in zip(self.weights, self.biases, strict=True))
        object.__setattr__(self, "_lengths", tuple(lengths))
        object.__setattr__(self, "digest", self._compute_digest())

    @property
    def widths(self) -> tuple[int, ...]:
        """The size of an input and of every layer."""
        return (self.weights[0].shape[1], *(len(bias) for bias in self.biases))

    @property
    def lipschitz_constant(self) -> float:
        """|σ(x) - σ(x')| ≤ this · ‖x-x'‖₂: the product of the layers' largest singular values, rounded up."""
        return _product_up(self._norms)

    @property
    def envelope(self) -> LipschitzSigma:
        return LipschitzSigma(constant=self.lipschitz_constant, floor=self.floor)

    @property
    def description(self) -> str:
        cap = "" if self.most is None else f", at most {self.most:g}"
        layers = "-".join(map(str, self.widths))
        return f"network {layers}, at least {self.floor:g}{cap}, Lipschitz constant {self.lipschitz_constant:.4g}"

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        """σ of every input, see `SigmaRule`; NaN if the input is not finite or too large for an error of 1e-11."""
        rows = np.asarray(inputs, dtype=np.float64).reshape(len(inputs), -1)
        if rows.shape[1] != self.widths[0]:
            raise InputError(
                f"got inputs of shape {inputs.shape[1:]}, but this sigma was made for {self.widths[0]} numbers"
            )
        # One input at a time and no matrix product: its order of summation may depend on the batch and on threads.
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
        """The arrays that a file holds beside `to_json`."""
        layers = enumerate(zip(self.weights, self.biases, strict=True))
        return {
            name: array
            for number, (weight, bias) in layers
            for name, array in ((f"weight.{number}", weight), (f"bias.{number}", bias))
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> Self:
        """Build the rule from `to_tensors` and `to_json`. Raise KeyError or ValueError if they are invalid.

        The Lipschitz constant is always recomputed.
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

    def _compute_digest(self) -> str:
        # Without the Lipschitz constant: it follows from the layers, and libraries differ in its last digits.
        hasher = hashlib.sha256(json.dumps([self.kind, self.widths, self.floor, self.most]).encode())
        for array in (*self.weights, *self.biases):
            hasher.update(array.astype("<f8", copy=False).data.cast("B"))
        return hasher.hexdigest()

    def _check_numbers(self) -> None:
        if not (math.isfinite(self.floor) and self.floor > 0):
            raise InputError(f"floor {self.floor} must be a positive finite number: the smallest value of sigma")
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
                "with one output: expected (width, previous width) and (width,) for each, the last width 1"
            )
        if not all(bool(np.isfinite(array).all()) for array in (*self.weights, *self.biases)):
            raise InputError("the network for sigma has weights that are not finite numbers; train it again")


def spectral_norm_up(matrix: FloatArray) -> float:
    """The largest singular value, rounded up. matrix: (m, n) float64, finite.

    The bound holds for any accuracy of the library: for the returned U, S and V, ‖W‖ ≤ s₁ ‖U‖ ‖V‖ + ‖W - USVᵀ‖ and
    ‖U‖² ≤ 1 + ‖UᵀU - I‖_F. A product over k terms has an error of at most 2k roundings, relative to the product of the
    Frobenius norms.
    """
    scale = float(np.abs(matrix).max())
    if scale == 0.0:
        return 0.0
    # Scaling by a power of two is exact, and squares then neither overflow nor underflow.
    exponent = math.frexp(scale)[1]
    scaled = np.ldexp(matrix, -exponent)
    left, singular, right = np.linalg.svd(scaled, full_matrices=False)
    weighted = left * singular
    rounding = 2.0 * (len(singular) + 2) * _UNIT * _length(weighted) * _length(right) + 4.0 * _UNIT * _length(scaled)
    residual = _length(scaled - weighted @ right) + rounding
    bound = float(singular[0]) * math.sqrt(_squared_norm_up(left) * _squared_norm_up(right.T)) + residual
    return math.ldexp(bound * (1.0 + 16.0 * _UNIT), exponent)


def shrunk(weights: Sequence[FloatArray], *, lipschitz: float) -> tuple[FloatArray, ...]:
    """Scale the weights by one factor so that the product of their spectral norms is at most `lipschitz`."""
    product = _product_up([spectral_norm_up(weight) for weight in weights])
    if product <= lipschitz:
        return tuple(weights)
    factor = (_ten_digits(lipschitz, ROUND_FLOOR) / product) ** (1.0 / len(weights)) * (1.0 - 1e-14)
    return tuple(weight * factor for weight in weights)


def _product_up(norms: Sequence[float]) -> float:
    """The product, rounded up to ten digits, so that it does not depend on the linear algebra library."""
    exact = math.prod(norms) * (1.0 + 2.0 * len(norms) * _UNIT)
    return _ten_digits(exact, ROUND_CEILING)


def _ten_digits(value: float, rounding: str) -> float:
    return float(Context(prec=10, rounding=rounding).create_decimal_from_float(value))


def _squared_norm_up(columns: FloatArray) -> float:
    """An upper bound on ‖U‖₂² of nearly orthonormal columns, (n, k)."""
    rounding = 2.0 * (len(columns) + 2) * _UNIT * _length(columns) ** 2
    return 1.0 + _length(columns.T @ columns - np.eye(columns.shape[1])) + rounding


def _length(array: FloatArray) -> float:
    """The Frobenius norm, with an error of 1e-12 that the factor 2 on all rounding terms covers."""
    return float(np.linalg.norm(array))


def _rounding_of_layer(hidden: FloatArray, *, weight_length: float, bias_length: float) -> float:
    """A bound on the length of the rounding error of one layer, for numpy's pairwise summation in runs of 128."""
    terms = len(hidden)
    depth = 2.0 + min(terms, 26.0 + math.log2(max(terms / 128.0, 1.0)))
    return 1.01 * depth * _UNIT * (weight_length * _length(hidden) + bias_length)


def _freeze(array: NDArray[Any]) -> FloatArray:
    """A contiguous, read-only float64 copy."""
    copied = np.array(array, dtype=np.float64, order="C")
    copied.setflags(write=False)
    return copied
