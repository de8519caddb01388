"""Counting in host memory: plain votes, votes at x+ε and x-ε, votes with the noise they were cast at.

A counter belongs to one worker and holds whole numbers only, so that the sums of several workers do not depend on
who took which batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from smoothcert.errors import ModelError
from smoothcert.models.base import BaseClassifier
from smoothcert.noise import add_gaussian, noise_level
from smoothcert.records import AnyTally, GradientTally, InputArray, IntArray, PairTally, Tally, TallyKind
from smoothcert.sampling.plan import Request, Slice
from smoothcert.tallies import GRADIENT_UNIT


class Counter(Protocol):
    """What one worker has counted."""

    def add(self, slices: Sequence[Slice], /) -> None:
        """Draw, classify and count one batch."""

    def sums(self) -> tuple[IntArray, ...]:
        """Arrays whose first axis is the request; those of several workers are added up.

        VOTES: (requests, num_classes + 1), the last column for samples without a finite answer. PAIRS: (requests, 3,
        num_classes + 1), both votes, first only, second only. GRADIENTS: votes as above; (requests, 2, groups, size);
        (requests, groups).
        """


def host_counter(classifier: BaseClassifier, inputs: InputArray, requests: Sequence[Request], *, rows: int) -> Counter:
    """The counter for the kind these requests ask for. rows: the most draws one batch will hold."""
    kinds: dict[TallyKind, Callable[..., Counter]] = {
        TallyKind.VOTES: _HostVotes,
        TallyKind.PAIRS: _HostPairs,
        TallyKind.GRADIENTS: _HostGradients,
    }
    return kinds[requests[0].kind](classifier, inputs, requests, rows=rows)


def tallies_of(requests: Sequence[Request], sums: Sequence[tuple[IntArray, ...]]) -> list[AnyTally]:
    """One tally per request from what the workers counted."""
    totals = [np.sum(arrays, axis=0) for arrays in zip(*sums, strict=True)]
    build: dict[TallyKind, Callable[..., AnyTally]] = {
        TallyKind.VOTES: _vote_tally,
        TallyKind.PAIRS: _pair_tally,
        TallyKind.GRADIENTS: _gradient_tally,
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


class _HostVotes:
    """Plain votes; the buffers are made once and used for every batch."""

    def __init__(
        self, classifier: BaseClassifier, inputs: InputArray, requests: Sequence[Request], *, rows: int
    ) -> None:
        self._classifier = classifier
        self._requests = requests
        self._flat_inputs = inputs.reshape(len(inputs), -1)
        self._noisy = np.empty((rows, *inputs.shape[1:]), dtype=np.float32)
        self._flat_noisy = self._noisy.reshape(rows, -1)
        self._votes = np.zeros((len(requests), classifier.num_classes + 1), dtype=np.int64)

    def add(self, slices: Sequence[Slice]) -> None:
        for piece in slices:
            request = self._requests[piece.request]
            add_gaussian(
                self._flat_noisy[piece.first_row : piece.last_row],
                self._flat_inputs[request.row],
                request.stream,
                sigma=request.sigma,
                start=piece.counter,
            )
        votes = classify(self._classifier, self._noisy[: slices[-1].last_row])
        for piece in slices:
            self._votes[piece.request] += _count(votes[piece.first_row : piece.last_row], self._votes.shape[1])

    def sums(self) -> tuple[IntArray, ...]:
        return (self._votes,)


class _HostPairs:
    """Votes at x+ε in the first half of a batch, votes at x-ε in the second."""

    def __init__(
        self, classifier: BaseClassifier, inputs: InputArray, requests: Sequence[Request], *, rows: int
    ) -> None:
        self._classifier = classifier
        self._requests = requests
        self._flat_inputs = inputs.reshape(len(inputs), -1)
        self._normals = np.empty((rows, self._flat_inputs.shape[1]), dtype=np.float32)
        self._noisy = np.empty((2 * rows, *inputs.shape[1:]), dtype=np.float32)
        self._flat_noisy = self._noisy.reshape(2 * rows, -1)
        self._pairs = np.zeros((len(requests), 3, classifier.num_classes + 1), dtype=np.int64)

    def add(self, slices: Sequence[Slice]) -> None:
        draws = slices[-1].last_row
        fill_normals(self._normals, self._requests, slices)
        for piece in slices:
            request = self._requests[piece.request]
            x = self._flat_inputs[request.row]
            noise = self._normals[piece.first_row : piece.last_row]
            noise *= noise_level(request.sigma)
            np.add(x, noise, out=self._flat_noisy[piece.first_row : piece.last_row])
            np.subtract(x, noise, out=self._flat_noisy[draws + piece.first_row : draws + piece.last_row])
        votes = classify(self._classifier, self._noisy[: 2 * draws])
        for piece in slices:
            rows = slice(piece.first_row, piece.last_row)
            self._pairs[piece.request] += _count_pairs(votes[:draws][rows], votes[draws:][rows], self._pairs.shape[2])

    def sums(self) -> tuple[IntArray, ...]:
        return (self._pairs,)


class _HostGradients:
    """Votes, and sums of the noise they were cast at, by group of classes.

    The noise is rounded to multiples of GRADIENT_UNIT before it is added up. All sums below are of whole numbers below
    2^53, which float64 holds exactly, so no order of adding can change them. |z| < 6.7 and at most 10^12 samples keep
    `sums` below 2^63; `products` could only leave that range if the average of |z·z'| over 10^10 pairs were above 800,
    and it is below the square root of the dimension.
    """

    def __init__(
        self, classifier: BaseClassifier, inputs: InputArray, requests: Sequence[Request], *, rows: int
    ) -> None:
        self._classifier = classifier
        self._requests = requests
        self._flat_inputs = inputs.reshape(len(inputs), -1)
        size = self._flat_inputs.shape[1]
        self._normals = np.empty((rows, size), dtype=np.float32)
        self._noisy = np.empty((rows, *inputs.shape[1:]), dtype=np.float32)
        self._flat_noisy = self._noisy.reshape(rows, -1)
        groups = max(max(request.group) for request in requests) + 1
        self._groups = [np.array(request.group) for request in requests]
        self._votes = np.zeros((len(requests), classifier.num_classes + 1), dtype=np.int64)
        self._sums = np.zeros((len(requests), 2, groups, size), dtype=np.int64)
        self._products = np.zeros((len(requests), groups), dtype=np.int64)

    def add(self, slices: Sequence[Slice]) -> None:
        fill_normals(self._normals, self._requests, slices)
        for piece in slices:
            request = self._requests[piece.request]
            rows = slice(piece.first_row, piece.last_row)
            np.multiply(self._normals[rows], noise_level(request.sigma), out=self._flat_noisy[rows])
            self._flat_noisy[rows] += self._flat_inputs[request.row]
        votes = classify(self._classifier, self._noisy[: slices[-1].last_row])
        for piece in slices:
            rows = slice(piece.first_row, piece.last_row)
            self._votes[piece.request] += _count(votes[rows], self._votes.shape[1])
            self._add_noise(
                piece.request, self._normals[rows].astype(np.float64), self._groups[piece.request][votes[rows]]
            )

    def _add_noise(self, request: int, normals: np.ndarray, group: IntArray) -> None:
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


def fill_normals(out: InputArray, requests: Sequence[Request], slices: Sequence[Slice]) -> None:
    """The standard normals of every draw of a batch. out: (rows, size)."""
    origin = np.zeros(out.shape[1], dtype=np.float32)
    for piece in slices:
        stream = requests[piece.request].stream
        add_gaussian(out[piece.first_row : piece.last_row], origin, stream, sigma=1.0, start=piece.counter)


def classify(classifier: BaseClassifier, batch: InputArray) -> IntArray:
    """The votes, if they are what a base classifier must return."""
    votes = classifier.classify(batch)
    expected, num_classes = len(batch), classifier.num_classes
    if votes.shape != (expected,):
        raise ModelError(
            f"the model returned votes of shape {votes.shape} for {expected} inputs; one class each was expected"
        )
    if expected and not 0 <= int(votes.min()) <= int(votes.max()) <= num_classes:
        raise ModelError(
            f"the model voted for classes {int(votes.min())} … {int(votes.max())}; {num_classes} classes were announced"
        )
    return votes


def _count(votes: IntArray, columns: int) -> IntArray:
    return np.bincount(votes, minlength=columns)


def _count_pairs(first: IntArray, second: IntArray, columns: int) -> IntArray:
    """(3, columns): pairs with both votes on a class, with the first only, with the second only."""
    same = first == second
    return np.stack([_count(first[same], columns), _count(first[~same], columns), _count(second[~same], columns)])
