"""Counting on an accelerator: noise, votes and sums stay there until the shard is done; scores move to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from smoothcert.errors import ModelError
from smoothcert.models.base import DeviceClassifier, ScoringDeviceClassifier
from smoothcert.models.devices import in_float64, off_mps
from smoothcert.models.scores import require_scores
from smoothcert.noise import AdditiveLaw, GridLaw, evaluations_of, grid_law, law_of, to_grid
from smoothcert.noise.grid_with_torch import from_grid, grid_draws
from smoothcert.noise.splitting import required_levels
from smoothcert.noise.splitting_with_torch import offsets_on, split_with_torch
from smoothcert.noise.with_torch import scale_noise, unit_noise
from smoothcert.records import FloatArray, InputArray, IntArray, StreamId, TallyKind
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.sampling.counters import Counter, check_votes
from smoothcert.sampling.picked import PickedVote, PickedVotes
from smoothcert.sampling.requests import Request, Slice
from smoothcert.sampling.score_sums import ScoreSums
from smoothcert.sampling.split_copies import places_in_cells


def device_counter(classifier: DeviceClassifier, inputs: InputArray, requests: Sequence[Request]) -> Counter:
    """The counter for the kind of tally of these requests."""
    kinds: dict[TallyKind, Callable[[_DeviceBench], Counter]] = {
        TallyKind.VOTES: _DeviceVotes,
        TallyKind.PAIRS: _DevicePairs,
        TallyKind.GRADIENTS: _DeviceGradients,
        TallyKind.SCORES: _DeviceScores,
    }
    return kinds[requests[0].kind](_DeviceBench(classifier, inputs, requests))


class _DeviceBench:
    """What all counters on a device share: inputs, noise, and checked votes."""

    def __init__(self, classifier: DeviceClassifier, inputs: InputArray, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.device = classifier.device
        self.columns = classifier.num_classes + 1
        self._classifier = classifier
        self._shape = inputs.shape[1:]
        self.picks = PickedVotes(requests)
        self._inputs = torch.from_numpy(inputs).to(classifier.device).reshape(len(inputs), -1)
        # A vote outside the model's classes must not be counted for another class: it is counted here and reported.
        self._strays = torch.zeros((), dtype=torch.int64, device=classifier.device)
        self._grid = requests[0].grid
        self._places: dict[int, torch.Tensor] = {}
        if self._grid is not None:
            flat, rows = inputs.reshape(len(inputs), -1), {request.row for request in requests}
            read = to_grid if isinstance(law_of(requests[0].noise), AdditiveLaw) else places_in_cells
            places = {row: torch.from_numpy(read(flat[row], self._grid)) for row in rows}
            self._places = {row: place.to(classifier.device) for row, place in places.items()}
        # Where inputs share their noise, the last draws serve several slices and batches.
        self._held: tuple[StreamId, int, int, float] | None = None
        self._held_noise = torch.empty(0, device=classifier.device)

    @property
    def size(self) -> int:
        return int(self._inputs.shape[1])

    def zeros(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=self.device)

    def draws(self, piece: Slice) -> torch.Tensor:
        """(rows, size) the noise of one slice: of level 1, or in steps of the grid. Must not be written to."""
        request = self.requests[piece.request]
        wanted = (request.noise_stream, piece.counter, piece.last_row - piece.first_row, request.sigma)
        if not request.shared or wanted != self._held:
            self._held_noise, self._held = self._draw(piece), wanted
        return self._held_noise

    def _draw(self, piece: Slice) -> torch.Tensor:
        request = self.requests[piece.request]
        place: dict[str, Any] = {
            "start": piece.counter,
            "count": piece.last_row - piece.first_row,
            "size": self.size,
            "device": self.device,
        }
        if self._grid is not None:
            return grid_draws(self._law(request), request.noise_stream, **place)
        return unit_noise(request.noise, request.noise_stream, **place)

    def noisy(self, piece: Slice, draws: torch.Tensor, *, sign: int = 1) -> torch.Tensor:
        """(rows, size) x+ε of one slice, or x-ε."""
        request = self.requests[piece.request]
        if self._grid is None:
            noise = scale_noise(draws, sigma=request.sigma)
            return self._inputs[request.row] + noise if sign > 0 else self._inputs[request.row] - noise
        return from_grid(self._places[request.row] + sign * draws, self._grid)

    def split(self, piece: Slice) -> torch.Tensor:
        """(rows, size) what the model sees of the input of one slice, where inputs are split."""
        request = self.requests[piece.request]
        levels = required_levels(self._grid)
        evaluations = evaluations_of(request.sigma, levels=levels)
        offsets = offsets_on(self.device, request.stream.seed, evaluations=evaluations, size=self.size)
        rows = torch.arange(piece.counter, piece.counter + piece.last_row - piece.first_row, device=self.device)
        k = self._places[request.row].long()
        return split_with_torch(k, offsets, rows[:, None], evaluations=evaluations, levels=levels)

    def copies(self, slices: Sequence[Slice]) -> list[torch.Tensor]:
        """A noisy copy for every draw of a batch, slice by slice."""
        if not isinstance(law_of(self.requests[0].noise), AdditiveLaw):
            return [self.split(piece) for piece in slices]
        return [self.noisy(piece, self.draws(piece)) for piece in slices]

    def unit(self, piece: Slice, draws: torch.Tensor) -> torch.Tensor:
        """(rows, size) the noise in units of its level, as summed for gradients."""
        if self._grid is None:
            return draws
        law = self._law(self.requests[piece.request])
        steps = off_mps(draws)
        return torch.tensor(law.means, device=steps.device)[(steps - law.least).long()]

    def _law(self, request: Request) -> GridLaw:
        assert self._grid is not None
        return grid_law(request.noise, sigma=request.sigma, levels=self._grid)

    def votes(self, noisy: list[torch.Tensor]) -> torch.Tensor:
        """Votes for rows of flat inputs, each in 0 … num_classes."""
        batch = torch.cat(noisy).reshape(-1, *self._shape)
        votes = self._classifier.classify_tensor(batch)
        if votes.shape != (len(batch),):
            shape = tuple(votes.shape)
            raise ModelError(
                f"the model returned votes of shape {shape} for {len(batch)} inputs; expected one class each"
            )
        self._strays += ((votes < 0) | (votes >= self.columns)).sum()
        return votes.clamp(0, self.columns - 1)

    def note_picks(self, slices: Sequence[Slice], votes: torch.Tensor, *, half: int = 0) -> None:
        """Record the votes of the picked copies; the others stay on the device."""
        rows = self.picks.rows(slices, half=half)
        if rows:
            self.picks.add(rows, _on_host(votes[[pick.row for pick in rows]]))

    def votes_and_scores(self, noisy: list[torch.Tensor]) -> tuple[IntArray, FloatArray]:
        """Votes and scores for rows of flat inputs, in host memory."""
        classifier = require_scores(self._classifier)
        batch = torch.cat(noisy).reshape(-1, *self._shape)
        if isinstance(classifier, ScoringDeviceClassifier):
            votes, scores = classifier.votes_and_scores_tensor(batch)
        else:
            votes, scores = classifier.votes_and_scores(batch.cpu().numpy())
        return check_votes(votes, rows=len(batch), columns=self.columns), scores

    def request_of_row(self, slices: Sequence[Slice]) -> torch.Tensor:
        """(rows,) the request each draw of a batch belongs to."""
        lengths = torch.tensor([piece.last_row - piece.first_row for piece in slices])
        return torch.repeat_interleave(torch.tensor([p.request for p in slices]), lengths).to(self.device)

    def check(self) -> None:
        if int(self._strays) > 0:
            raise ModelError(f"the model voted {int(self._strays)} times for a class outside 0 … {self.columns - 2}")


def _count(counts: torch.Tensor, *cell: torch.Tensor) -> None:
    """Add one at each of the given cells of an array; cells may repeat."""
    counts.index_put_(cell, torch.ones_like(cell[0]), accumulate=True)


def _on_host(array: torch.Tensor) -> IntArray:
    return np.asarray(array.cpu().numpy(), dtype=np.int64)


class _DeviceCounter:
    """The part that all counters share. shapes: of the sums of one request."""

    def __init__(self, bench: _DeviceBench, *shapes: tuple[int, ...]) -> None:
        self._bench = bench
        self._sums = tuple(bench.zeros(len(bench.requests), *shape) for shape in shapes)

    def sums(self) -> tuple[IntArray, ...]:
        self._bench.check()
        return tuple(_on_host(array) for array in self._sums)

    def picked_votes(self) -> list[PickedVote]:
        return self._bench.picks.found


class _DeviceVotes(_DeviceCounter):
    def __init__(self, bench: _DeviceBench) -> None:
        super().__init__(bench, (bench.columns,))

    def add(self, slices: Sequence[Slice]) -> None:
        bench = self._bench
        with torch.inference_mode():
            votes = bench.votes(bench.copies(slices))
            bench.note_picks(slices, votes)
            _count(self._sums[0], bench.request_of_row(slices), votes)


class _DevicePairs(_DeviceCounter):
    def __init__(self, bench: _DeviceBench) -> None:
        super().__init__(bench, (3, bench.columns))

    def add(self, slices: Sequence[Slice]) -> None:
        bench, (pairs,) = self._bench, self._sums
        with torch.inference_mode():
            draws = [bench.draws(piece) for piece in slices]
            plus = [bench.noisy(piece, drawn) for piece, drawn in zip(slices, draws, strict=True)]
            minus = [bench.noisy(piece, drawn, sign=-1) for piece, drawn in zip(slices, draws, strict=True)]
            first, second = bench.votes(plus + minus).chunk(2)
            for half, votes in enumerate((first, second)):
                bench.note_picks(slices, votes, half=half)
            request, same = bench.request_of_row(slices), first == second
            _count(pairs, request, torch.where(same, 0, 1), first)
            _count(pairs, request[~same], torch.full_like(second[~same], 2), second[~same])


class _DeviceGradients(_DeviceCounter):
    def __init__(self, bench: _DeviceBench) -> None:
        groups = max(max(request.group) for request in bench.requests) + 1
        super().__init__(bench, (bench.columns,), (2, groups, bench.size), (groups,))
        self._groups = [torch.tensor(request.group, device=bench.device) for request in bench.requests]

    def add(self, slices: Sequence[Slice]) -> None:
        bench = self._bench
        with torch.inference_mode():
            draws = [bench.draws(piece) for piece in slices]
            votes = bench.votes([bench.noisy(piece, drawn) for piece, drawn in zip(slices, draws, strict=True)])
            bench.note_picks(slices, votes)
            _count(self._sums[0], bench.request_of_row(slices), votes)
            for piece, drawn in zip(slices, draws, strict=True):
                group = self._groups[piece.request][votes[piece.first_row : piece.last_row]]
                self._add_noise(piece.request, bench.unit(piece, drawn), group)

    def _add_noise(self, request: int, normals: torch.Tensor, group: torch.Tensor) -> None:
        """normals: (rows, size), pairs in adjacent rows; group: (rows,). See the counter in host memory."""
        _, sums, all_products = self._sums
        units = torch.round(normals / GRADIENT_UNIT).to(torch.int64).to(group.device)
        wide = in_float64(normals)
        products = torch.round((wide[0::2] * wide[1::2]).sum(dim=1) / GRADIENT_UNIT).to(torch.int64).to(group.device)
        together = group[0::2] == group[1::2]
        all_products[request].index_add_(0, group[0::2], products * together)
        for half in range(2):
            sums[request, half].index_add_(0, group[half::2], units[half::2])


class _DeviceScores(_DeviceCounter):
    def __init__(self, bench: _DeviceBench) -> None:
        super().__init__(bench)
        self._scores = ScoreSums(bench.requests, num_classes=bench.columns - 1)

    def add(self, slices: Sequence[Slice]) -> None:
        bench = self._bench
        with torch.inference_mode():
            noisy = [bench.noisy(piece, bench.draws(piece)) for piece in slices]
            votes, scores = bench.votes_and_scores(noisy)
            self._scores.add(slices, votes, scores)
            bench.picks.note(slices, votes, scores=scores)

    def sums(self) -> tuple[IntArray, ...]:
        return self._scores.sums()
