"""What all counters on a device share: inputs, buffers of noisy copies, checked votes, and votes that were picked."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from smoothcert.errors import ModelError
from smoothcert.models.base import DeviceClassifier, ScoringDeviceClassifier, input_dtype_of
from smoothcert.models.devices import off_mps
from smoothcert.models.scores import require_scores
from smoothcert.noise import AdditiveLaw, GridLaw, evaluations_of, grid_law, law_of, to_grid
from smoothcert.noise.device_noise import NoiseTargets, add_scaled, add_steps, device_noise
from smoothcert.noise.splitting import required_levels
from smoothcert.noise.splitting_with_torch import offsets_on, split_with_torch
from smoothcert.records import FloatArray, InputArray, IntArray, StreamId
from smoothcert.sampling.counters import check_votes
from smoothcert.sampling.device_queues import NoiseAhead, move_to, streams_of
from smoothcert.sampling.picked import PickedRow, PickedVote, PickedVotes
from smoothcert.sampling.requests import Request, Slice
from smoothcert.sampling.split_copies import places_in_cells

_BUFFERS = 2
_Held = tuple[StreamId, int, int, float]
"""Identifies shared noise: a stream, its first draw, the number of draws, and the level."""


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """The noisy copies of a batch, (rows, size) in the type that the model takes, x+ε before x-ε; and the noise."""

    noisy: torch.Tensor
    draws: torch.Tensor | None


class DeviceBench:
    """draws: the largest number in a batch. pairs: copies x-ε are made too. keeps_draws: the noise itself is kept."""

    def __init__(
        self,
        classifier: DeviceClassifier,
        inputs: InputArray,
        requests: Sequence[Request],
        *,
        draws: int,
        pairs: bool = False,
        keeps_draws: bool = False,
    ) -> None:
        self.requests = requests
        self.device = classifier.device
        self.columns = classifier.num_classes + 1
        self._classifier = classifier
        self._shape = inputs.shape[1:]
        self._inputs = torch.from_numpy(inputs).to(classifier.device).reshape(len(inputs), -1)
        # A vote outside the model's classes must not be counted for another class: it is counted here and reported.
        self._strays = self.zeros()
        self._picks = PickedVotes(requests)
        self._picked: list[tuple[list[PickedRow], torch.Tensor]] = []
        self._grid = requests[0].grid
        self._places = self._read_places(inputs.reshape(len(inputs), -1))
        dtype = input_dtype_of(classifier)
        self._noise = device_noise(self.device, dtype)
        # Where inputs share their noise, the last draws serve several slices and batches.
        self._held: _Held | None = None
        self._held_noise = torch.empty(0, device=self.device)
        self._pairs = pairs
        copies = [self._new_copies(draws, dtype, keeps_draws=keeps_draws) for _ in range(_BUFFERS)]
        used = [self._inputs, *self._places.values(), *(part.noisy for part in copies)]
        used += [part.draws for part in copies if part.draws is not None]
        self._ahead = NoiseAhead(streams_of(self.device), copies, used)

    @property
    def size(self) -> int:
        return int(self._inputs.shape[1])

    def zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=self.device)

    def _read_places(self, flat: InputArray) -> dict[int, torch.Tensor]:
        """The steps of the inputs on a grid, by row."""
        if self._grid is None:
            return {}
        read = to_grid if isinstance(law_of(self.requests[0].noise), AdditiveLaw) else places_in_cells
        rows = {request.row for request in self.requests}
        return {row: torch.from_numpy(read(flat[row], self._grid)).to(self.device) for row in rows}

    def _new_copies(self, draws: int, dtype: torch.dtype, *, keeps_draws: bool) -> Copies:
        rows = 2 * draws if self._pairs else draws
        noisy = torch.empty((rows, self.size), dtype=dtype, device=self.device)
        return Copies(noisy, self._new_draws(draws) if keeps_draws else None)

    def _new_draws(self, count: int) -> torch.Tensor:
        kind = torch.float32 if self._grid is None else torch.int32
        return torch.empty((count, self.size), dtype=kind, device=self.device)

    def make(self, number: int, slices: Sequence[Slice]) -> None:
        """Start to make the copies of a batch. number: of the batch, from 0."""
        with self._ahead.making(number) as copies:
            for piece in slices:
                self._fill(piece, self._targets(piece, copies, draws=slices[-1].last_row))

    def reading(self, number: int) -> AbstractContextManager[Copies]:
        """The copies of a batch that was made."""
        return self._ahead.reading(number)

    def _targets(self, piece: Slice, copies: Copies, *, draws: int) -> NoiseTargets:
        rows, others = slice(piece.first_row, piece.last_row), slice(draws + piece.first_row, draws + piece.last_row)
        return NoiseTargets(
            plus=copies.noisy[rows],
            minus=copies.noisy[others] if self._pairs else None,
            draws=None if copies.draws is None else copies.draws[rows],
        )

    def _fill(self, piece: Slice, out: NoiseTargets) -> None:
        request = self.requests[piece.request]
        if not isinstance(law_of(request.noise), AdditiveLaw):
            assert out.plus is not None
            out.plus.copy_(self._split(piece))
        elif request.shared:
            self._fill_from(self._shared_draws(piece), request, out)
        else:
            self._draw(piece, out)

    def _draw(self, piece: Slice, out: NoiseTargets) -> None:
        request, start = self.requests[piece.request], piece.counter
        stream, x = request.noise_stream, self._inputs[request.row]
        if self._grid is None:
            self._noise.add_float(out, x, request.noise, stream, sigma=request.sigma, start=start)
        else:
            self._noise.add_on_grid(out, self._places[request.row], self.law(request), stream, start=start)

    def _shared_draws(self, piece: Slice) -> torch.Tensor:
        request, count = self.requests[piece.request], piece.last_row - piece.first_row
        wanted = (request.noise_stream, piece.counter, count, request.sigma)
        if wanted != self._held:
            self._held_noise, self._held = self._new_draws(count), wanted
            self._draw(piece, NoiseTargets(draws=self._held_noise))
        return self._held_noise

    def _fill_from(self, draws: torch.Tensor, request: Request, out: NoiseTargets) -> None:
        if self._grid is None:
            add_scaled(out, self._inputs[request.row], draws, sigma=request.sigma)
        else:
            add_steps(out, self._places[request.row], draws, levels=self._grid)

    def _split(self, piece: Slice) -> torch.Tensor:
        """(rows, size) what the model sees of the input of one slice, where inputs are split."""
        request = self.requests[piece.request]
        levels = required_levels(self._grid)
        evaluations = evaluations_of(request.sigma, levels=levels)
        offsets = offsets_on(self.device, request.stream.seed, evaluations=evaluations, size=self.size)
        rows = torch.arange(piece.counter, piece.counter + piece.last_row - piece.first_row, device=self.device)
        k = self._places[request.row].long()
        return split_with_torch(k, offsets, rows[:, None], evaluations=evaluations, levels=levels)

    def unit(self, piece: Slice, copies: Copies) -> torch.Tensor:
        """(rows, size) the noise of a slice in units of its level, as summed for gradients."""
        assert copies.draws is not None
        draws = copies.draws[piece.first_row : piece.last_row]
        if self._grid is None:
            return draws
        law, steps = self.law(self.requests[piece.request]), off_mps(draws)
        return _means_on(steps.device, law)[(steps - law.least).long()]

    def law(self, request: Request) -> GridLaw:
        assert self._grid is not None
        return grid_law(request.noise, sigma=request.sigma, levels=self._grid)

    def votes(self, copies: Copies, rows: int) -> torch.Tensor:
        """Votes for the first rows, each in 0 … num_classes."""
        votes = self._classifier.classify_tensor(self._batch(copies, rows))
        if votes.shape != (rows,):
            shape = tuple(votes.shape)
            raise ModelError(f"the model returned votes of shape {shape} for {rows} inputs; expected one class each")
        self._strays += ((votes < 0) | (votes >= self.columns)).sum()
        return votes.clamp(0, self.columns - 1)

    def votes_and_scores(self, slices: Sequence[Slice], copies: Copies) -> tuple[IntArray, FloatArray]:
        """Votes and scores for a batch, in host memory; those of picked copies are recorded."""
        classifier, rows = require_scores(self._classifier), slices[-1].last_row
        batch = self._batch(copies, rows)
        if isinstance(classifier, ScoringDeviceClassifier):
            votes, scores = classifier.votes_and_scores_tensor(batch)
        else:
            votes, scores = classifier.votes_and_scores(batch.float().cpu().numpy())
        check_votes(votes, rows=rows, columns=self.columns)
        self._picks.note(slices, votes, scores=scores)
        return votes, scores

    def _batch(self, copies: Copies, rows: int) -> torch.Tensor:
        return copies.noisy[:rows].reshape(-1, *self._shape)

    def note_picks(self, slices: Sequence[Slice], votes: torch.Tensor, *, half: int = 0) -> None:
        """Put the votes of the picked copies aside, on the device."""
        rows = self._picks.rows(slices, half=half)
        if rows:
            self._picked.append((rows, votes[move_to(self.device, [pick.row for pick in rows])]))

    def picked_votes(self) -> list[PickedVote]:
        for rows, votes in self._picked:
            self._picks.add(rows, on_host(votes))
        self._picked.clear()
        return self._picks.found

    def request_of_row(self, slices: Sequence[Slice]) -> torch.Tensor:
        """(rows,) the request each draw of a batch belongs to."""
        lengths = [piece.last_row - piece.first_row for piece in slices]
        return move_to(self.device, np.repeat([piece.request for piece in slices], lengths).tolist())

    def check(self) -> None:
        if int(self._strays) > 0:
            raise ModelError(f"the model voted {int(self._strays)} times for a class outside 0 … {self.columns - 2}")


def on_host(array: torch.Tensor) -> IntArray:
    return np.asarray(array.cpu().numpy(), dtype=np.int64)


@functools.lru_cache(maxsize=16)
def _means_on(device: torch.device, law: GridLaw) -> torch.Tensor:
    """`GridLaw.means` on a device; moved there once, not for each batch."""
    with torch.inference_mode(False):
        return torch.tensor(law.means).to(device)
