"""A memory of regions in a list, decided by brute force in integers and 2000-bit square roots."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import mpmath
import numpy as np
from numpy.typing import NDArray

from smoothcert.records import Norm, Promise, Settlement

_BITS = 2000
_SCALE = 149
"""Every float32 is a whole multiple of 2^-149."""


def whole(x: NDArray[np.float32]) -> list[int]:
    scaled = [Fraction(float(value)) * 2**_SCALE for value in x.ravel()]
    assert all(value.denominator == 1 for value in scaled)
    return [value.numerator for value in scaled]


def exact_distance(x: list[int], y: list[int], norm: Norm) -> mpmath.mpf:
    """Rounded to 2000 bits. Points and radii are multiples of 2^-1074, so all comparisons are exact."""
    with mpmath.workprec(_BITS):
        if norm is Norm.L1:
            return mpmath.ldexp(mpmath.mpf(sum(abs(a - b) for a, b in zip(x, y, strict=True))), -_SCALE)
        return mpmath.ldexp(mpmath.sqrt(mpmath.mpf(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))), -_SCALE)


@dataclass
class ExactRegions:
    """The rules of the memory, written as plainly as possible."""

    norm: Norm
    balls: list[tuple[list[int], int, float]] = field(default_factory=list)
    asked: list[tuple[list[int], int, float]] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)

    def check(self, x: NDArray[np.float32], label: int, radius: float, promise: Promise) -> None:
        """Assert that this promise is the right answer to this claim, and remember it."""
        point = whole(x)
        if (point, label, radius) in self.asked:
            assert promise == self.promises[self.asked.index((point, label, radius))]
            return
        with mpmath.workprec(_BITS):
            distances = [exact_distance(point, centre, self.norm) for centre, _, _ in self.balls]
            expected_label, most, settlement = self._expected(distances, label, radius)
            assert promise.label == expected_label
            assert promise.settlement is settlement
            self._assert_largest(promise, most, radius, strict=settlement is Settlement.CUT)
            for distance, (_, other, other_radius) in zip(distances, self.balls, strict=True):
                if other != promise.label:
                    assert distance > mpmath.mpf(promise.radius) + mpmath.mpf(other_radius)
        assert (promise.asked_label, promise.asked_radius) == (label, radius)
        assert promise.position == len(self.balls) + 1
        self.balls.append((point, promise.label, promise.radius))
        self.asked.append((point, label, radius))
        self.promises.append(promise)

    def _expected(self, distances: list[mpmath.mpf], label: int, radius: float) -> tuple[int, mpmath.mpf, Settlement]:
        """The class, the upper bound on the radius, and the settlement."""
        around = [
            (other_radius - distance, other)
            for distance, (_, other, other_radius) in zip(distances, self.balls, strict=True)
            if distance <= other_radius
        ]
        assert len({other for _, other in around}) <= 1
        if around and around[0][1] != label:
            return around[0][1], min(mpmath.mpf(radius), max(around)[0]), Settlement.OVERRULED
        others = [
            distance - other_radius
            for distance, (_, other, other_radius) in zip(distances, self.balls, strict=True)
            if other != label
        ]
        room = min(others, default=mpmath.inf)
        if radius < room:
            return label, mpmath.mpf(radius), Settlement.WHOLE
        return label, room, Settlement.CUT

    @staticmethod
    def _assert_largest(promise: Promise, most: mpmath.mpf, radius: float, *, strict: bool) -> None:
        """The promised radius is the largest float64 that is allowed. strict: it must stay below `most`."""
        above = mpmath.mpf(float(np.nextafter(promise.radius, np.inf)))
        assert (promise.radius < most) if strict else (promise.radius <= most)
        assert (above >= most) if strict else (above > most or promise.radius == radius)

    def lookup(self, x: NDArray[np.float32]) -> tuple[int, mpmath.mpf] | None:
        """The class, and the rest around x of the region that reaches farthest."""
        point = whole(x)
        with mpmath.workprec(_BITS):
            around = [
                (other_radius - exact_distance(point, centre, self.norm), label)
                for centre, label, other_radius in self.balls
            ]
            remaining, label = max(around, default=(mpmath.mpf(-1), 0))
            return (label, remaining) if remaining >= 0 else None
