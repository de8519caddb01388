"""The frozen records that travel through the house, and the enums they speak in.

Nothing here computes a statistic or a radius. A record checks itself when it is made, so a record that exists is
well formed; reading one back from disk goes through the same checks.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError

FloatArray = NDArray[np.float64]
"""Statistics and radii: always float64."""
InputArray = NDArray[np.float32]
"""What a base classifier sees: always float32."""
IntArray = NDArray[np.int64]

SCHEMA_VERSION = 1

MOST_SAMPLES = 10**12
"""More samples of one input than anybody will draw; counts up to here are exact in float64."""


class Stage(enum.IntEnum):
    """What a sample is drawn for. The value is part of the random counter: stages never share a draw."""

    SELECTION = 0
    ESTIMATION = 1
    PREDICTION = 2
    THINNING = 3


class Norm(enum.StrEnum):
    L1 = "l1"
    L2 = "l2"


class Side(enum.StrEnum):
    LOWER = "lower"
    UPPER = "upper"


class Quantity(enum.StrEnum):
    """A number a certificate may ask to be bounded. The value is the option name on the command line."""

    TOP_LOWER = "p-a"
    RUNNER_UP_UPPER = "p-b"

    @property
    def side(self) -> Side:
        return _SIDES[self]


_SIDES = {Quantity.TOP_LOWER: Side.LOWER, Quantity.RUNNER_UP_UPPER: Side.UPPER}


class Outcome(enum.Enum):
    """How the work on one input ended; the value is the sentence a person reads."""

    CERTIFIED = "a class was certified with a positive radius"
    PREDICTED = "a class was predicted; no radius was asked for"
    ABSTAINED = "the votes do not settle on one class"
    FAILED = "no valid statement can be made about this input"


@dataclass(frozen=True, slots=True)
class StreamId:
    """Names one endless stream of random draws: the seed of the run, the input, and what the draws are for.

    Sample number `counter` of a stream is a pure function of (seed, index, stage, counter).
    """

    seed: int
    index: int
    stage: Stage

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise InputError(f"seed {self.seed} is outside 0 … 2^64-1")
        if not 0 <= self.index < 2**32:
            raise InputError(f"input index {self.index} is outside 0 … 2^32-1")


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
        counts = np.array(self.counts, dtype=np.int64)
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "ranges", _coalesce(self.ranges))
        if counts.ndim != 1 or counts.size < 2:
            raise InputError(f"a tally needs counts of at least two classes, not shape {counts.shape}")
        if self.invalid < 0 or (counts < 0).any():
            raise InputError("a tally cannot hold negative counts")
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise InputError(f"a tally needs a positive finite sigma, not {self.sigma}")
        if int(counts.sum()) + self.invalid != self.n:
            raise InputError(
                f"a tally of {self.n} samples cannot hold {int(counts.sum())} votes and {self.invalid} invalid ones"
            )

    @property
    def n(self) -> int:
        """Number of samples, valid or not."""
        return sum(stop - start for start, stop in self.ranges)

    @property
    def num_classes(self) -> int:
        return int(self.counts.size)

    def largest_other(self, label: int) -> int:
        """Largest count among everything that is not `label`, the invalid samples counting as a class of their own."""
        others = np.delete(self.counts, label)
        return max(int(others.max()), self.invalid)

    def __add__(self, other: Tally) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        same = (self.stream, self.sigma, self.num_classes) == (other.stream, other.sigma, other.num_classes)
        if not same:
            raise InputError(
                f"tallies of different streams do not merge: {self.stream}, sigma {self.sigma}, "
                f"{self.num_classes} classes and {other.stream}, sigma {other.sigma}, {other.num_classes} classes"
            )
        return Tally(
            stream=self.stream,
            sigma=self.sigma,
            counts=self.counts + other.counts,
            invalid=self.invalid + other.invalid,
            ranges=self.ranges + other.ranges,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (self.stream, self.sigma, self.invalid, self.ranges) == (
            other.stream,
            other.sigma,
            other.invalid,
            other.ranges,
        ) and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]


def merge(tallies: Iterable[Tally]) -> Tally:
    """Sum of one or more tallies of the same stream."""
    iterator = iter(tallies)
    total = next(iterator, None)
    if total is None:
        raise InputError("there is nothing to merge: no tally was given")
    for tally in iterator:
        total = total + tally
    return total


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


@dataclass(frozen=True, slots=True)
class Bound:
    """A one-sided confidence bound: wrong with probability at most `alpha`."""

    value: float
    side: Side
    alpha: float
    method: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """All bounds one certificate asked for, about one class; together wrong with probability at most `alpha`."""

    label: int
    quantities: Mapping[Quantity, Bound]

    @property
    def alpha(self) -> float:
        return math.fsum(bound.alpha for bound in self.quantities.values())


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The promise a certified point makes, in numbers and as a sentence."""

    label: int
    radius: float
    norm: Norm
    alpha: float

    def __str__(self) -> str:
        return (
            f"Except with probability at most {self.alpha!r} over the sampling, the smoothed classifier answers class "
            f"{self.label} at every point closer than {self.radius!r} in {self.norm} distance."
        )


@dataclass(frozen=True, slots=True)
class CertifiedPoint:
    """What is known about one input, with the tallies it was computed from.

    `radius` is positive exactly when `outcome` is CERTIFIED and zero otherwise. `tallies` holds the selection votes and
    the estimation votes, the latter in segments, so that another α, a smaller n or another certificate over the same
    quantities can be computed without the model.
    """

    index: int
    label: int | None
    prediction: int | None
    radius: float
    norm: Norm
    outcome: Outcome
    reason: str
    sigma: float
    bounds: Bounds | None
    tallies: tuple[Tally, ...]
    seconds: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius >= 0):
            raise InputError(f"radius {self.radius} of input {self.index} is not a finite non-negative number")
        if (self.radius > 0) != (self.outcome is Outcome.CERTIFIED):
            raise InputError(f"input {self.index} is {self.outcome.name} with radius {self.radius}")
        decided = self.outcome in (Outcome.CERTIFIED, Outcome.PREDICTED)
        if decided != (self.prediction is not None):
            raise InputError(f"input {self.index} is {self.outcome.name} with prediction {self.prediction}")

    @property
    def correct(self) -> bool:
        """True if a class was given and it is the label."""
        return self.prediction is not None and self.prediction == self.label

    @property
    def guarantee(self) -> Guarantee | None:
        """The promise made about this input; None where nothing was certified."""
        if self.outcome is not Outcome.CERTIFIED or self.prediction is None or self.bounds is None:
            return None
        return Guarantee(label=self.prediction, radius=self.radius, norm=self.norm, alpha=self.bounds.alpha)

    def tally(self, stage: Stage) -> Tally | None:
        """All votes of one stage, merged; None if the stage was not sampled."""
        chosen = [tally for tally in self.tallies if tally.stream.stage is stage]
        return merge(chosen) if chosen else None


@dataclass(frozen=True, slots=True)
class RunManifest:
    """Everything a run depends on. Two runs with equal manifests give equal results.

    Values are plain JSON: text, numbers, booleans, None, lists and objects.
    """

    task: str
    parameters: Mapping[str, Any]
    model: Mapping[str, Any]
    data: Mapping[str, Any]
    seed: int
    environment: Mapping[str, str]
    code: str
    schema: int = SCHEMA_VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema,
            "task": self.task,
            "parameters": dict(self.parameters),
            "model": dict(self.model),
            "data": dict(self.data),
            "seed": self.seed,
            "environment": dict(self.environment),
            "code": self.code,
            "extra": dict(self.extra),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        return cls(**{key: document[key] for key in cls.__dataclass_fields__ if key in document})
