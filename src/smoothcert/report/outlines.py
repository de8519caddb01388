"""The outline of a set of cells as a short SVG path with cut corners."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Corner = tuple[int, int]
_Step = tuple[int, int]

_LEFT_TURN: dict[_Step, _Step] = {(1, 0): (0, 1), (0, 1): (-1, 0), (-1, 0): (0, -1), (0, -1): (1, 0)}


def trace_outline(cells: NDArray[np.bool_]) -> str:
    """The path around the set cells, in half cells; x grows with the column, y with the row, from (0, 0).

    The path joins the midpoints of the sides of cells. So a diagonal border is a straight line, the centre of every
    cell is on the correct side, and the path is nowhere farther than half a cell from the border of the cells. At the
    rim of the array the path continues one cell beyond it, to be clipped. Holes have the opposite direction, as the
    fill rule `nonzero` requires.
    """
    padded = np.pad(cells, 1, mode="edge")
    return "".join(_draw_loop(corners) for corners in _loops(padded))


def _loops(cells: NDArray[np.bool_]) -> Iterator[list[Corner]]:
    """The corners of closed loops between set cells and others, with set cells to the left.

    Coordinates are those of the array before padding.
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
                # Where two cells touch only at a corner, turn left, so that each has its own loop.
                step = _LEFT_TURN[step] if len(leaving[corner]) > 1 else leaving[corner][0]
            if corners:
                yield corners


def _sides(cells: NDArray[np.bool_]) -> dict[Corner, list[_Step]]:
    """By corner, the directions of the sides that start there, with a set cell to the left and none to the right."""
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


def _draw_loop(corners: list[Corner]) -> str:
    """The closed path through the midpoints of the sides, which are integers in half cells."""
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
