"""A noise level that increases with the distance to the training data (Súkeník et al. 2022, equation 1)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, InputArray
from smoothcert.records.envelopes import SemiElastic
from smoothcert.sigma.neighbours import NeighbourIndex, compact

_LARGEST_EXPONENT = 1000.0
"""The largest rate·(distance + |offset|) with an error of σ below 1e-11; distances have an error of 1e-14."""
_EXP_OVERFLOWS = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class KnnSigma:
    """σ(x) = base_sigma · exp(rate · (mean distance to the k nearest points - offset)), at most `most`.

    The mean of the k smallest distances changes by at most ‖x-x'‖, so log σ changes by at most rate·‖x-x'‖ (Theorem 8).
    The limit `most` only reduces the change. This holds for the *exact* neighbours, so the search is exact.

    points: (n, *input_shape), the training inputs without augmentation: float32, or uint8 grey levels g that represent
    float32(g/255). Float points that are all on that grid are stored as uint8, which changes no value. digest: SHA-256
    over the parameters and the points.
    """

    points: NDArray[Any] = field(repr=False)
    base_sigma: float
    rate: float
    k: int
    offset: float
    most: float | None = None
    digest: str = field(init=False, repr=False)
    _index: NeighbourIndex | None = field(default=None, init=False, repr=False)

    kind: ClassVar[str] = "knn"

    def __post_init__(self) -> None:
        self._check_numbers()
        points = _prepare_points(self.points)
        if not 1 <= self.k <= len(points):
            raise InputError(
                f"k={self.k} nearest neighbours of {len(points)} points are not possible: expected 1 … {len(points)}"
            )
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "digest", self._compute_digest())

    @property
    def envelope(self) -> SemiElastic:
        return SemiElastic(rate=self.rate)

    @property
    def description(self) -> str:
        cap = "" if self.most is None else f", at most {self.most:g}"
        return (
            f"{self.base_sigma:g}·exp({self.rate:g}·(mean distance to the {self.k} nearest of {len(self.points)} "
            f"points - {self.offset:g})){cap}"
        )

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        """σ of every input, see `SigmaRule`; NaN if the input is not finite or σ exceeds the range of floats."""
        if self._index is None:  # built when needed: it takes four times the memory of 8-bit points
            object.__setattr__(self, "_index", NeighbourIndex(self.points))
        assert self._index is not None
        distances = self._index.distances(inputs, k=self.k)
        return np.array([self._to_sigma(row) for row in distances], dtype=np.float64)

    def to_json(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "base_sigma": self.base_sigma,
            "rate": self.rate,
            "k": self.k,
            "offset": self.offset,
            "most": self.most,
            "points": len(self.points),
            "input_shape": list(self.points.shape[1:]),
        }

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file holds beside `to_json`."""
        return {"points": self.points}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any]) -> Self:
        """Build the rule from `to_tensors` and `to_json`. Raise KeyError or ValueError if they are invalid."""
        most = document["most"]
        return cls(
            points=tensors["points"],
            base_sigma=float(document["base_sigma"]),
            rate=float(document["rate"]),
            k=int(document["k"]),
            offset=float(document["offset"]),
            most=None if most is None else float(most),
        )

    def _to_sigma(self, distances: FloatArray) -> float:
        # fsum is exact in any order.
        mean = math.fsum(distances) / self.k
        exponent = self.rate * (mean - self.offset)
        # A far outlier gets the largest value even if the exponential overflows.
        if self.most is not None and exponent > 1.0 + math.log(self.most / self.base_sigma):
            return self.most
        if not (self.rate * (mean + abs(self.offset)) <= _LARGEST_EXPONENT and abs(exponent) < _EXP_OVERFLOWS):
            return math.nan
        sigma = self.base_sigma * math.exp(exponent)
        return sigma if self.most is None else min(sigma, self.most)

    def _compute_digest(self) -> str:
        hasher = hashlib.sha256(json.dumps(dict(self.to_json()), sort_keys=True).encode())
        hasher.update(f"\n{self.points.dtype.name}\n".encode())
        hasher.update(np.ascontiguousarray(self.points, dtype=self.points.dtype.newbyteorder("<")).data.cast("B"))
        return hasher.hexdigest()

    def _check_numbers(self) -> None:
        if not (math.isfinite(self.base_sigma) and self.base_sigma > 0):
            raise InputError(f"sigma {self.base_sigma} must be a positive finite number, in the units of the input")
        if not (math.isfinite(self.rate) and self.rate >= 0):
            raise InputError(f"rate {self.rate} must be a finite number, at least 0; 0.01 is usual for images")
        if not math.isfinite(self.offset):
            raise InputError(
                f"offset {self.offset} must be a finite number: the mean distance at which sigma is its base"
            )
        if self.most is not None and not (math.isfinite(self.most) and self.most > 0):
            raise InputError(
                f"most {self.most} must be a positive finite number: the largest sigma, such as 5 times the base"
            )


def _prepare_points(points: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only, contiguous view of the points, as uint8 if possible."""
    if points.ndim < 2 or 0 in points.shape:
        raise InputError(f"points of shape {points.shape} cannot be used: expected (n, …) without empty dimensions")
    if points.dtype == np.uint8:
        kept: NDArray[Any] = np.ascontiguousarray(points)
    elif points.dtype == np.float32 and bool(np.isfinite(points).all()):
        kept = compact(np.ascontiguousarray(points))
    else:
        raise InputError(f"points must be finite float32 numbers, or uint8 grey levels; got {points.dtype}")
    view = kept.view()
    view.setflags(write=False)
    return view
