"""Counting in host memory: plain votes, votes at x+ε and x-ε, votes with the noise they were cast at or with scores.

A counter belongs to one worker and holds whole numbers only, so that the sums of several workers do not depend on
who took which batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.scores import require_scores
from smoothcert.records import (
    AnyTally,
    FloatArray,
    GradientTally,
    InputArray,
    IntArray,
    PairTally,
    Tally,
    TallyKind,
)
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.sampling.noisy_copies import Colour, noisy_copies, rows_of
from smoothcert.sampling.picked import PickedVote, PickedVotes
from smoothcert.sampling.plan import Request, Slice, samples_per_draw
from smoothcert.sampling.score_sums import ScoreSums, score_tally

_CHUNK = 1 << 17
"""Coordinates of noise worked on at once in float64: what stays in a core's cache."""


class Counter(Protocol):
    """What one worker has counted."""

    def add(self, slices: Sequence[Slice], /) -> None:
        """Draw, classify and count one batch."""

    def sums(self) -> tuple[IntArray, ...]:
        """Arrays whose first axis is the request; those of several workers are added up.

        VOTES: (requests, num_classes + 1), the last column for samples without a finite answer. PAIRS: (requests, 3,
        num_classes + 1), both votes, first only, second only. GRADIENTS: votes as above; (requests, 2, groups, size);
        (requests, groups). SCORES: votes as above; (requests, 2 * SCORE_CELLS).
        """

    def picked(self) -> list[PickedVote]:
        """The votes of the copies that the requests picked."""


def host_counter(
    classifier: BaseClassifier,
    inputs: InputArray,
    requests: Sequence[Request],
    *,
    draws: int,
    colour: Colour | None = None,
) -> Counter:
    """The counter for the kind these requests ask for. draws: the most that one batch will hold.

    colour: the noise of level 1 is what this makes of standard normals, instead of these themselves. Gradients mean
    nothing then.
    """
    kind = requests[0].kind
    bench = _Bench(classifier, inputs, requests, draws=draws, copies=samples_per_draw(kind), colour=colour)
    if kind is TallyKind.VOTES:
        return _HostVotes(bench)
    if kind is TallyKind.SCORES:
        return _HostScores(bench)
    if kind is TallyKind.PAIRS:
        return _HostPairs(bench)
    return _HostGradients(bench)


def tallies_of(requests: Sequence[Request], sums: Sequence[tuple[IntArray, ...]]) -> list[AnyTally]:
    """One tally per request from what the workers counted."""
    totals = [np.sum(arrays, axis=0) for arrays in zip(*sums, strict=True)]
    build: dict[TallyKind, Callable[..., AnyTally]] = {
        TallyKind.VOTES: _vote_tally,
        TallyKind.PAIRS: _pair_tally,
        TallyKind.GRADIENTS: _gradient_tally,
        TallyKind.SCORES: score_tally,
    }
    return [build[request.kind](request, *(total[i] for total in totals)) for i, request in enumerate(requests)]


def _vote_tally(request: Request, votes: IntArray) -> Tally:
    return Tally(
        stream=request.stream,
        sigma=request.sigma,
        counts=votes[:-1],
        invalid=int(votes[-1]),
        ranges=((request.start, request.stop),),
    )


def _pair_tally(request: Request, pairs: IntArray) -> PairTally:
    both, first_only, second_only = pairs
    return PairTally(
        stream=request.stream,
        sigma=request.sigma,
        both=both,
        first_only=first_only,
        second_only=second_only,
        ranges=((request.start, request.stop),),
    )


def _gradient_tally(request: Request, votes: IntArray, sums: IntArray, products: IntArray) -> GradientTally:
    return GradientTally(
        stream=request.stream,
        sigma=request.sigma,
        counts=votes[:-1],
        invalid=int(votes[-1]),
        group=np.array(request.group),
        sums=sums,
        products=products,
        ranges=((request.start, request.stop),),
    )


class _Bench:
    """What all counters in host memory share: the model, the inputs, and a buffer of noisy copies used again and again.

    draws: the most that one batch will hold; each is used for `copies` noisy copies.
    """

    def __init__(
        self,
        classifier: BaseClassifier,
        inputs: InputArray,
        requests: Sequence[Request],
        *,
        draws: int,
        copies: int,
        colour: Colour | None,
    ) -> None:
        self.requests = requests
        self.columns = classifier.num_classes + 1
        self.flat_inputs = inputs.reshape(len(inputs), -1)
        self.size = self.flat_inputs.shape[1]
        self.copies = noisy_copies(self.flat_inputs, requests, draws=draws, colour=colour)
        self.picks = PickedVotes(requests)
        self._classifier = classifier
        self._noisy = np.empty((draws * copies, *inputs.shape[1:]), dtype=np.float32)
        self.flat_noisy = self._noisy.reshape(len(self._noisy), -1)

    def zeros(self, *shape: int) -> IntArray:
        """Sums, one row for each request."""
        return np.zeros((len(self.requests), *shape), dtype=np.int64)

    def fill_noisy(self, slices: Sequence[Slice]) -> int:
        """A noisy copy for every draw of a batch, in the first rows of the buffer. Returns how many."""
        self.copies.write(slices, self.flat_noisy)
        return slices[-1].last_row

    def votes(self, rows: int) -> IntArray:
        """Votes for the first rows of the buffer, if they are what a base classifier must return."""
        return checked_votes(self._classifier.classify(self._noisy[:rows]), rows=rows, columns=self.columns)

    def votes_and_scores(self, rows: int) -> tuple[IntArray, FloatArray]:
        """`votes`, and the scores behind them."""
        votes, scores = require_scores(self._classifier).votes_and_scores(self._noisy[:rows])
        return checked_votes(votes, rows=rows, columns=self.columns), scores


def checked_votes(votes: IntArray, *, rows: int, columns: int) -> IntArray:
    """The votes, if there is one for each row, and all are in 0 … columns-1."""
    if votes.shape != (rows,):
        raise ModelError(
            f"the model returned votes of shape {votes.shape} for {rows} inputs; one class each was expected"
        )
    if rows and not 0 <= int(votes.min()) <= int(votes.max()) < columns:
        raise ModelError(
            f"the model voted for classes {int(votes.min())} … {int(votes.max())}; {columns - 1} classes were announced"
        )
    return votes


class _HostVotes:
    """Plain votes."""

    def __init__(self, bench: _Bench) -> None:
        self._bench = bench
        self._votes = bench.zeros(bench.columns)

    def add(self, slices: Sequence[Slice]) -> None:
        bench = self._bench
        votes = bench.votes(bench.fill_noisy(slices))
        bench.picks.note(slices, votes)
        for piece in slices:
            self._votes[piece.request] += _count(votes[rows_of(piece)], bench.columns)

    def sums(self) -> tuple[IntArray, ...]:
        return (self._votes,)

    def picked(self) -> list[PickedVote]:
        return self._bench.picks.found


class _HostScores:
    """Votes and scores."""

    def __init__(self, bench: _Bench) -> None:
        self._bench = bench
        self._scores = ScoreSums(bench.requests, num_classes=bench.columns - 1)

    def add(self, slices: Sequence[Slice]) -> None:
        bench = self._bench
        votes, scores = bench.votes_and_scores(bench.fill_noisy(slices))
        self._scores.add(slices, votes, scores)
        bench.picks.note(slices, votes, scores=scores)

    def sums(self) -> tuple[IntArray, ...]:
        return self._scores.sums()

    def picked(self) -> list[PickedVote]:
        return self._bench.picks.found


class _HostPairs:
    """Votes at x+ε in the first half of a batch, votes at x-ε in the second."""

    def __init__(self, bench: _Bench) -> None:
        self._bench = bench
        self._pairs = bench.zeros(3, bench.columns)

    def add(self, slices: Sequence[Slice]) -> None:
        bench, draws = self._bench, slices[-1].last_row
        bench.copies.prepare(slices)
        for piece in slices:
            first, second = bench.flat_noisy[:draws], bench.flat_noisy[draws:]
            bench.copies.pair(piece, first[rows_of(piece)], second[rows_of(piece)])
        votes = bench.votes(2 * draws)
        for half in range(2):
            bench.picks.note(slices, votes[half * draws :], half=half)
        for piece in slices:
            cast_first, cast_second = votes[:draws][rows_of(piece)], votes[draws:][rows_of(piece)]
            self._pairs[piece.request] += _count_pairs(cast_first, cast_second, bench.columns)

    def sums(self) -> tuple[IntArray, ...]:
        return (self._pairs,)

    def picked(self) -> list[PickedVote]:
        return self._bench.picks.found


class _HostGradients:
    """Votes, and sums of the noise they were cast at, by group of classes.

    The noise is rounded to multiples of GRADIENT_UNIT before it is added up. All sums below are of whole numbers below
    2^53, which float64 holds exactly, so no order of adding can change them. |z| < 9.3 and at most 8·10^11 samples keep
    `sums` below 2^63. So are `products`, whose sum over k pairs is within a few sqrt(k d) of k ‖σ∇p‖² ≤ k/2π.
    """

    def __init__(self, bench: _Bench) -> None:
        self._bench = bench
        self._rows_at_once = max(2, _CHUNK // bench.size // 2 * 2)
        groups = max(max(request.group) for request in bench.requests) + 1
        self._groups = [np.array(request.group) for request in bench.requests]
        self._votes = bench.zeros(bench.columns)
        self._sums = bench.zeros(2, groups, bench.size)
        self._products = bench.zeros(groups)

    def add(self, slices: Sequence[Slice]) -> None:
        bench = self._bench
        bench.copies.prepare(slices)
        for piece in slices:
            bench.copies.add_to_input(piece, bench.flat_noisy[rows_of(piece)])
        votes = bench.votes(slices[-1].last_row)
        bench.picks.note(slices, votes)
        for piece in slices:
            cast = votes[rows_of(piece)]
            self._votes[piece.request] += _count(cast, bench.columns)
            group, normals = self._groups[piece.request][cast], bench.copies.unit(piece)
            for at in range(0, len(cast), self._rows_at_once):
                some = slice(at, at + self._rows_at_once)
                self._add_noise(piece.request, normals[some].astype(np.float64, copy=False), group[some])

    def _add_noise(self, request: int, normals: FloatArray, group: IntArray) -> None:
        """normals: (rows, size) float64, pairs in adjacent rows; group: (rows,)."""
        first, second = normals[0::2], normals[1::2]
        products = np.rint((first * second).sum(axis=1) / GRADIENT_UNIT)
        together = group[0::2] == group[1::2]
        groups = self._products.shape[1]
        self._products[request] += np.bincount(
            group[0::2][together], weights=products[together], minlength=groups
        ).astype(np.int64)
        units = np.rint(normals / GRADIENT_UNIT)
        member = (group[:, None] == np.arange(groups)).astype(np.float64)
        for half in range(2):
            self._sums[request, half] += (member[half::2].T @ units[half::2]).astype(np.int64)

    def sums(self) -> tuple[IntArray, ...]:
        return self._votes, self._sums, self._products

    def picked(self) -> list[PickedVote]:
        return self._bench.picks.found


def _count(votes: IntArray, columns: int) -> IntArray:
    return np.bincount(votes, minlength=columns)


def _count_pairs(first: IntArray, second: IntArray, columns: int) -> IntArray:
    """(3, columns): pairs with both votes on a class, with the first only, with the second only."""
    same = first == second
    return np.stack([_count(first[same], columns), _count(first[~same], columns), _count(second[~same], columns)])
