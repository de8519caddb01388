"""Distances between promised regions, decided in whole numbers where floating point leaves a doubt.

A float32 is a multiple of 2^-149, so squares of distances are whole multiples of 2^-298. Pairs that float64 shows to be
apart, with a bound on its error, need no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.findings import Finding, note

_UNIT = 2.0**-53
_FINEST = 149
"""Every float32 is a whole multiple of 2^-149."""
_BLOCK = 512

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """The well-formed claims of a memory. centres: (n, d) float32; the others (n,). whole: a cache of whole centres."""

    positions: NDArray[np.int64]
    labels: NDArray[np.int64]
    radii: NDArray[np.float64]
    overruled: NDArray[np.bool_]
    centres: NDArray[np.float32]
    norm: str
    whole: dict[int, list[int]]

    def are_farther(self, one: int, other: int, length: Fraction) -> bool:
        """Whether the centres of two regions are farther apart than `length` ≥ 0."""
        return are_farther(self._whole_centre(one), self._whole_centre(other), self.norm, length)

    def _whole_centre(self, at: int) -> list[int]:
        if at not in self.whole:
            self.whole[at] = to_whole_numbers(self.centres[at])
        return self.whole[at]


def to_whole_numbers(x: NDArray[np.float32]) -> list[int]:
    """In multiples of 2^-149. 24 bits, below 2^(128+149): float64 holds the products exactly."""
    return [int(value) for value in np.ldexp(x.astype(np.float64), _FINEST).tolist()]


def are_farther(one: Sequence[int], other: Sequence[int], norm: str, length: Fraction) -> bool:
    """Whether two points, in multiples of 2^-149, are farther apart than `length` ≥ 0."""
    differences = [a - b for a, b in zip(one, other, strict=True)]
    if norm == "l1":
        return Fraction(sum(map(abs, differences)), 1 << _FINEST) > length
    return Fraction(sum(step * step for step in differences), 1 << 2 * _FINEST) > length * length


@dataclass(slots=True)
class PairCounter:
    """pairs: of regions of different classes. exact: comparisons in whole numbers."""

    pairs: int = 0
    exact: int = 0


def check_apart(regions: Regions, counter: PairCounter, progress: Progress | None) -> Iterator[Finding]:
    """Closed regions of different classes must not meet: d > r + s.

    float64 first. With u = 2^-53 a product of two rows of d terms errs by at most γ_d ‖x‖‖y‖ ≤ γ_d (‖x‖²+‖y‖²)/2,
    γ_d < 1.01 d u, and so do the squares; so ‖x‖²+‖y‖²-2xy errs by less than 4(d+8)u(‖x‖²+‖y‖²). The ℓ1 distance is at
    least the ℓ2 distance. What is not excluded is measured from the differences, and then in whole numbers.
    """
    count, dimension = regions.centres.shape
    wide = regions.centres.astype(np.float64)
    squares = np.einsum("ij,ij->i", wide, wide)
    room = 4.0 * (dimension + 8) * _UNIT
    for start in range(0, count, _BLOCK):
        rows = slice(start, min(start + _BLOCK, count))
        sums = squares[rows, None] + squares[None, start:]
        apart = sums * (1.0 - room) - 2.0 * (wide[rows] @ wide[start:].T)
        reach = regions.radii[rows, None] + regions.radii[None, start:]
        different = np.triu(regions.labels[rows, None] != regions.labels[None, start:], k=1)
        counter.pairs += int(np.count_nonzero(different))
        # Written so that an overflow to NaN or infinity excludes nothing.
        close = different & ~(apart > reach * reach * (1.0 + 16.0 * _UNIT))
        for one, other in np.argwhere(close).tolist():
            if _meet(regions, wide, start + one, start + other, counter):
                positions = regions.positions[[start + one, start + other]].tolist()
                labels = regions.labels[[start + one, start + other]].tolist()
                yield note("regions-meet", positions=positions, labels=labels)
        if progress is not None:
            progress(rows.stop, count)


def _meet(regions: Regions, wide: NDArray[np.float64], one: int, other: int, counter: PairCounter) -> bool:
    difference = wide[one] - wide[other]
    l1 = regions.norm == "l1"
    distance = float(np.abs(difference).sum() if l1 else math.sqrt(float(difference @ difference)))
    reach = float(regions.radii[one] + regions.radii[other])
    if distance * (1.0 - 4.0 * (wide.shape[1] + 8) * _UNIT) > reach * (1.0 + 4.0 * _UNIT):
        return False
    counter.exact += 1
    return not regions.are_farther(
        one, other, Fraction(float(regions.radii[one])) + Fraction(float(regions.radii[other]))
    )


def check_overruled(regions: Regions, counter: PairCounter) -> Iterator[Finding]:
    """Every overruled claim lies, with its whole region, inside one earlier region of its class: d ≤ r - s."""
    for at in np.flatnonzero(regions.overruled).tolist():
        same_class = regions.labels[:at] == regions.labels[at]
        earlier = np.flatnonzero(same_class & (regions.radii[:at] >= regions.radii[at]))
        differences = regions.centres[earlier].astype(np.float64) - regions.centres[at].astype(np.float64)
        if regions.norm == "l1":
            distances = np.abs(differences).sum(axis=1)
        else:
            distances = np.sqrt(np.einsum("ij,ij->i", differences, differences))
        slack = regions.radii[earlier] - regions.radii[at] - distances
        # The roomiest first: one is enough, and away from the edge it is the first.
        for place in np.argsort(-slack, kind="stable").tolist():
            outer = int(earlier[place])
            if slack[place] >= -1e-9 * float(regions.radii[outer]):
                counter.exact += 1
                length = Fraction(float(regions.radii[outer])) - Fraction(float(regions.radii[at]))
                if not regions.are_farther(at, outer, length):
                    break
        else:
            yield note("overruled-outside", position=int(regions.positions[at]), label=int(regions.labels[at]))
