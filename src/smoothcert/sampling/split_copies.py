"""What a base classifier sees of inputs that are split (`noise.splitting`), in host memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smoothcert.errors import InputError
from smoothcert.noise import draw_offsets, evaluations_of, split_inputs, to_grid
from smoothcert.noise.splitting import Whole
from smoothcert.records import InputArray
from smoothcert.sampling.requests import Request, Slice


class SplitCopies:
    """Row i of a slice is evaluation counter+i. The seed of a stream decides the offsets, the same for every input.

    inputs: (m, size) float32 on the grid, in [0, 1].
    """

    def __init__(self, inputs: InputArray, requests: Sequence[Request], *, levels: int) -> None:
        self._requests = requests
        self._levels = levels
        self._places = {row: places_in_cells(inputs[row], levels) for row in {request.row for request in requests}}

    def write(self, slices: Sequence[Slice], out: InputArray) -> None:
        for piece in slices:
            request, k = self._requests[piece.request], self._places[self._requests[piece.request].row]
            evaluations = evaluations_of(request.sigma, levels=self._levels)
            offsets = draw_offsets(request.stream.seed, evaluations=evaluations, size=len(k))
            rows = out[piece.first_row : piece.last_row]
            split_inputs(rows, k, offsets, evaluations=evaluations, levels=self._levels, start=piece.counter)


def places_in_cells(values: InputArray, levels: int) -> Whole:
    """The whole numbers k of values k/(levels-1); an InputError if one is off the grid or outside [0, 1]."""
    k = to_grid(values, levels)
    if k.size and not 0 <= int(k.min()) <= int(k.max()) <= levels - 1:
        raise InputError(
            f"splitting is for inputs in [0, 1], and these lie in [{float(np.min(values)):g}, "
            f"{float(np.max(values)):g}]: divide them by their range first"
        )
    return k
