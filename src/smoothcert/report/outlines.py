"""The outline of a set of cells as an SVG path: short, whatever its area, and with its corners cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Corner = tuple[int, int]
_Step = tuple[int, int]

_LEFT_TURN: dict[_Step, _Step] = {(1, 0): (0, 1), (0, 1): (-1, 0), (-1, 0): (0, -1), (0, -1): (1, 0)}


def outline(cells: NDArray[np.bool_]) -> str:
    """The path around the cells that are set, in half cells; x grows with the column, y with the row, from (0, 0).

    The path joins the middles of the sides of cells. So a slanting border is a slanting line and no staircase, the
    middle of every cell lies on its own side of it, and it is nowhere farther than half a cell from the cells'
    border. Sides that lie on the rim of the array go on a cell beyond it, to be clipped. Holes run the other way round,
    as the rule `nonzero` needs it.
    """
    padded = np.pad(cells, 1, mode="edge")
    return "".join(_drawn(corners) for corners in _loops(padded))


def _loops(cells: NDArray[np.bool_]) -> Iterator[list[Corner]]:
    """Closed ways along the sides between set cells and others, set cells to the left, corner by corner.

    Coordinates are those of the array before it was padded.
    """
    leaving = _sides(cells)
    walked: set[tuple[Corner, _Step]] = set()
    for start, steps in leaving.items():
        for first in steps:
            corner, step = start, first
            corners: list[Corner] = []
            while (corner, step) not in walked:
                walked.add((corner, step))
                corners.append(corner)
                corner = (corner[0] + step[0], corner[1] + step[1])
                # Where two cells touch at a corner only, each keeps to itself: the way turns left, around its own.
                step = _LEFT_TURN[step] if len(leaving[corner]) > 1 else leaving[corner][0]
            if corners:
                yield corners


def _sides(cells: NDArray[np.bool_]) -> dict[Corner, list[_Step]]:
    """By corner, the directions of the sides that leave it, with a set cell to the left and none to the right."""
    ringed = np.pad(cells, 1)
    inside = ringed[1:-1, 1:-1]
    kinds = (
        (ringed[:-2, 1:-1], (0, 0), (1, 0)),
        (ringed[1:-1, 2:], (1, 0), (0, 1)),
        (ringed[2:, 1:-1], (1, 1), (-1, 0)),
        (ringed[1:-1, :-2], (0, 1), (0, -1)),
    )
    leaving: dict[Corner, list[_Step]] = {}
    for neighbour, (right, up), step in kinds:
        for row, column in np.argwhere(inside & ~neighbour).tolist():
            leaving.setdefault((column - 1 + right, row - 1 + up), []).append(step)
    return leaving


def _drawn(corners: list[Corner]) -> str:
    """A closed way through the middles of its sides; in half cells these are whole numbers."""
    following = [*corners[1:], corners[0]]
    middles = [(a[0] + b[0], a[1] + b[1]) for a, b in zip(corners, following, strict=True)]
    bends = [
        here
        for before, here, after in zip([middles[-1], *middles[:-1]], middles, [*middles[1:], middles[0]], strict=True)
        if (here[0] - before[0]) * (after[1] - here[1]) != (here[1] - before[1]) * (after[0] - here[0])
    ]
    (x, y), *others = bends
    path = f"M{x} {y}"
    for at, (nx, ny) in enumerate(others):
        path += f"{'l' if at == 0 else ' '}{nx - x} {ny - y}"
        x, y = nx, ny
    return path + "z"
