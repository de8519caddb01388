"""What is known about one input: promises, verdicts, guarantees and certified points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from smoothcert.errors import InputError
from smoothcert.records.bounds import Bounds
from smoothcert.records.feature_scale import FeatureScale, name_norm
from smoothcert.records.noises import Norm
from smoothcert.records.outcomes import Outcome, Reason, Settlement, Supposition
from smoothcert.records.sentences import describe_guarantee, describe_noise
from smoothcert.records.tallies import AnyTally, Stage, merge


@dataclass(frozen=True, slots=True)
class Promise:
    """What a memory answers for one input: `label` at every point within `radius`, for as long as the memory is kept.

    position: of the claim in the memory's log, from 1; for an INHERITED answer, the position of the region that
    contains the input. asked_label, asked_radius: what was claimed; None and 0 if nothing was claimed.
    memory: the identity of the memory, drawn at random when it was created. entry: SHA-256 of the log up to this
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


@dataclass(frozen=True, slots=True, repr=False)
class Guarantee:
    """The promise a certified point makes, in numbers; `str(guarantee)` is the sentence.

    alpha: the probability that sampling was misled; 0 if nothing was sampled, and the ball is then closed; None if an
    earlier promise is the answer, not the votes.
    promise: set if a memory keeps it. grid: levels of the grid in whose steps the noise was added; None for float32.
    scale: by which every feature is divided before distances are measured; None without a scale. dtype: the half
    precision in which the model is computed; None for its own.
    """

    label: int
    radius: float
    norm: Norm
    alpha: float | None
    promise: Promise | None = None
    grid: int | None = None
    scale: FeatureScale | None = None
    dtype: str | None = None

    @property
    def is_certain(self) -> bool:
        """True if all evaluations were made: no probability is involved."""
        return self.alpha == 0.0

    @property
    def sound_in_floating_point(self) -> bool:
        """True if the noise was exact, so that nothing depends on float32 rounding."""
        return self.grid is not None

    @property
    def supposes(self) -> tuple[Supposition, ...]:
        """What must be true besides the theorems and the outcome of the sampling."""
        float_noise = () if self.sound_in_floating_point else (Supposition.FLOAT_NOISE,)
        memory = () if self.promise is None else (Supposition.MEMORY_KEPT,)
        return (Supposition.FIXED_FUNCTION, *float_noise, *memory)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON. `statement` is the sentence for a person."""
        return {
            "statement": str(self),
            "label": self.label,
            "radius": self.radius,
            "norm": self.norm.value,
            "scale": None if self.scale is None else list(self.scale.numbers),
            "alpha": self.alpha,
            "grid": self.grid,
            "sound_in_floating_point": self.sound_in_floating_point,
            **({} if self.dtype is None else {"dtype": self.dtype}),
            "supposes": [supposition.value for supposition in self.supposes],
        }

    def __repr__(self) -> str:
        kept = "" if self.promise is None else f", promise={self.promise!r}"
        scale = "" if self.scale is None else f", scale={self.scale.numbers!r}"
        dtype = "" if self.dtype is None else f", dtype={self.dtype!r}"
        return (
            f"Guarantee(label={self.label}, radius={self.radius!r}, norm={self.norm.value!r}{scale}, "
            f"alpha={self.alpha!r}, noise={describe_noise(self.grid)!r}{dtype}{kept})"
        )

    def __str__(self) -> str:
        return describe_guarantee(self)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one certificate says about one input.

    `radius` is positive exactly when `outcome` is CERTIFIED. `certificate` names the theorem; it is empty for a
    prediction. `reason` is None where there is nothing to explain.
    """

    certificate: str
    prediction: int | None
    radius: float
    norm: Norm
    outcome: Outcome
    reason: Reason | None
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
    """Checks of the model. drawn: noisy copies that were counted. asked: copies that were classified again by the
    user's model. ties: copies for which it gave another class because of rounding. Any other difference is an error.
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

    `tallies`: the selection votes and the estimation tallies in segments, so that another α, a smaller n or another
    certificate can be computed without the model. `further`: the verdicts of other requested certificates. Each verdict
    holds with its own α, not all at once, unless the best of several was requested: then `bounds.spent` is the same in
    all of them, and they hold together.

    `promise`: what a memory of regions granted; the verdict then has the class and the radius of the promise, and the
    bounds of the votes. `sigma` is nan if the memory answered and nothing was sampled. `grid`: levels of the grid in
    whose steps the noise was added; None for noise in float32, which is not sound in floating point. `scale`: by which
    features are divided before noise is added and distances are measured; None without one. `dtype`: the half precision
    in which the model is computed; None for its own.
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
    scale: FeatureScale | None = None
    dtype: str | None = None

    def __repr__(self) -> str:
        verdict = self.verdict
        has_radius = verdict.certificate or verdict.radius > 0  # a log does not name its certificate
        norm = name_norm(verdict.norm.value, self.scale)
        radius = f", radius={verdict.radius!r}, norm={norm!r}" if has_radius else ""
        dtype = "" if self.dtype is None else f", dtype={self.dtype!r}"
        return (
            f"CertifiedPoint(index={self.index}, label={self.label}, prediction={verdict.prediction}, "
            f"outcome={verdict.outcome.name}{radius}, certificate={verdict.certificate!r}, sigma={self.sigma!r}, "
            f"noise={describe_noise(self.grid)!r}{dtype})"
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
    def reason(self) -> Reason | None:
        return self.verdict.reason

    @property
    def bounds(self) -> Bounds | None:
        return self.verdict.bounds

    @property
    def correct(self) -> bool | None:
        """True if a class was given and it is the label; None if the label is not known."""
        return None if self.label is None else self.prediction == self.label

    @property
    def guarantee(self) -> Guarantee | None:
        """The promise about this input; None if nothing was certified."""
        if self.outcome is not Outcome.CERTIFIED or self.prediction is None:
            return None
        if self.promise is None and self.bounds is None:
            return None
        inherited = (Settlement.OVERRULED, Settlement.INHERITED)
        voted = self.promise is None or self.promise.settlement not in inherited
        alpha = self.bounds.alpha if self.bounds is not None and voted else None
        settings = (self.grid, self.scale, self.dtype)
        return Guarantee(self.prediction, self.radius, self.norm, alpha, self.promise, *settings)

    def tally(self, stage: Stage) -> AnyTally | None:
        """All votes of one stage, merged; None if the stage was not sampled."""
        chosen = [tally for tally in self.tallies if tally.stream.stage is stage]
        return merge(chosen) if chosen else None
