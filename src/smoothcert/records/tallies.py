"""Tallies: what is counted while sampling. Sums of disjoint shards, so two of them merge with `+`.

A tally checks itself when it is made, and holds whole numbers only: no order of adding can change it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, overload

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.records.score_cells import SCORE_CEILING as SCORE_CEILING
from smoothcert.records.score_cells import SCORE_CELLS as SCORE_CELLS
from smoothcert.records.score_cells import SCORE_FLOOR as SCORE_FLOOR
from smoothcert.records.score_cells import SCORE_SLACK as SCORE_SLACK
from smoothcert.records.score_cells import score_cell as score_cell

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


class TallyBase:
    """What all tallies share: a stream, a noise level, and the half-open ranges of draws they count.

    Two tallies of disjoint ranges of the same stream merge with `+`.
    """

    __slots__ = ()
    kind: ClassVar[TallyKind]
    arrays: ClassVar[tuple[str, ...]]
    """Fields that are int64 arrays; they are read-only."""
    additive: ClassVar[tuple[str, ...]]
    """Fields that are added when tallies merge."""

    stream: StreamId
    sigma: float
    ranges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for name in self.arrays:
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        object.__setattr__(self, "ranges", _coalesce(self.ranges))
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise InputError(f"a tally needs a positive finite sigma, not {self.sigma}")
        self.check()

    def check(self) -> None:
        """Refuse counts that do not add up."""

    @property
    def n(self) -> int:
        """Number of samples, valid or not."""
        return sum(stop - start for start, stop in self.ranges)

    @property
    def num_classes(self) -> int:
        raise NotImplementedError

    def check_mergeable(self, other: Self) -> None:
        if (self.stream, self.sigma, self.num_classes) != (other.stream, other.sigma, other.num_classes):
            raise InputError(
                f"tallies of different streams do not merge: {self.stream}, sigma {self.sigma}, "
                f"{self.num_classes} classes and {other.stream}, sigma {other.sigma}, {other.num_classes} classes"
            )

    def add_all(self, others: Sequence[Self]) -> Self:
        """The sum of this tally and others of the same kind, checked once."""
        if not others:
            return self
        for other in others:
            self.check_mergeable(other)
        sums: dict[str, Any] = {
            name: sum((getattr(part, name) for part in others), getattr(self, name)) for name in self.additive
        }
        ranges = tuple(span for part in (self, *others) for span in part.ranges)
        return replace(self, **sums, **self.add_cells(others), ranges=ranges)  # type: ignore[type-var]

    def add_cells(self, others: Sequence[Self]) -> dict[str, Any]:
        """Fields that are merged in another way than by adding."""
        return {}

    def __add__(self, other: Self) -> Self:
        return self.add_all([other]) if type(other) is type(self) else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Equal in every field; == of arrays would give an array."""
        if type(self) is not type(other):
            return False
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return all(
            np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
            for mine, theirs in ((getattr(self, name), getattr(other, name)) for name in names)
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class Tally(TallyBase):
    """Votes counted over the half-open counter range(s) of one stream at one noise level.

    counts: (num_classes,) int64. `invalid` counts samples for which the model gave no finite answer; they belong to no
    class and can never help one. Two tallies of disjoint ranges of the same stream merge with `+`.
    """

    kind: ClassVar[TallyKind] = TallyKind.VOTES
    arrays: ClassVar[tuple[str, ...]] = ("counts",)
    additive: ClassVar[tuple[str, ...]] = ("counts", "invalid")

    stream: StreamId
    sigma: float
    counts: IntArray
    invalid: int
    ranges: tuple[tuple[int, int], ...]

    def check(self) -> None:
        _check_counts(self.counts, self.invalid, n=self.n)

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


@dataclass(frozen=True, slots=True, eq=False)
class PairTally(TallyBase):
    """Votes at x+ε and x-ε, the same ε in both; `ranges` counts the draws of ε.

    Three counts per class, (num_classes + 1,) int64 each, the last place for samples without a finite answer:
    both votes fell on it; only the vote at x+ε did; only the vote at x-ε did.
    """

    kind: ClassVar[TallyKind] = TallyKind.PAIRS
    arrays: ClassVar[tuple[str, ...]] = ("both", "first_only", "second_only")
    additive: ClassVar[tuple[str, ...]] = ("both", "first_only", "second_only")

    stream: StreamId
    sigma: float
    both: IntArray
    first_only: IntArray
    second_only: IntArray
    ranges: tuple[tuple[int, int], ...]

    def check(self) -> None:
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
    def pairs(self) -> int:
        return sum(stop - start for start, stop in self.ranges)

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


GRADIENT_UNIT = 2.0**-20
"""`GradientTally.sums` and `.products` are whole multiples of this: adding them is exact, in any order."""


@dataclass(frozen=True, slots=True, eq=False)
class GradientTally(TallyBase):
    """Votes at x+σz together with sums of the standard normal z they were cast at, from which the gradient is bounded.

    Samples 2j and 2j+1 form pair j; both are independent. Classes are put into groups, so that memory is
    groups × dimension whatever the number of samples.

    counts, invalid: votes of all samples, as in `Tally`. group: (num_classes + 1,) the group of each class, the last
    place for samples without a finite answer; groups are 0 … g-1. sums: (2, g, dimension) int64: over the first
    (second) samples of the pairs whose vote fell into the group, the sum of z, each coordinate rounded to a multiple
    of GRADIENT_UNIT. products: (g,) int64: over the pairs with both votes in the group, the sum of z·z', each rounded
    to a multiple of GRADIENT_UNIT.
    """

    kind: ClassVar[TallyKind] = TallyKind.GRADIENTS
    arrays: ClassVar[tuple[str, ...]] = ("counts", "group", "sums", "products")
    additive: ClassVar[tuple[str, ...]] = ("counts", "invalid", "sums", "products")

    stream: StreamId
    sigma: float
    counts: IntArray
    invalid: int
    group: IntArray
    sums: IntArray
    products: IntArray
    ranges: tuple[tuple[int, int], ...]

    def check(self) -> None:
        _check_counts(self.counts, self.invalid, n=self.n)
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
    def num_classes(self) -> int:
        return int(self.counts.size)

    @property
    def dimension(self) -> int:
        return int(self.sums.shape[2])

    def independent_votes(self) -> Tally:
        """Votes of independent samples: all of them."""
        return Tally(stream=self.stream, sigma=self.sigma, counts=self.counts, invalid=self.invalid, ranges=self.ranges)

    def check_mergeable(self, other: Self) -> None:
        TallyBase.check_mergeable(self, other)
        if not np.array_equal(self.group, other.group) or self.dimension != other.dimension:
            raise InputError("gradient tallies with other groups of classes or of another dimension do not merge")

    def own_group(self, label: int) -> int:
        """The group that holds this class and nothing else (num_classes stands for samples without a finite answer)."""
        group = int(self.group[label])
        if int((self.group == group).sum()) != 1:
            raise InputError(
                f"the gradient of class {label} cannot be told from this tally: its votes were counted together with "
                "those of other classes"
            )
        return group


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTally(TallyBase):
    """Votes, and a histogram of the scores in [0, 1] behind them: of one class, and of its strongest opponent.

    counts, invalid: votes of all samples, as in `Tally`. label: the class that was chosen before these samples were
    drawn. Every sample with a finite answer has two scores: that of `label`, and the largest among all other classes.
    The mean of the latter is at least the mean score of each other class. The samples are independent, so their order
    says nothing and counting them by cell keeps all they say, but for the width of a cell.

    cells: (k,) int64, increasing: the cells that are not empty; cell c of the score of the label is number c, cell c of
    the score of the opponent is number SCORE_CELLS + c. hits: (k,) int64: how many scores fell there.
    """

    kind: ClassVar[TallyKind] = TallyKind.SCORES
    arrays: ClassVar[tuple[str, ...]] = ("counts", "cells", "hits")
    additive: ClassVar[tuple[str, ...]] = ("counts", "invalid")

    stream: StreamId
    sigma: float
    counts: IntArray
    invalid: int
    label: int
    cells: IntArray
    hits: IntArray
    ranges: tuple[tuple[int, int], ...]

    def check(self) -> None:
        _check_counts(self.counts, self.invalid, n=self.n)
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
    def num_classes(self) -> int:
        return int(self.counts.size)

    def independent_votes(self) -> Tally:
        """Votes of independent samples: all of them."""
        return Tally(stream=self.stream, sigma=self.sigma, counts=self.counts, invalid=self.invalid, ranges=self.ranges)

    def check_mergeable(self, other: Self) -> None:
        TallyBase.check_mergeable(self, other)
        if self.label != other.label:
            raise InputError(f"score tallies of class {self.label} and of class {other.label} do not merge")

    def add_cells(self, others: Sequence[Self]) -> dict[str, Any]:
        """The histogram of all samples."""
        dense: IntArray = np.zeros(2 * SCORE_CELLS, dtype=np.int64)
        for part in (self, *others):
            dense[part.cells] += part.hits
        cells = np.flatnonzero(dense)
        return {"cells": cells, "hits": dense[cells]}

    def top_scores(self) -> tuple[IntArray, IntArray]:
        """Cells of the scores of the label, in 0 … SCORE_CELLS-1, and how many fell into each."""
        own = self.cells < SCORE_CELLS
        return self.cells[own], self.hits[own]

    def other_scores(self) -> tuple[IntArray, IntArray]:
        """Cells of the largest scores of any other class, and how many fell into each."""
        other = self.cells >= SCORE_CELLS
        return self.cells[other] - SCORE_CELLS, self.hits[other]


AnyTally = Tally | PairTally | GradientTally | ScoreTally


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
    first: Any = parts[0]
    total: AnyTally = first.add_all(parts[1:])
    return total


def _read_only(values: IntArray) -> IntArray:
    given = np.asarray(values)
    if given.size and given.dtype.kind not in "iu":
        raise InputError(f"a tally holds whole numbers of at most 64 bits, not {given.dtype}")
    array = given.astype(np.int64)
    array.setflags(write=False)
    return array


def _check_counts(counts: IntArray, invalid: int, *, n: int) -> None:
    if counts.ndim != 1 or counts.size < 2:
        raise InputError(f"a tally needs counts of at least two classes, not shape {counts.shape}")
    if invalid < 0 or counts.min() < 0:
        raise InputError("a tally cannot hold negative counts")
    if counts.max() > n or int(counts.sum()) + invalid != n:
        raise InputError(f"a tally of {n} samples cannot hold {int(counts.sum())} votes and {invalid} invalid ones")


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
