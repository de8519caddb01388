"""Noisy copies of inputs in host memory: x+ε, x±ε, and the noise itself, for the draws of a batch.

There are two kinds of added noise: noise in float32, added in float32; and noise in whole steps of the grid of the
inputs, added as whole numbers and converted to float32 by one division. The theorems hold exactly for the second
(`noise.grid_law`). Inputs that are split have a class of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.noise import (
    AdditiveLaw,
    GridLaw,
    add_grid_noise,
    add_noise,
    from_grid,
    grid_draws,
    grid_law,
    law_of,
    scale_noise,
    to_grid,
)
from smoothcert.noise.splitting import required_levels
from smoothcert.records import FloatArray, InputArray, StreamId
from smoothcert.sampling.requests import Request, Slice
from smoothcert.sampling.split_copies import SplitCopies

Colour = Callable[[InputArray, InputArray], None]
"""Transforms rows of standard normals, (rows, size) float32, and writes them into the second array."""

_Steps = NDArray[np.int32]
_Held = tuple[StreamId, int, int]
"""Identifies shared noise: a stream, its first draw, and the number of draws."""


class WrittenCopies(Protocol):
    """Makes the copies of a batch, for votes."""

    def write(self, slices: Sequence[Slice], out: InputArray, /) -> None:
        """Write a noisy copy for every draw of a batch into the first rows of `out`: (rows, size) float32."""


class NoisyCopies(WrittenCopies, Protocol):
    """The same for noise that is added, and for other kinds of tallies. Results: (rows of the slice, size) float32."""

    def prepare(self, slices: Sequence[Slice], /) -> None:
        """Make the noise of a batch and keep it for the methods below."""

    def add_to_input(self, piece: Slice, out: InputArray, /) -> None:
        """Write x+ε of one slice of the prepared batch."""

    def pair(self, piece: Slice, first: InputArray, second: InputArray, /) -> None:
        """Write x+ε and x-ε of one slice of the prepared batch."""

    def unit(self, piece: Slice, /) -> NDArray[np.floating[Any]]:
        """ε of one slice in units of its level, as summed for gradients; must not be written to."""


def noisy_copies(
    inputs: InputArray, requests: Sequence[Request], *, draws: int, colour: Colour | None = None
) -> WrittenCopies:
    """For requests with the same kind of noise. inputs: (m, size) float32. draws: the largest number in one batch.

    colour: transforms standard normals into the noise of level 1; not supported on a grid.
    """
    levels = requests[0].grid
    if not isinstance(law_of(requests[0].noise), AdditiveLaw):
        return SplitCopies(inputs, requests, levels=required_levels(levels))
    if levels is not None:
        return _GridCopies(inputs, requests, levels=levels)
    return _FloatCopies(inputs, requests, draws=draws, colour=colour)


def of_added_noise(copies: WrittenCopies) -> NoisyCopies:
    """The copies, if their noise is added. Requests for pairs and gradients of any other noise are refused."""
    assert isinstance(copies, _GridCopies | _FloatCopies)
    return copies


def rows_of(piece: Slice) -> slice:
    """The rows of a slice in its batch."""
    return slice(piece.first_row, piece.last_row)


def _draws_of(piece: Slice, request: Request) -> _Held:
    return request.noise_stream, piece.counter, piece.last_row - piece.first_row


class _FloatCopies:
    """Noise in float32. With shared noise, all slices of a batch have the same draws; they are made once and reused by
    following batches with the same draws.
    """

    def __init__(self, inputs: InputArray, requests: Sequence[Request], *, draws: int, colour: Colour | None) -> None:
        self._inputs = inputs
        self._requests = requests
        self._draws = draws
        self._colour = colour
        self._shared = requests[0].shared
        size = inputs.shape[1]
        self._origin = np.zeros(size, dtype=np.float32)
        self._held: _Held | None = None
        self._made = self._white = self._scaled = np.empty((0, size), dtype=np.float32)
        self._scaled_by: float | None = None

    def write(self, slices: Sequence[Slice], out: InputArray) -> None:
        if self._shared or self._colour is not None:
            self.prepare(slices)
            for piece in slices:
                self.add_to_input(piece, out[rows_of(piece)])
            return
        for piece in slices:
            request = self._requests[piece.request]
            x, noisy = self._inputs[request.row], out[rows_of(piece)]
            add_noise(request.noise, noisy, x, request.noise_stream, sigma=request.sigma, start=piece.counter)

    def prepare(self, slices: Sequence[Slice]) -> None:
        if not self._shared:
            self._fill(slices)
            return
        wanted = _draws_of(slices[0], self._requests[slices[0].request])
        if wanted != self._held:
            self._fill(slices[:1])
            self._held = wanted

    def add_to_input(self, piece: Slice, out: InputArray) -> None:
        request = self._requests[piece.request]
        x = self._inputs[request.row]
        if not self._shared:
            scale_noise(self.unit(piece), sigma=request.sigma, out=out)
            out += x
            return
        if self._scaled_by != request.sigma:
            self._scaled, self._scaled_by = scale_noise(self.unit(piece), sigma=request.sigma), request.sigma
        np.add(x, self._scaled, out=out)

    def pair(self, piece: Slice, first: InputArray, second: InputArray) -> None:
        request = self._requests[piece.request]
        x = self._inputs[request.row]
        noise = scale_noise(self.unit(piece), sigma=request.sigma, out=first)
        np.subtract(x, noise, out=second)
        np.add(x, noise, out=first)

    def unit(self, piece: Slice) -> InputArray:
        rows = slice(piece.last_row - piece.first_row) if self._shared else rows_of(piece)
        found: InputArray = self._made[rows]
        return found

    def _fill(self, slices: Sequence[Slice]) -> None:
        self._scaled_by = None
        if not len(self._made):
            self._made = np.empty((self._draws, len(self._origin)), dtype=np.float32)
            self._white = self._made if self._colour is None else np.empty_like(self._made)
        for piece in slices:
            request = self._requests[piece.request]
            rows, stream = self._white[rows_of(piece)], request.noise_stream
            add_noise(request.noise, rows, self._origin, stream, sigma=1.0, start=piece.counter)
        if self._colour is not None:
            self._colour(self._white[: slices[-1].last_row], self._made[: slices[-1].last_row])


class _GridCopies:
    """Noise in whole steps of a grid. The law depends on sigma, so shared draws serve inputs with the same sigma."""

    def __init__(self, inputs: InputArray, requests: Sequence[Request], *, levels: int) -> None:
        self._requests = requests
        self._levels = levels
        self._size = inputs.shape[1]
        rows = {request.row for request in requests}
        self._places: dict[int, _Steps] = {row: to_grid(inputs[row], levels) for row in rows}
        self._laws = {
            (request.noise, request.sigma): grid_law(request.noise, sigma=request.sigma, levels=levels)
            for request in requests
        }
        self._shared = requests[0].shared
        self._held: dict[int, _Steps] = {}
        self._shared_held: tuple[_Held, GridLaw, _Steps] | None = None

    def write(self, slices: Sequence[Slice], out: InputArray) -> None:
        for piece in slices:
            request, rows = self._requests[piece.request], out[rows_of(piece)]
            if self._shared:
                from_grid(self._places[request.row] + self._draw(piece), self._levels, out=rows)
            else:
                law, stream = self._law(request), request.noise_stream
                add_grid_noise(rows, self._places[request.row], law, stream, start=piece.counter)

    def prepare(self, slices: Sequence[Slice]) -> None:
        self._held = {piece.first_row: self._draw(piece) for piece in slices}

    def add_to_input(self, piece: Slice, out: InputArray) -> None:
        place = self._places[self._requests[piece.request].row]
        from_grid(place + self._held[piece.first_row], self._levels, out=out)

    def pair(self, piece: Slice, first: InputArray, second: InputArray) -> None:
        place, steps = self._places[self._requests[piece.request].row], self._held[piece.first_row]
        from_grid(place + steps, self._levels, out=first)
        from_grid(place - steps, self._levels, out=second)

    def unit(self, piece: Slice) -> FloatArray:
        law = self._law(self._requests[piece.request])
        found: FloatArray = law.means[self._held[piece.first_row] - law.least]
        return found

    def _law(self, request: Request) -> GridLaw:
        return self._laws[request.noise, request.sigma]

    def _draw(self, piece: Slice) -> _Steps:
        request = self._requests[piece.request]
        law, wanted = self._law(request), _draws_of(piece, request)
        if self._shared and self._shared_held is not None and self._shared_held[:2] == (wanted, law):
            return self._shared_held[2]
        stream, start, count = wanted
        made = grid_draws(law, stream, start=start, count=count, size=self._size)
        self._shared_held = (wanted, law, made) if self._shared else None
        return made
