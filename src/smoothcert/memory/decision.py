"""From stored balls to a promise: pure functions, in exact arithmetic.

The gap of a ball is d - r, the distance of the point from it; it is negative or zero inside the ball. The ball with the
smallest gap decides. Among all balls: whether the point lies in one, and how much of it remains around the point. Among
the balls of other classes: how large a new ball may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from smoothcert.memory.distances import ExactDistance
from smoothcert.memory.log import Centre
from smoothcert.records import Norm, Settlement


@dataclass(frozen=True, slots=True, eq=False)
class Neighbour:
    """A stored ball near a point."""

    position: int
    label: int
    radius: float
    centre: Centre


@dataclass(frozen=True, slots=True)
class Inside:
    """The ball a point lies in. remaining: the largest float64 s with d + s ≤ r."""

    position: int
    label: int
    remaining: float


@dataclass(frozen=True, slots=True)
class Settled:
    """The decision about a claim: what is granted, and how it was settled."""

    label: int
    radius: float
    settlement: Settlement


def find_deepest(point: Centre, neighbours: Iterable[Neighbour], *, norm: Norm) -> Inside | None:
    """Return the ball the point lies deepest in, the earliest of several; None if it lies in none.

    neighbours: at least the balls with the smallest gap.
    """
    found: Inside | None = None
    for ball in _remove_copies(neighbours):
        remaining = ExactDistance.between(point, ball.centre, norm=norm).largest_inside(ball.radius)
        if remaining >= 0 and (found is None or remaining > found.remaining):
            found = Inside(ball.position, ball.label, remaining)
    return found


def measure_room(point: Centre, others: Iterable[Neighbour], *, norm: Norm) -> float:
    """Return the largest float64 s such that the closed ball of radius s around the point meets none of these balls.

    inf without balls, -inf if the point lies in one.
    """
    distances = ((ExactDistance.between(point, ball.centre, norm=norm), ball) for ball in _remove_copies(others))
    return min((distance.largest_apart(ball.radius) for distance, ball in distances), default=math.inf)


def _remove_copies(balls: Iterable[Neighbour]) -> list[Neighbour]:
    """The earliest of equal balls, ordered by position. Saves exact arithmetic, which is slow."""
    earliest: dict[tuple[float, bytes], Neighbour] = {}
    for ball in sorted(balls, key=lambda ball: ball.position):
        earliest.setdefault((ball.radius, ball.centre.tobytes()), ball)
    return list(earliest.values())


def overrule(inside: Inside, *, radius: float) -> Settled:
    """Settle a claim inside a region of another class: that class is granted, in a ball that stays inside."""
    return Settled(inside.label, min(radius, inside.remaining), Settlement.OVERRULED)


def grant(label: int, *, radius: float, room: float) -> Settled:
    """Grant the claimed class, in the claimed ball or in the largest one that meets no ball of another class."""
    if radius <= room:
        return Settled(label, radius, Settlement.WHOLE)
    return Settled(label, room, Settlement.CUT)
