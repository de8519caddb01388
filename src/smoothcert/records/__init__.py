"""The frozen records that travel through the house, and the enums they speak in.

Nothing here computes a statistic or a radius. A record checks itself when it is made, so a record that exists is
well formed; reading one back from disk goes through the same checks.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from smoothcert.errors import InputError
from smoothcert.records.envelopes import (
    ConstantSigma,
    Envelope,
    LipschitzSigma,
    MonotoneEnvelope,
    SemiElastic,
    Widened,
    envelope_from_json,
)
from smoothcert.records.noises import Noise, Norm
from smoothcert.records.tallies import (
    MOST_SAMPLES,
    AnyTally,
    FloatArray,
    GradientTally,
    InputArray,
    IntArray,
    PairTally,
    ScoreTally,
    Stage,
    StreamId,
    Tally,
    TallyKind,
    merge,
)

__all__ = [
    "MOST_SAMPLES",
    "NOT_SOUND",
    "SCHEMA_VERSION",
    "AnyTally",
    "Bound",
    "Bounds",
    "CertifiedPoint",
    "ConstantSigma",
    "Envelope",
    "FloatArray",
    "GradientTally",
    "Guarantee",
    "InputArray",
    "IntArray",
    "LipschitzSigma",
    "MonotoneEnvelope",
    "Noise",
    "Norm",
    "Outcome",
    "PairTally",
    "Promise",
    "Proof",
    "Quantity",
    "RunManifest",
    "ScoreTally",
    "SemiElastic",
    "Settlement",
    "Side",
    "Smoothing",
    "Stage",
    "StreamId",
    "Supposition",
    "Tally",
    "TallyKind",
    "Verdict",
    "Widened",
    "envelope_from_json",
    "merge",
    "noise_in_words",
]

SCHEMA_VERSION = 2

NOT_SOUND = "not sound in floating point"
"""What is said of every certificate whose noise was added in float32."""


def noise_in_words(grid: int | None, *, place: str = "") -> str:
    """How noise is added, behind its kind: in whole steps of a grid of so many levels, or in float32."""
    return f"float32{place}, {NOT_SOUND}" if grid is None else f"in exact steps of 1/{grid - 1}"


class Side(enum.StrEnum):
    LOWER = "lower"
    UPPER = "upper"


class Quantity(enum.StrEnum):
    """A number a certificate may ask to be bounded. The value is the option name on the command line."""

    TOP_LOWER = "p-a"
    RUNNER_UP_UPPER = "p-b"
    PAIR_BOTH_LOWER = "both"
    PAIR_ONE_SIDED_LOWER = "one-sided"
    OTHER_NEITHER_LOWER = "other-neither"
    OTHER_ONE_SIDED_LOWER = "other-one-sided"
    GRADIENT_NORM_UPPER = "gradient-norm"
    OTHER_UPPER = "other-p"
    OTHER_GRADIENT_NORM_UPPER = "other-gradient-norm"

    @property
    def side(self) -> Side:
        return Side.UPPER if self in _UPPER else Side.LOWER


_UPPER = {
    Quantity.RUNNER_UP_UPPER,
    Quantity.GRADIENT_NORM_UPPER,
    Quantity.OTHER_UPPER,
    Quantity.OTHER_GRADIENT_NORM_UPPER,
}


class Proof(enum.StrEnum):
    """A statement that can be proved from one tally, at one price in α. It bounds one quantity, or several at once.

    The value is the name of the method, stored with every bound.
    """

    TOP = "clopper-pearson"
    RUNNER_UP = "clopper-pearson, largest other class"
    PAIR_BOTH = "clopper-pearson, pairs with both votes"
    PAIR_ONE_SIDED = "clopper-pearson, pairs with the first vote only"
    PAIR_REGION = "joint region of the pair counts"
    PAIRS_OF_EVERY_CLASS = "conditional clopper-pearson, pairs of every class"
    GRADIENT_HALVES = "gradient from the means of two halves"
    GRADIENT_PAIRS = "gradient from products of pairs"
    GRADIENTS_OF_EVERY_CLASS = "clopper-pearson and gradients from the means of two halves, every class"
    SCORE_TOP = "betting on the mean score"
    SCORE_OTHER = "betting on the mean of the largest other score"
    SCORE_TOP_BERNSTEIN = "empirical bernstein, mean score"
    SCORE_OTHER_BERNSTEIN = "empirical bernstein, mean of the largest other score"
    TOP_DECIDED = "betting test at the radii to decide, valid at any time"
    TOP_SEQUENCE = "time-uniform sequence"
    NOISE_TABLES = "finite tables of the noise"
    """Nothing is bounded by it: the price of noise whose law is that of the theorem but for a known distance."""

    @property
    def anytime(self) -> bool:
        """Whether it holds for votes that were looked at before more were drawn, which a fixed number must not be."""
        return self in (Proof.TOP_DECIDED, Proof.TOP_SEQUENCE)

    @property
    def tally(self) -> TallyKind:
        """The least that must be sampled; VOTES can be had from a tally of any kind."""
        return _SAMPLED.get(self, TallyKind.VOTES)


_SAMPLED = {
    Proof.PAIR_BOTH: TallyKind.PAIRS,
    Proof.PAIR_ONE_SIDED: TallyKind.PAIRS,
    Proof.PAIR_REGION: TallyKind.PAIRS,
    Proof.PAIRS_OF_EVERY_CLASS: TallyKind.PAIRS,
    Proof.GRADIENT_HALVES: TallyKind.GRADIENTS,
    Proof.GRADIENT_PAIRS: TallyKind.GRADIENTS,
    Proof.GRADIENTS_OF_EVERY_CLASS: TallyKind.GRADIENTS,
    Proof.SCORE_TOP: TallyKind.SCORES,
    Proof.SCORE_OTHER: TallyKind.SCORES,
    Proof.SCORE_TOP_BERNSTEIN: TallyKind.SCORES,
    Proof.SCORE_OTHER_BERNSTEIN: TallyKind.SCORES,
}


class Outcome(enum.Enum):
    """How the work on one input ended; the value is the sentence a person reads."""

    CERTIFIED = "a class was certified with a positive radius"
    PREDICTED = "a class was predicted; no radius was asked for"
    ABSTAINED = "the votes do not settle on one class"
    FAILED = "no valid statement can be made about this input"


@dataclass(frozen=True, slots=True)
class Smoothing:
    """What a theorem may have to know of the smoothed classifier besides its votes.

    envelope: how far σ may move around an input. dimension: of an input; None where it is not known, which the theorems
    for a constant σ do not mind. num_classes: likewise. noise: what is added to an input. grid: inputs and noise are
    whole multiples of 1/(grid-1), and are added exactly; None for float32 noise, which is taken for the ideal one.

    remembered: every input has a σ of its own, and what is certified of the classifier smoothed with that σ throughout
    is promised by a memory of regions. The theorems for a constant σ apply to each input by itself.
    """

    envelope: Envelope = field(default_factory=ConstantSigma)
    dimension: int | None = None
    num_classes: int | None = None
    noise: Noise = Noise.GAUSSIAN
    remembered: bool = False
    grid: int | None = None

    @property
    def varying(self) -> bool:
        """Whether σ may differ from input to input."""
        return not isinstance(self.envelope, ConstantSigma)


@dataclass(frozen=True, slots=True)
class Bound:
    """A one-sided confidence bound on one quantity.

    `alpha` is the price of the proof it comes from: the probability that the proof is wrong. Where a proof bounds
    several quantities at once, or every class, these are the values that decided the radius, and they hold together.
    """

    value: float
    side: Side
    alpha: float
    method: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """All bounds a certificate asked for, about one class; together wrong with probability at most `alpha`.

    spent: α by proof. It may hold proofs that the certificate at hand did not use, when the best of several was taken.
    """

    label: int
    quantities: Mapping[Quantity, Bound]
    spent: Mapping[Proof, float]

    @property
    def alpha(self) -> float:
        return math.fsum(self.spent.values())


_IN_FLOAT = f"The noise was added in float32 and is taken for the ideal one: {NOT_SOUND}."


class Supposition(enum.Enum):
    """What a guarantee supposes and nothing here proves; the value is the sentence a person reads."""

    FIXED_FUNCTION = "the model is a fixed function that answers each noisy input by itself"
    FLOAT_NOISE = f"noise that was added in float32 is as good as the ideal noise of the theorems, which is {NOT_SOUND}"
    MEMORY_KEPT = "the memory of promised regions lives and is consulted"


@dataclass(frozen=True, slots=True, repr=False)
class Guarantee:
    """The promise a certified point makes, in numbers and as a sentence.

    alpha: the probability that sampling was misled; None where the votes do not stand for the answer, because it is
    that of a region promised before. promise: where a memory keeps it. grid: levels of the grid in whose whole steps
    the noise was added; None for noise in float32, which is taken for the ideal one.
    """

    label: int
    radius: float
    norm: Norm
    alpha: float | None
    promise: Promise | None = None
    grid: int | None = None

    @property
    def sound_in_floating_point(self) -> bool:
        """Whether the noise was exact, so that nothing rests on how float32 rounds it."""
        return self.grid is not None

    @property
    def supposes(self) -> tuple[Supposition, ...]:
        """What must be true besides the theorems and the luck of sampling."""
        float_noise = () if self.sound_in_floating_point else (Supposition.FLOAT_NOISE,)
        memory = () if self.promise is None else (Supposition.MEMORY_KEPT,)
        return (Supposition.FIXED_FUNCTION, *float_noise, *memory)

    def to_json(self) -> dict[str, Any]:
        """All of it for machines, in plain JSON."""
        return {
            "statement": str(self),
            "label": self.label,
            "radius": self.radius,
            "norm": self.norm.value,
            "alpha": self.alpha,
            "grid": self.grid,
            "sound_in_floating_point": self.sound_in_floating_point,
            "supposes": [supposition.name.lower() for supposition in self.supposes],
        }

    def __repr__(self) -> str:
        kept = "" if self.promise is None else f", promise={self.promise!r}"
        return (
            f"Guarantee(label={self.label}, radius={self.radius!r}, norm={self.norm.value!r}, alpha={self.alpha!r}, "
            f"noise={noise_in_words(self.grid)!r}{kept})"
        )

    def __str__(self) -> str:
        return self._promise() if self.sound_in_floating_point else f"{self._promise()} {_IN_FLOAT}"

    def _promise(self) -> str:
        if self.promise is not None:
            return self._kept(self.promise)
        return (
            f"Except with probability at most {self.alpha!r} over the sampling, the smoothed classifier answers class "
            f"{self.label} at every point closer than {self.radius!r} in {self.norm} distance."
        )

    def _kept(self, promise: Promise) -> str:
        kept = (
            f"From position {promise.position} of the memory {promise.memory[:12]} on, and for as long as that memory "
            f"lives and is consulted, the answer is class {self.label} at every point within {self.radius!r} in "
            f"{self.norm} distance."
        )
        if self.alpha is None:
            return f"{kept} It was promised by an earlier claim, in whose region this input lies."
        return (
            f"{kept} Except with probability at most {self.alpha!r} over the sampling of this one claim, the "
            "classifier smoothed with the sigma of this input would answer so too."
        )


class Settlement(enum.Enum):
    """What a memory of promised regions made of a claim; the value is the sentence a person reads."""

    WHOLE = "the claimed region meets no region of another class and is promised whole"
    CUT = "the claimed region was cut, so that it touches no region of another class"
    OVERRULED = "the input lies in a region of another class: that class is the answer, in a region cut to stay inside"
    INHERITED = "nothing was claimed: the input lies in a promised region, whose class is the answer"


@dataclass(frozen=True, slots=True)
class Promise:
    """What a memory answers for one input: `label` at every point within `radius` of it, for as long as it lives.

    position: of the claim in the memory's log, from 1; for an INHERITED answer, which claims nothing, that of the
    region the input lies in. asked_label, asked_radius: what was claimed; None and 0 where nothing was.
    memory: the identity of the memory, drawn at random when it was made. entry: the SHA-256 of the log up to this
    position: a memory keeps the promise exactly if it has this entry there.
    """

    label: int
    radius: float
    position: int
    settlement: Settlement
    asked_label: int | None
    asked_radius: float
    memory: str
    entry: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius >= 0):
            raise InputError(f"a promised radius of {self.radius} is not a finite non-negative number")
        if (self.asked_label is None) != (self.settlement is Settlement.INHERITED):
            raise InputError(f"a promise cannot be {self.settlement.name} with a claim for class {self.asked_label}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one certificate says about one input.

    `radius` is positive exactly when `outcome` is CERTIFIED and zero otherwise. `certificate` is the theorem that gave
    it; empty for a prediction.
    """

    certificate: str
    prediction: int | None
    radius: float
    norm: Norm
    outcome: Outcome
    reason: str
    bounds: Bounds | None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius >= 0):
            raise InputError(f"radius {self.radius} is not a finite non-negative number")
        if (self.radius > 0) != (self.outcome is Outcome.CERTIFIED):
            raise InputError(f"a verdict cannot be {self.outcome.name} with radius {self.radius}")
        decided = self.outcome in (Outcome.CERTIFIED, Outcome.PREDICTED)
        if decided != (self.prediction is not None):
            raise InputError(f"a verdict cannot be {self.outcome.name} with prediction {self.prediction}")


@dataclass(frozen=True, slots=True)
class CheckCounts:
    """drawn: noisy copies that were counted. asked: those asked again from the original. ties: those among them for
    which it gave another class because of rounding. A difference of any other kind is an error, so it is never counted.
    """

    drawn: int = 0
    asked: int = 0
    ties: int = 0

    def __add__(self, other: CheckCounts) -> CheckCounts:
        return CheckCounts(self.drawn + other.drawn, self.asked + other.asked, self.ties + other.ties)

    def __sub__(self, other: CheckCounts) -> CheckCounts:
        return CheckCounts(self.drawn - other.drawn, self.asked - other.asked, self.ties - other.ties)


@dataclass(frozen=True, slots=True, repr=False)
class CertifiedPoint:
    """What is known about one input, with the tallies it was computed from.

    `tallies` holds the selection votes and the estimation tallies, the latter in segments, so that another α, a
    smaller n or another certificate over the same tallies can be computed without the model. `further` holds what
    other certificates say, where several were asked for. Each holds with its own α, not all at once, unless the best
    of several was asked for: then `bounds.spent` is the same in all, and all hold together.

    `promise` is what a memory of regions granted, where there is one: the verdict has the class and the radius of the
    promise, and the bounds of the votes. `sigma` is nan where the memory answered and nothing was sampled.

    `grid`: the levels of the grid in whose whole steps the noise was added; None for noise in float32, of which
    `guarantee` says that it is not sound in floating point.
    """

    index: int
    label: int | None
    verdict: Verdict
    sigma: float
    tallies: tuple[AnyTally, ...]
    seconds: float
    further: tuple[Verdict, ...] = ()
    promise: Promise | None = None
    grid: int | None = None

    def __repr__(self) -> str:
        verdict = self.verdict
        radius = f", radius={verdict.radius!r}, norm={verdict.norm.value!r}" if verdict.certificate else ""
        return (
            f"CertifiedPoint(index={self.index}, label={self.label}, prediction={verdict.prediction}, "
            f"outcome={verdict.outcome.name}{radius}, certificate={verdict.certificate!r}, sigma={self.sigma!r}, "
            f"noise={noise_in_words(self.grid)!r})"
        )

    @property
    def prediction(self) -> int | None:
        return self.verdict.prediction

    @property
    def radius(self) -> float:
        return self.verdict.radius

    @property
    def norm(self) -> Norm:
        return self.verdict.norm

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome

    @property
    def reason(self) -> str:
        return self.verdict.reason

    @property
    def bounds(self) -> Bounds | None:
        return self.verdict.bounds

    @property
    def correct(self) -> bool:
        """True if a class was given and it is the label."""
        return self.prediction is not None and self.prediction == self.label

    @property
    def guarantee(self) -> Guarantee | None:
        """The promise made about this input; None where nothing was certified."""
        if self.outcome is not Outcome.CERTIFIED or self.prediction is None:
            return None
        if self.promise is None and self.bounds is None:
            return None
        inherited = (Settlement.OVERRULED, Settlement.INHERITED)
        voted = self.promise is None or self.promise.settlement not in inherited
        alpha = self.bounds.alpha if self.bounds is not None and voted else None
        return Guarantee(self.prediction, self.radius, self.norm, alpha, self.promise, self.grid)

    def tally(self, stage: Stage) -> AnyTally | None:
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
