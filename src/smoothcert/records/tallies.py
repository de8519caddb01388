"""Tallies: counts of sampled answers. They are sums, so tallies of disjoint shards merge with `+`.

A tally is checked on construction. It contains integers only, so sums do not depend on the order.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, overload

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.records.score_cells import SCORE_CELLS

FloatArray = NDArray[np.float64]
"""Statistics and radii: always float64."""
InputArray = NDArray[np.float32]
"""Inputs of a base classifier: always float32."""
IntArray = NDArray[np.int64]

MOST_SAMPLES = 10**12
"""The most samples per input. Counts up to this are exact in float64."""


class Stage(enum.IntEnum):
    """The purpose of a sample. The value is part of the random counter, so stages never share a draw."""

    SELECTION = 0
    ESTIMATION = 1
    PREDICTION = 2
    THINNING = 3
    ORDERING = 4
    SEARCH = 5


@dataclass(frozen=True, slots=True)
class StreamId:
    """Identifies an infinite stream of random draws by the seed of the run, the input and the stage.

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
    """What is sampled around an input. The value is stored with the tally."""

    VOTES = "votes"
    PAIRS = "pairs"
    GRADIENTS = "gradients"
    SCORES = "scores"


class TallyBase(ABC):
    """Base of all tallies: a stream, a noise level, and the half-open ranges of draws that are counted.

    Two tallies of disjoint ranges of the same stream merge with `+`.
    """

    __slots__ = ()
    kind: ClassVar[TallyKind]
    arrays: ClassVar[tuple[str, ...]]
    """Fields that are read-only int64 arrays."""
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
            raise InputError(f"a tally needs a positive finite sigma, got {self.sigma}")
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise an InputError if the counts do not add up."""

    @property
    def n(self) -> int:
        """Number of samples, including invalid ones."""
        return sum([stop - start for start, stop in self.ranges])

    @property
    @abstractmethod
    def num_classes(self) -> int: ...

    def check_mergeable(self, other: Self) -> None:
        if (self.stream, self.sigma, self.num_classes) != (other.stream, other.sigma, other.num_classes):
            raise InputError(
                f"tallies of different streams do not merge: {self.stream}, sigma {self.sigma}, "
                f"{self.num_classes} classes and {other.stream}, sigma {other.sigma}, {other.num_classes} classes"
            )

    def add_all(self, others: Sequence[Self]) -> Self:
        """The sum of this tally and others of the same kind."""
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
        """Fields that are not merged by addition."""
        return {}

    def __add__(self, other: Self) -> Self:
        return self.add_all([other]) if type(other) is type(self) else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal. The == of dataclasses fails for arrays."""
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
    """Votes of one stream at one noise level.

    counts: (num_classes,) int64. invalid: number of samples without a finite answer; they count for no class.
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
        """Votes of all samples, which are independent."""
        return self

    def largest_other(self, label: int) -> int:
        """Largest count of any other class; the invalid samples count as one class."""
        others = np.delete(self.counts, label)
        return max(int(others.max()), self.invalid)


@dataclass(frozen=True, slots=True, eq=False)
class PairTally(TallyBase):
    """Votes at x+ε and x-ε with the same ε. `ranges` counts draws of ε.

    Three counts per class, each (num_classes + 1,) int64; the last entry is for samples without a finite answer.
    both: both votes are for the class. first_only, second_only: only the vote at x+ε, or only that at x-ε.
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
                raise InputError(
                    f"a pair tally has counts of different or invalid shapes {self.both.shape} and {only.shape}"
                )
            votes = self.both + only
            _check_counts(votes[:-1], int(votes[-1]), n=self.pairs)
        if min(self.both.min(), self.first_only.min(), self.second_only.min()) < 0:
            raise InputError("a tally has negative counts")
        differing = self.pairs - int(self.both.sum())
        if (self.first_only + self.second_only > differing).any():
            raise InputError(f"a class has more than the {differing} pairs with two different votes")

    @property
    def pairs(self) -> int:
        return sum(stop - start for start, stop in self.ranges)

    @property
    def n(self) -> int:
        """Number of samples, two per draw."""
        return 2 * self.pairs

    @property
    def num_classes(self) -> int:
        return int(self.both.size) - 1

    def one_sided(self, label: int) -> int:
        """Number of pairs with exactly one vote for `label`."""
        return int(self.first_only[label] + self.second_only[label])

    def neither(self, label: int) -> int:
        """Number of pairs without a vote for `label`."""
        return self.pairs - int(self.both[label]) - self.one_sided(label)

    def independent_votes(self) -> Tally:
        """Votes at x+ε only, because the two votes of a pair are dependent."""
        votes = self.both + self.first_only
        return Tally(
            stream=self.stream, sigma=self.sigma, counts=votes[:-1], invalid=int(votes[-1]), ranges=self.ranges
        )


GRADIENT_UNIT = 2.0**-20
"""`GradientTally.sums` and `.products` are integer multiples of this, so sums are exact in any order."""


@dataclass(frozen=True, slots=True, eq=False)
class GradientTally(TallyBase):
    """Votes at x+σz, and sums of their standard normal z, from which the gradient is bounded.

    Samples 2j and 2j+1 form pair j and are independent. Classes are grouped, so that memory is groups × dimension for
    any number of samples.

    counts, invalid: votes of all samples, as in `Tally`. group: (num_classes + 1,), the group 0 … g-1 of each class;
    the last entry is for samples without a finite answer. sums: (2, g, dimension) int64, the sum of z over the first
    (second) samples of pairs with a vote in the group, each coordinate rounded to a multiple of GRADIENT_UNIT.
    products: (g,) int64, the sum of z·z' over pairs with both votes in the group, each rounded to a multiple of
    GRADIENT_UNIT.
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
            raise InputError("a gradient tally counts whole pairs: its ranges must start and end at even counters")
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
                f"a gradient tally of {self.num_classes} classes has inconsistent groups {self.group.tolist()}, sums "
                f"of shape {self.sums.shape} and products of shape {self.products.shape}"
            )

    @property
    def num_classes(self) -> int:
        return int(self.counts.size)

    @property
    def dimension(self) -> int:
        return int(self.sums.shape[2])

    def independent_votes(self) -> Tally:
        """Votes of all samples, which are independent."""
        return Tally(stream=self.stream, sigma=self.sigma, counts=self.counts, invalid=self.invalid, ranges=self.ranges)

    def check_mergeable(self, other: Self) -> None:
        TallyBase.check_mergeable(self, other)
        if not np.array_equal(self.group, other.group) or self.dimension != other.dimension:
            raise InputError("gradient tallies with other groups of classes or of another dimension do not merge")

    def own_group(self, label: int) -> int:
        """The group of this class alone. The label num_classes stands for samples without a finite answer."""
        group = int(self.group[label])
        if int((self.group == group).sum()) != 1:
            raise InputError(
                f"the gradient of class {label} is not available from this tally: its votes were counted together with "
                "those of other classes"
            )
        return group


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTally(TallyBase):
    """Votes, and a histogram of scores in [0, 1]: of one class, and of its strongest opponent.

    counts, invalid: votes of all samples, as in `Tally`. label: the class, selected before these samples were drawn.
    Each sample with a finite answer has two scores: that of `label`, and the largest of all other classes. The mean of
    the latter is at least the mean score of each other class. The samples are independent, so their order carries no
    information, and the histogram loses only the position within a cell.

    cells: (k,) int64, the non-empty cells in increasing order: c for cell c of the score of the label, SCORE_CELLS + c
    for cell c of the opponent's score. hits: (k,) int64, the number of scores in each.
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
            raise InputError(f"a score tally of {self.num_classes} classes has the invalid class {self.label!r}")
        if self.cells.ndim != 1 or self.cells.shape != self.hits.shape:
            raise InputError(
                f"a score tally has cells of shape {self.cells.shape}, but hits of shape {self.hits.shape}"
            )
        if (np.diff(self.cells) <= 0).any() or ((self.cells < 0) | (self.cells >= 2 * SCORE_CELLS)).any():
            raise InputError(f"the cells of a score tally must increase within 0 … {2 * SCORE_CELLS - 1}")
        valid = self.n - self.invalid
        if ((self.hits < 1) | (self.hits > valid)).any():
            raise InputError(f"each cell of a score tally with {valid} scores must have 1 … {valid} of them")
        for scored in (self.top_scores(), self.other_scores()):
            if int(scored[1].sum()) != valid:
                raise InputError(f"a score tally of {valid} valid samples cannot hold {int(scored[1].sum())} scores")

    @property
    def num_classes(self) -> int:
        return int(self.counts.size)

    def independent_votes(self) -> Tally:
        """Votes of all samples, which are independent."""
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
        """The cells of the label's scores, in 0 … SCORE_CELLS-1, and the number in each."""
        own = self.cells < SCORE_CELLS
        return self.cells[own], self.hits[own]

    def other_scores(self) -> tuple[IntArray, IntArray]:
        """The cells of the largest scores of other classes, in 0 … SCORE_CELLS-1, and the number in each."""
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
        raise InputError(f"a tally needs integers of at most 64 bits, got {given.dtype}")
    array = given.astype(np.int64)
    array.setflags(write=False)
    return array


def _check_counts(counts: IntArray, invalid: int, *, n: int) -> None:
    if counts.ndim != 1 or counts.size < 2:
        raise InputError(f"a tally needs counts of at least two classes, got shape {counts.shape}")
    # Integers of Python: their sum cannot overflow, and for a few classes they are faster than numpy.
    votes = counts.tolist()
    if invalid < 0 or min(votes) < 0:
        raise InputError("a tally has negative counts")
    if sum(votes) + invalid != n:
        raise InputError(f"a tally of {n} samples cannot hold {sum(votes)} votes and {invalid} invalid ones")


def _coalesce(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Sort ranges and join adjacent ones. Overlapping ranges are refused, because samples would count twice."""
    joined: list[tuple[int, int]] = []
    for start, stop in ranges if len(ranges) == 1 else sorted(ranges):
        if not 0 <= start < stop:
            raise InputError(f"counter range [{start}, {stop}) is empty or negative")
        if joined and start < joined[-1][1]:
            raise InputError(f"counter ranges overlap at {start}: the same samples would be counted twice")
        if joined and start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
