"""From measured balls to a promise: pure functions, exact where it matters.

The gap of a ball is d - r, what separates the point from it. It is negative or zero inside the ball. In all that
follows the ball with the smallest gap decides: of all balls, whether the point lies in one, and how much remains of it;
of the balls of other classes, how large a new ball may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from smoothcert.memory.distances import ExactDistance
from smoothcert.memory.log import Centre
from smoothcert.records import Norm, Settlement


@dataclass(frozen=True, slots=True, eq=False)
class Neighbour:
    """A stored ball near the point in question."""

    position: int
    label: int
    radius: float
    centre: Centre


@dataclass(frozen=True, slots=True)
class Inside:
    """The point lies in a ball; `remaining` is the largest float64 s with d + s ≤ r."""

    position: int
    label: int
    remaining: float


@dataclass(frozen=True, slots=True)
class Settled:
    label: int
    radius: float
    settlement: Settlement


def deepest(point: Centre, neighbours: Iterable[Neighbour], *, norm: Norm) -> Inside | None:
    """The ball the point lies deepest in, the earliest if several; None if it lies in none.

    neighbours: at least the balls with the smallest gap.
    """
    found: Inside | None = None
    for ball in _distinct(neighbours):
        remaining = ExactDistance.between(point, ball.centre, norm=norm).largest_inside(ball.radius)
        if remaining >= 0 and (found is None or remaining > found.remaining):
            found = Inside(ball.position, ball.label, remaining)
    return found


def room(point: Centre, others: Sequence[Neighbour], *, norm: Norm) -> float:
    """The largest float64 s for which the closed ball of radius s around the point meets none of these balls.

    inf without balls, -inf if the point lies in one.
    """
    return min(
        (ExactDistance.between(point, ball.centre, norm=norm).largest_apart(ball.radius) for ball in _distinct(others)),
        default=math.inf,
    )


def _distinct(balls: Iterable[Neighbour]) -> list[Neighbour]:
    """The earliest of equal balls only, in the order of positions: exact arithmetic takes long."""
    earliest: dict[tuple[float, bytes], Neighbour] = {}
    for ball in sorted(balls, key=lambda ball: ball.position):
        earliest.setdefault((ball.radius, ball.centre.tobytes()), ball)
    return list(earliest.values())


def overrule(inside: Inside, *, radius: float) -> Settled:
    """The point lies in a region of another class: that class answers, in a ball that stays inside."""
    return Settled(inside.label, min(radius, inside.remaining), Settlement.OVERRULED)


def grant(label: int, *, radius: float, room: float) -> Settled:
    """The claimed class, in the claimed ball or in the largest that meets no ball of another class."""
    if radius <= room:
        return Settled(label, radius, Settlement.WHOLE)
    return Settled(label, room, Settlement.CUT)
