"""Counting on an accelerator: noise, votes and sums stay there until the shard is done; scores move to the host.

The processor starts work and does not wait for it: while the model computes a batch, the noise of the next is made.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import torch

from smoothcert.models.base import DeviceClassifier
from smoothcert.models.devices import in_float64
from smoothcert.records import InputArray, IntArray, TallyKind
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.sampling.counters import Counter
from smoothcert.sampling.device_bench import Copies, DeviceBench, on_host
from smoothcert.sampling.picked import PickedVote
from smoothcert.sampling.requests import Request, Slice
from smoothcert.sampling.score_sums import ScoreSums


def device_counter(
    classifier: DeviceClassifier, inputs: InputArray, requests: Sequence[Request], *, draws: int
) -> Counter:
    """The counter for the kind of tally of these requests. draws: the largest number in one batch."""
    kinds: dict[TallyKind, type[_DeviceCounter]] = {
        TallyKind.VOTES: _DeviceVotes,
        TallyKind.PAIRS: _DevicePairs,
        TallyKind.GRADIENTS: _DeviceGradients,
        TallyKind.SCORES: _DeviceScores,
    }
    kind = requests[0].kind
    pairs, keeps_draws = kind is TallyKind.PAIRS, kind is TallyKind.GRADIENTS
    bench = DeviceBench(classifier, inputs, requests, draws=draws, pairs=pairs, keeps_draws=keeps_draws)
    return kinds[kind](bench)


def _count(counts: torch.Tensor, *cell: torch.Tensor, weight: torch.Tensor | None = None) -> None:
    """Add one, or the weight, at each of the given cells of an array; cells may repeat."""
    counts.index_put_(cell, torch.ones_like(cell[0]) if weight is None else weight, accumulate=True)


class _DeviceCounter(abc.ABC):
    """The part that all counters share. shapes: of the sums of one request."""

    def __init__(self, bench: DeviceBench, *shapes: tuple[int, ...]) -> None:
        self._bench = bench
        self._sums = tuple(bench.zeros(len(bench.requests), *shape) for shape in shapes)
        self._number = 0
        self._made: Sequence[Slice] = ()

    def add(self, slices: Sequence[Slice]) -> None:
        """Start to make the noise of this batch, then classify the one before it."""
        with torch.inference_mode():
            self._bench.make(self._number, slices)
            self._finish()
            self._made = slices
            self._number += 1

    def sums(self) -> tuple[IntArray, ...]:
        with torch.inference_mode():
            self._finish()
        self._bench.check()
        return self._read()

    def picked_votes(self) -> list[PickedVote]:
        with torch.inference_mode():
            self._finish()
        return self._bench.picked_votes()

    def _finish(self) -> None:
        """Classify and count the batch whose noise was made last."""
        slices, self._made = self._made, ()
        if slices:
            with self._bench.reading(self._number - 1) as copies:
                self._count(slices, copies)

    def _read(self) -> tuple[IntArray, ...]:
        return tuple(on_host(array) for array in self._sums)

    @abc.abstractmethod
    def _count(self, slices: Sequence[Slice], copies: Copies) -> None:
        """Classify and count a batch."""


class _DeviceVotes(_DeviceCounter):
    def __init__(self, bench: DeviceBench) -> None:
        super().__init__(bench, (bench.columns,))

    def _count(self, slices: Sequence[Slice], copies: Copies) -> None:
        bench = self._bench
        votes = bench.votes(copies, slices[-1].last_row)
        bench.note_picks(slices, votes)
        _count(self._sums[0], bench.request_of_row(slices), votes)


class _DevicePairs(_DeviceCounter):
    def __init__(self, bench: DeviceBench) -> None:
        super().__init__(bench, (3, bench.columns))

    def _count(self, slices: Sequence[Slice], copies: Copies) -> None:
        bench, (pairs,) = self._bench, self._sums
        first, second = bench.votes(copies, 2 * slices[-1].last_row).chunk(2)
        for half, votes in enumerate((first, second)):
            bench.note_picks(slices, votes, half=half)
        request, same = bench.request_of_row(slices), first == second
        _count(pairs, request, torch.where(same, 0, 1), first)
        # Weights, because a list of the rows with two answers would have to wait for the device.
        _count(pairs, request, torch.full_like(second, 2), second, weight=(~same).long())


class _DeviceGradients(_DeviceCounter):
    def __init__(self, bench: DeviceBench) -> None:
        groups = max(max(request.group) for request in bench.requests) + 1
        super().__init__(bench, (bench.columns,), (2, groups, bench.size), (groups,))
        self._groups = [torch.tensor(request.group, device=bench.device) for request in bench.requests]

    def _count(self, slices: Sequence[Slice], copies: Copies) -> None:
        bench = self._bench
        votes = bench.votes(copies, slices[-1].last_row)
        bench.note_picks(slices, votes)
        _count(self._sums[0], bench.request_of_row(slices), votes)
        for piece in slices:
            group = self._groups[piece.request][votes[piece.first_row : piece.last_row]]
            self._add_noise(piece.request, bench.unit(piece, copies), group)

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
    def __init__(self, bench: DeviceBench) -> None:
        super().__init__(bench)
        self._scores = ScoreSums(bench.requests, num_classes=bench.columns - 1)

    def _count(self, slices: Sequence[Slice], copies: Copies) -> None:
        votes, scores = self._bench.votes_and_scores(slices, copies)
        self._scores.add(slices, votes, scores)

    def _read(self) -> tuple[IntArray, ...]:
        return self._scores.sums()
