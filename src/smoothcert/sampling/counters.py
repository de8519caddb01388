"""Counting in host memory: plain votes, votes at x+ε and x-ε, votes with the noise they were cast at or with scores.

A counter belongs to one worker and holds whole numbers only, so the sums of several workers do not depend on which
worker took which batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.scores import require_scores
from smoothcert.records import AnyTally, FloatArray, GradientTally, InputArray, IntArray, PairTally, Tally, TallyKind
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.sampling.noisy_copies import Colour, noisy_copies, of_added_noise, rows_of
from smoothcert.sampling.picked import PickedVote, PickedVotes
from smoothcert.sampling.requests import Request, Slice, samples_per_draw
from smoothcert.sampling.score_sums import ScoreSums, score_tally

_CHUNK = 1 << 17
"""Coordinates of noise converted to float64 at once: what stays in a core's cache."""


class Counter(Protocol):
    """Counts the votes of one worker."""

    def add(self, slices: Sequence[Slice], /) -> None:
        """Draw, classify and count one batch."""

    def sums(self) -> tuple[IntArray, ...]:
        """Arrays whose first axis is the request; the arrays of several workers are added.

        VOTES: (requests, num_classes + 1), the last column for samples without a finite answer. PAIRS: (requests, 3,
        num_classes + 1), both votes, first only, second only. GRADIENTS: votes as above; (requests, 2, groups, size);
        (requests, groups). SCORES: votes as above; (requests, 2 * SCORE_CELLS).
        """

    def picked_votes(self) -> list[PickedVote]:
        """The votes of the copies that the requests picked."""


def host_counter(
    classifier: BaseClassifier,
    inputs: InputArray,
    requests: Sequence[Request],
    *,
    draws: int,
    colour: Colour | None = None,
) -> Counter:
    """The counter for the kind of tally of these requests. draws: the largest number in one batch.

    colour: transforms standard normals into the noise of level 1. Gradients are not supported with it.
    """
    kinds: dict[TallyKind, Callable[[_HostBench], Counter]] = {
        TallyKind.VOTES: _HostVotes,
        TallyKind.PAIRS: _HostPairs,
        TallyKind.GRADIENTS: _HostGradients,
        TallyKind.SCORES: _HostScores,
    }
    return kinds[requests[0].kind](_HostBench(classifier, inputs, requests, draws=draws, colour=colour))


def tallies_of(requests: Sequence[Request], sums: Sequence[tuple[IntArray, ...]]) -> list[AnyTally]:
    """One tally per request from the sums of all workers."""
    totals = [np.sum(arrays, axis=0) for arrays in zip(*sums, strict=True)]
    build: dict[TallyKind, Callable[..., AnyTally]] = {
        TallyKind.VOTES: _vote_tally,
        TallyKind.PAIRS: _pair_tally,
        TallyKind.GRADIENTS: _gradient_tally,
        TallyKind.SCORES: score_tally,
    }
    return [build[request.kind](request, *(total[i] for total in totals)) for i, request in enumerate(requests)]


def _vote_tally(request: Request, votes: IntArray) -> Tally:
    return Tally(**request.tally_fields, counts=votes[:-1], invalid=int(votes[-1]))


def _pair_tally(request: Request, pairs: IntArray) -> PairTally:
    both, first_only, second_only = pairs
    return PairTally(**request.tally_fields, both=both, first_only=first_only, second_only=second_only)


def _gradient_tally(request: Request, votes: IntArray, sums: IntArray, products: IntArray) -> GradientTally:
    return GradientTally(
        **request.tally_fields,
        counts=votes[:-1],
        invalid=int(votes[-1]),
        group=np.array(request.group),
        sums=sums,
        products=products,
    )


class _HostBench:
    """What all counters in host memory share: the model, the inputs, and a reused buffer of noisy copies.

    draws: the largest number in one batch.
    """

    def __init__(
        self,
        classifier: BaseClassifier,
        inputs: InputArray,
        requests: Sequence[Request],
        *,
        draws: int,
        colour: Colour | None,
    ) -> None:
        self.requests = requests
        self.columns = classifier.num_classes + 1
        flat_inputs = inputs.reshape(len(inputs), -1)
        self.size = flat_inputs.shape[1]
        self.copies = noisy_copies(flat_inputs, requests, draws=draws, colour=colour)
        self.picks = PickedVotes(requests)
        self._classifier = classifier
        self._noisy = np.empty((draws * samples_per_draw(requests[0].kind), *inputs.shape[1:]), dtype=np.float32)
        self.flat_noisy = self._noisy.reshape(len(self._noisy), -1)

    def fill_noisy(self, slices: Sequence[Slice]) -> int:
        """Write a noisy copy for every draw of a batch into the first rows of the buffer; return their number."""
        self.copies.write(slices, self.flat_noisy)
        return slices[-1].last_row

    def votes(self, rows: int) -> IntArray:
        """Checked votes for the first rows of the buffer."""
        return check_votes(self._classifier.classify(self._noisy[:rows]), rows=rows, columns=self.columns)

    def votes_and_scores(self, rows: int) -> tuple[IntArray, FloatArray]:
        """Checked votes for the first rows of the buffer, and their scores."""
        votes, scores = require_scores(self._classifier).votes_and_scores(self._noisy[:rows])
        return check_votes(votes, rows=rows, columns=self.columns), scores


def check_votes(votes: IntArray, *, rows: int, columns: int) -> IntArray:
    """Return the votes; raise a ModelError unless there is one for each row, and all are in 0 … columns-1."""
    if votes.shape != (rows,):
        raise ModelError(f"the model returned votes of shape {votes.shape} for {rows} inputs; expected one class each")
    if rows and not 0 <= int(votes.min()) <= int(votes.max()) < columns:
        raise ModelError(
            f"the model voted for classes {int(votes.min())} … {int(votes.max())}; it has {columns - 1} classes"
        )
    return votes


class _HostCounter:
    """The part that all counters share. shapes: of the sums of one request."""

    def __init__(self, bench: _HostBench, *shapes: tuple[int, ...]) -> None:
        self._bench = bench
        self._sums = tuple(np.zeros((len(bench.requests), *shape), dtype=np.int64) for shape in shapes)

    def sums(self) -> tuple[IntArray, ...]:
        return self._sums

    def picked_votes(self) -> list[PickedVote]:
        return self._bench.picks.found


class _HostVotes(_HostCounter):
    """Plain votes."""

    def __init__(self, bench: _HostBench) -> None:
        super().__init__(bench, (bench.columns,))

    def add(self, slices: Sequence[Slice]) -> None:
        bench, (counts,) = self._bench, self._sums
        votes = bench.votes(bench.fill_noisy(slices))
        bench.picks.note(slices, votes)
        for piece in slices:
            counts[piece.request] += _count(votes[rows_of(piece)], bench.columns)


class _HostScores(_HostCounter):
    """Votes and scores."""

    def __init__(self, bench: _HostBench) -> None:
        super().__init__(bench)
        self._scores = ScoreSums(bench.requests, num_classes=bench.columns - 1)

    def add(self, slices: Sequence[Slice]) -> None:
        bench = self._bench
        votes, scores = bench.votes_and_scores(bench.fill_noisy(slices))
        self._scores.add(slices, votes, scores)
        bench.picks.note(slices, votes, scores=scores)

    def sums(self) -> tuple[IntArray, ...]:
        return self._scores.sums()


class _HostPairs(_HostCounter):
    """Votes at x+ε in the first half of a batch, votes at x-ε in the second."""

    def __init__(self, bench: _HostBench) -> None:
        super().__init__(bench, (3, bench.columns))

    def add(self, slices: Sequence[Slice]) -> None:
        bench, draws, (pairs,) = self._bench, slices[-1].last_row, self._sums
        copies = of_added_noise(bench.copies)
        copies.prepare(slices)
        for piece in slices:
            first, second = bench.flat_noisy[:draws], bench.flat_noisy[draws:]
            copies.pair(piece, first[rows_of(piece)], second[rows_of(piece)])
        votes = bench.votes(2 * draws)
        for half in range(2):
            bench.picks.note(slices, votes[half * draws :], half=half)
        for piece in slices:
            cast_first, cast_second = votes[:draws][rows_of(piece)], votes[draws:][rows_of(piece)]
            pairs[piece.request] += _count_pairs(cast_first, cast_second, bench.columns)


class _HostGradients(_HostCounter):
    """Votes, and sums of the noise they were cast at, by group of classes.

    The noise is rounded to multiples of GRADIENT_UNIT before it is added. All sums below are of whole numbers below
    2^53, which float64 holds exactly, so the order of addition does not matter. |z| < 9.3 and at most 8·10^11 samples
    keep `sums` below 2^63. So are `products`, whose sum over k pairs is within a few sqrt(k d) of k ‖σ∇p‖² ≤ k/2π.
    """

    def __init__(self, bench: _HostBench) -> None:
        groups = max(max(request.group) for request in bench.requests) + 1
        super().__init__(bench, (bench.columns,), (2, groups, bench.size), (groups,))
        self._rows_at_once = max(2, _CHUNK // bench.size // 2 * 2)
        self._groups = [np.array(request.group) for request in bench.requests]

    def add(self, slices: Sequence[Slice]) -> None:
        bench, counts = self._bench, self._sums[0]
        copies = of_added_noise(bench.copies)
        copies.prepare(slices)
        for piece in slices:
            copies.add_to_input(piece, bench.flat_noisy[rows_of(piece)])
        votes = bench.votes(slices[-1].last_row)
        bench.picks.note(slices, votes)
        for piece in slices:
            cast = votes[rows_of(piece)]
            counts[piece.request] += _count(cast, bench.columns)
            group, normals = self._groups[piece.request][cast], copies.unit(piece)
            for at in range(0, len(cast), self._rows_at_once):
                some = slice(at, at + self._rows_at_once)
                self._add_noise(piece.request, normals[some].astype(np.float64, copy=False), group[some])

    def _add_noise(self, request: int, normals: FloatArray, group: IntArray) -> None:
        """normals: (rows, size) float64, pairs in adjacent rows; group: (rows,)."""
        _, sums, all_products = self._sums
        first, second = normals[0::2], normals[1::2]
        products = np.rint((first * second).sum(axis=1) / GRADIENT_UNIT)
        together = group[0::2] == group[1::2]
        groups = all_products.shape[1]
        all_products[request] += np.bincount(
            group[0::2][together], weights=products[together], minlength=groups
        ).astype(np.int64)
        units = np.rint(normals / GRADIENT_UNIT)
        member = (group[:, None] == np.arange(groups)).astype(np.float64)
        for half in range(2):
            sums[request, half] += (member[half::2].T @ units[half::2]).astype(np.int64)


def _count(votes: IntArray, columns: int) -> IntArray:
    return np.bincount(votes, minlength=columns)


def _count_pairs(first: IntArray, second: IntArray, columns: int) -> IntArray:
    """(3, columns): pairs with both votes on a class, with the first only, with the second only."""
    same = first == second
    return np.stack([_count(first[same], columns), _count(first[~same], columns), _count(second[~same], columns)])
