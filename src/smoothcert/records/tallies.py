"""Tallies: what is counted while sampling. Sums of disjoint shards, so two of them merge with `+`.

A tally checks itself when it is made, and holds whole numbers only: no order of adding can change it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError

FloatArray = NDArray[np.float64]
"""Statistics and radii: always float64."""
InputArray = NDArray[np.float32]
"""What a base classifier sees: always float32."""
IntArray = NDArray[np.int64]

MOST_SAMPLES = 10**12
"""More samples of one input than anybody will draw; counts up to here are exact in float64."""


class Stage(enum.IntEnum):
    """What a sample is drawn for. The value is part of the random counter: stages never share a draw."""

    SELECTION = 0
    ESTIMATION = 1
    PREDICTION = 2
    THINNING = 3
    ORDERING = 4
    SEARCH = 5


@dataclass(frozen=True, slots=True)
class StreamId:
    """Names one endless stream of random draws: the seed of the run, the input, and what the draws are for.

    Sample number `counter` of a stream is a pure function of (seed, index, stage, counter).
    """

    seed: int
    index: int
    stage: Stage

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**128:
            raise InputError(f"seed {self.seed} is outside 0 … 2^128-1")
        if not 0 <= self.index < 2**32:
            raise InputError(f"input index {self.index} is outside 0 … 2^32-1")


class TallyKind(enum.StrEnum):
    """What is sampled around an input; the value is the word stored with a tally."""

    VOTES = "votes"
    PAIRS = "pairs"
    GRADIENTS = "gradients"
    SCORES = "scores"


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Votes counted over the half-open counter range(s) of one stream at one noise level.

    counts: (num_classes,) int64. `invalid` counts samples for which the model gave no finite answer; they belong to no
    class and can never help one. Two tallies of disjoint ranges of the same stream merge with `+`.
    """

    stream: StreamId
    sigma: float
    counts: IntArray
    invalid: int
    ranges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", _read_only(self.counts))
        object.__setattr__(self, "ranges", _coalesce(self.ranges))
        _check_counts(self.counts, self.invalid, n=self.n)
        _check_sigma(self.sigma)

    @property
    def kind(self) -> TallyKind:
        return TallyKind.VOTES

    @property
    def n(self) -> int:
        """Number of samples, valid or not."""
        return _length(self.ranges)

    @property
    def num_classes(self) -> int:
        return int(self.counts.size)

    def independent_votes(self) -> Tally:
        """Votes of independent samples: all of them."""
        return self

    def largest_other(self, label: int) -> int:
        """Largest count among everything that is not `label`, the invalid samples counting as a class of their own."""
        others = np.delete(self.counts, label)
        return max(int(others.max()), self.invalid)

    def __add__(self, other: AnyTally) -> Tally:
        return _summed([self, other]) if isinstance(other, Tally) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return _same(self, other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class PairTally:
    """Votes at x+ε and x-ε, the same ε in both; `ranges` counts the draws of ε.

    Three counts per class, (num_classes + 1,) int64 each, the last place for samples without a finite answer:
    both votes fell on it; only the vote at x+ε did; only the vote at x-ε did.
    """

    stream: StreamId
    sigma: float
    both: IntArray
    first_only: IntArray
    second_only: IntArray
    ranges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for name in ("both", "first_only", "second_only"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        object.__setattr__(self, "ranges", _coalesce(self.ranges))
        _check_sigma(self.sigma)
        for only in (self.first_only, self.second_only):
            if only.shape != self.both.shape or only.ndim != 1 or not only.size:
                raise InputError(f"a pair tally cannot hold counts of shapes {self.both.shape} and {only.shape}")
            votes = self.both + only
            _check_counts(votes[:-1], int(votes[-1]), n=self.pairs)
        if min(self.both.min(), self.first_only.min(), self.second_only.min()) < 0:
            raise InputError("a tally cannot hold negative counts")
        differing = self.pairs - int(self.both.sum())
        if (self.first_only + self.second_only > differing).any():
            raise InputError(f"of {differing} pairs with two different votes, no class can have more than {differing}")

    @property
    def kind(self) -> TallyKind:
        return TallyKind.PAIRS

    @property
    def pairs(self) -> int:
        return _length(self.ranges)

    @property
    def n(self) -> int:
        """Number of samples: two for every draw."""
        return 2 * self.pairs

    @property
    def num_classes(self) -> int:
        return int(self.both.size) - 1

    def one_sided(self, label: int) -> int:
        """Pairs of which exactly one vote fell on `label`."""
        return int(self.first_only[label] + self.second_only[label])

    def neither(self, label: int) -> int:
        """Pairs of which no vote fell on `label`."""
        return self.pairs - int(self.both[label]) - self.one_sided(label)

    def independent_votes(self) -> Tally:
        """Votes of independent samples: those at x+ε only, because the two of a pair depend on each other."""
        votes = self.both + self.first_only
        return Tally(
            stream=self.stream, sigma=self.sigma, counts=votes[:-1], invalid=int(votes[-1]), ranges=self.ranges
        )

    def __add__(self, other: AnyTally) -> PairTally:
        return _summed([self, other]) if isinstance(other, PairTally) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return _same(self, other)

    __hash__ = None  # type: ignore[assignment]


GRADIENT_UNIT = 2.0**-20
"""`GradientTally.sums` and `.products` are whole multiples of this: adding them is exact, in any order."""


@dataclass(frozen=True, slots=True, eq=False)
class GradientTally:
    """Votes at x+σz together with sums of the standard normal z they were cast at, from which the gradient is bounded.

    Samples 2j and 2j+1 form pair j; both are independent. Classes are put into groups, so that memory is
    groups × dimension whatever the number of samples.

    counts, invalid: votes of all samples, as in `Tally`. group: (num_classes + 1,) the group of each class, the last
    place for samples without a finite answer; groups are 0 … g-1. sums: (2, g, dimension) int64: over the first
    (second) samples of the pairs whose vote fell into the group, the sum of z, each coordinate rounded to a multiple
    of GRADIENT_UNIT. products: (g,) int64: over the pairs with both votes in the group, the sum of z·z', each rounded
    to a multiple of GRADIENT_UNIT.
    """

    stream: StreamId
    sigma: float
    counts: IntArray
    invalid: int
    group: IntArray
    sums: IntArray
    products: IntArray
    ranges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for name in ("counts", "group", "sums", "products"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        object.__setattr__(self, "ranges", _coalesce(self.ranges))
        _check_counts(self.counts, self.invalid, n=self.n)
        _check_sigma(self.sigma)
        if any(bound % 2 for span in self.ranges for bound in span):
            raise InputError("a gradient tally counts whole pairs: its ranges must begin and end at even counters")
        groups = self.products.size
        if (
            self.group.shape != (self.num_classes + 1,)
            or self.products.ndim != 1
            or self.sums.ndim != 3
            or self.sums.shape[2] < 1
            or self.sums.shape[:2] != (2, groups)
            or set(self.group.tolist()) != set(range(groups))
        ):
            raise InputError(
                f"a gradient tally of {self.num_classes} classes cannot hold groups {self.group.tolist()}, sums of "
                f"shape {self.sums.shape} and products of shape {self.products.shape}"
            )

    @property
    def kind(self) -> TallyKind:
        return TallyKind.GRADIENTS

    @property
    def n(self) -> int:
        """Number of samples, valid or not."""
        return _length(self.ranges)

    @property
    def num_classes(self) -> int:
        return int(self.counts.size)

    @property
    def dimension(self) -> int:
        return int(self.sums.shape[2])

    def independent_votes(self) -> Tally:
        """Votes of independent samples: all of them."""
        return Tally(stream=self.stream, sigma=self.sigma, counts=self.counts, invalid=self.invalid, ranges=self.ranges)

    def own_group(self, label: int) -> int:
        """The group that holds this class and nothing else (num_classes stands for samples without a finite answer)."""
        group = int(self.group[label])
        if int((self.group == group).sum()) != 1:
            raise InputError(
                f"the gradient of class {label} cannot be told from this tally: its votes were counted together with "
                "those of other classes"
            )
        return group

    def __add__(self, other: AnyTally) -> GradientTally:
        return _summed([self, other]) if isinstance(other, GradientTally) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return _same(self, other)

    __hash__ = None  # type: ignore[assignment]


_SCORE_INTERVALS = 2**14
_SCORE_EDGES: FloatArray = np.sin(0.5 * math.pi * np.arange(_SCORE_INTERVALS + 1) / _SCORE_INTERVALS) ** 2
_SCORE_EDGES[0], _SCORE_EDGES[-1] = 0.0, 1.0

SCORE_CELLS = _SCORE_INTERVALS + 2
"""Cells a score in [0, 1] may fall into: exactly 0; 2^14 intervals, equal in θ where the score is sin²θ and so finest
near 0 and 1; exactly 1."""
SCORE_FLOOR: FloatArray = np.concatenate([[0.0], _SCORE_EDGES[:-1], [1.0]])
SCORE_CEILING: FloatArray = np.concatenate([[0.0], _SCORE_EDGES[1:], [1.0]])
"""No score of cell i is below SCORE_FLOOR[i] or above SCORE_CEILING[i]."""
SCORE_SLACK = 1e-12
"""By how much the scores of a sample may add up to more than 1: what is lost by rounding when they are computed."""
for _values in (_SCORE_EDGES, SCORE_FLOOR, SCORE_CEILING):
    _values.setflags(write=False)


def score_cell(scores: FloatArray) -> IntArray:
    """The cell of each score in [0, 1], of any shape: a comparison with fixed numbers, so nothing is rounded."""
    return np.where(scores > 0.0, np.searchsorted(_SCORE_EDGES, scores, side="right"), 0)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTally:
    """Votes, and a histogram of the scores in [0, 1] behind them: of one class, and of its strongest opponent.

    counts, invalid: votes of all samples, as in `Tally`. label: the class that was chosen before these samples were
    drawn. Every sample with a finite answer has two scores: that of `label`, and the largest among all other classes.
    The mean of the latter is at least the mean score of each other class. The samples are independent, so their order
    says nothing and counting them by cell keeps all they say, but for the width of a cell.

    cells: (k,) int64, increasing: the cells that are not empty; cell c of the score of the label is number c, cell c of
    the score of the opponent is number SCORE_CELLS + c. hits: (k,) int64: how many scores fell there.
    """

    stream: StreamId
    sigma: float
    counts: IntArray
    invalid: int
    label: int
    cells: IntArray
    hits: IntArray
    ranges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for name in ("counts", "cells", "hits"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        object.__setattr__(self, "ranges", _coalesce(self.ranges))
        _check_counts(self.counts, self.invalid, n=self.n)
        _check_sigma(self.sigma)
        if not (isinstance(self.label, int) and 0 <= self.label < self.num_classes):
            raise InputError(f"a score tally of {self.num_classes} classes cannot speak of class {self.label!r}")
        if self.cells.ndim != 1 or self.cells.shape != self.hits.shape:
            raise InputError(f"a score tally cannot hold cells of shape {self.cells.shape}, hits {self.hits.shape}")
        if (np.diff(self.cells) <= 0).any() or ((self.cells < 0) | (self.cells >= 2 * SCORE_CELLS)).any():
            raise InputError(f"the cells of a score tally must increase within 0 … {2 * SCORE_CELLS - 1}")
        valid = self.n - self.invalid
        if ((self.hits < 1) | (self.hits > valid)).any():
            raise InputError(f"a cell of a score tally with {valid} scores holds 1 … {valid} of them")
        for scored in (self.top_scores(), self.other_scores()):
            if int(scored[1].sum()) != valid:
                raise InputError(f"a score tally of {valid} valid samples cannot hold {int(scored[1].sum())} scores")

    @property
    def kind(self) -> TallyKind:
        return TallyKind.SCORES

    @property
    def n(self) -> int:
        """Number of samples, valid or not."""
        return _length(self.ranges)

    @property
    def num_classes(self) -> int:
        return int(self.counts.size)

    def independent_votes(self) -> Tally:
        """Votes of independent samples: all of them."""
        return Tally(stream=self.stream, sigma=self.sigma, counts=self.counts, invalid=self.invalid, ranges=self.ranges)

    def top_scores(self) -> tuple[IntArray, IntArray]:
        """Cells of the scores of the label, in 0 … SCORE_CELLS-1, and how many fell into each."""
        own = self.cells < SCORE_CELLS
        return self.cells[own], self.hits[own]

    def other_scores(self) -> tuple[IntArray, IntArray]:
        """Cells of the largest scores of any other class, and how many fell into each."""
        other = self.cells >= SCORE_CELLS
        return self.cells[other] - SCORE_CELLS, self.hits[other]

    def __add__(self, other: AnyTally) -> ScoreTally:
        return _summed([self, other]) if isinstance(other, ScoreTally) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return _same(self, other)

    __hash__ = None  # type: ignore[assignment]


AnyTally = Tally | PairTally | GradientTally | ScoreTally

SomeTally = TypeVar("SomeTally", bound=AnyTally)


@overload
def merge(tallies: Iterable[Tally]) -> Tally: ...


@overload
def merge(tallies: Iterable[AnyTally]) -> AnyTally: ...


def merge(tallies: Iterable[AnyTally]) -> AnyTally:
    """Sum of one or more tallies of the same stream and kind."""
    parts = list(tallies)
    if not parts:
        raise InputError("there is nothing to merge: no tally was given")
    other = next((part for part in parts if part.kind is not parts[0].kind), None)
    if other is not None:
        raise InputError(f"a tally of {parts[0].kind} and a tally of {other.kind} do not merge")
    return _summed(parts)


_SUMMED = {
    TallyKind.VOTES: ("counts", "invalid"),
    TallyKind.PAIRS: ("both", "first_only", "second_only"),
    TallyKind.GRADIENTS: ("counts", "invalid", "sums", "products"),
    TallyKind.SCORES: ("counts", "invalid"),
}


def _summed(parts: Sequence[SomeTally]) -> SomeTally:
    """One tally in place of several of the same kind, checked once."""
    first, *others = parts
    if not others:
        return first
    for other in others:
        _check_mergeable(first, other)
    sums: dict[str, Any] = {
        name: sum((getattr(part, name) for part in others), getattr(first, name)) for name in _SUMMED[first.kind]
    }
    sums |= _summed_cells([part for part in parts if isinstance(part, ScoreTally)])
    return replace(first, **sums, ranges=tuple(span for part in parts for span in part.ranges))


def _summed_cells(parts: Sequence[ScoreTally]) -> dict[str, IntArray]:
    """The histogram of all of them, where there are any."""
    if not parts:
        return {}
    dense: IntArray = np.zeros(2 * SCORE_CELLS, dtype=np.int64)
    for part in parts:
        dense[part.cells] += part.hits
    cells = np.flatnonzero(dense)
    return {"cells": cells, "hits": dense[cells]}


def _read_only(values: IntArray) -> IntArray:
    given = np.asarray(values)
    if given.size and given.dtype.kind not in "iu":
        raise InputError(f"a tally holds whole numbers of at most 64 bits, not {given.dtype}")
    array = given.astype(np.int64)
    array.setflags(write=False)
    return array


def _length(ranges: tuple[tuple[int, int], ...]) -> int:
    return sum(stop - start for start, stop in ranges)


def _check_counts(counts: IntArray, invalid: int, *, n: int) -> None:
    if counts.ndim != 1 or counts.size < 2:
        raise InputError(f"a tally needs counts of at least two classes, not shape {counts.shape}")
    if invalid < 0 or counts.min() < 0:
        raise InputError("a tally cannot hold negative counts")
    if counts.max() > n or int(counts.sum()) + invalid != n:
        raise InputError(f"a tally of {n} samples cannot hold {int(counts.sum())} votes and {invalid} invalid ones")


def _check_sigma(sigma: float) -> None:
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"a tally needs a positive finite sigma, not {sigma}")


def _check_mergeable(one: AnyTally, other: AnyTally) -> None:
    if (one.stream, one.sigma, one.num_classes) != (other.stream, other.sigma, other.num_classes):
        raise InputError(
            f"tallies of different streams do not merge: {one.stream}, sigma {one.sigma}, "
            f"{one.num_classes} classes and {other.stream}, sigma {other.sigma}, {other.num_classes} classes"
        )
    if isinstance(one, ScoreTally) and isinstance(other, ScoreTally) and one.label != other.label:
        raise InputError(f"score tallies of class {one.label} and of class {other.label} do not merge")
    if not (isinstance(one, GradientTally) and isinstance(other, GradientTally)):
        return
    if not np.array_equal(one.group, other.group) or one.dimension != other.dimension:
        raise InputError("gradient tallies with other groups of classes or of another dimension do not merge")


def _same(one: AnyTally, other: object) -> bool:
    """Whether two tallies are of one kind and equal in every field; == of arrays would give an array."""
    return type(one) is type(other) and all(
        np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
        for mine, theirs in ((getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    )


def _coalesce(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Sorted, touching ranges joined; overlapping ranges are refused because a sample would count twice."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if not 0 <= start < stop:
            raise InputError(f"counter range [{start}, {stop}) is empty or negative")
        if joined and start < joined[-1][1]:
            raise InputError(f"counter ranges overlap at {start}: the same samples would be counted twice")
        if joined and start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
