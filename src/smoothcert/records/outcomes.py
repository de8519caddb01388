"""How the work on one input ended, and why: codes with their numbers. `sentences` turns them into text."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smoothcert.errors import InputError


class Outcome(enum.StrEnum):
    CERTIFIED = "certified"
    PREDICTED = "predicted"
    ABSTAINED = "abstained"
    FAILED = "failed"


class Settlement(enum.StrEnum):
    """What a memory of promised regions made of a claim."""

    WHOLE = "whole"
    CUT = "cut"
    OVERRULED = "overruled"
    INHERITED = "inherited"


class Supposition(enum.StrEnum):
    """What a guarantee assumes and nothing here proves."""

    FIXED_FUNCTION = "fixed_function"
    FLOAT_NOISE = "float_noise"
    MEMORY_KEPT = "memory_kept"


class ReasonCode(enum.StrEnum):
    """Why a verdict is not a plain certificate. The names of its numbers are listed in `REASON_NUMBERS`."""

    NO_FINITE_ANSWER = "no-finite-answer"
    TOO_FEW_VOTES = "too-few-votes"
    TOO_FEW_PAIRED_VOTES = "too-few-paired-votes"
    OTHER_CLASS_LEADS = "other-class-leads"
    LOW_MEAN_SCORE = "low-mean-score"
    NO_SIGNIFICANT_CLASS = "no-significant-class"
    LEAD_TOO_SMALL = "lead-too-small"
    RADIUS_IMPOSSIBLE = "radius-impossible"
    RADIUS_REFUTED = "radius-refuted"
    RADIUS_UNDECIDED = "radius-undecided"
    BELOW_PRECISION = "below-precision"
    REGION_CUT = "region-cut"
    REGION_OVERRULED = "region-overruled"
    REGION_INHERITED = "region-inherited"
    NO_ROOM_IN_MEMORY = "no-room-in-memory"
    IN_PROMISED_REGION = "in-promised-region"
    LEVEL_PROVES_NOTHING = "level-proves-nothing"
    LEVEL_NOT_PROVED = "level-not-proved"
    LEVELS_DISAGREE = "levels-disagree"
    POSSIBLE_LEVELS_DIFFER = "possible-levels-differ"


REASON_NUMBERS: Mapping[ReasonCode, tuple[str, ...]] = {
    ReasonCode.NO_FINITE_ANSWER: ("invalid", "n"),
    ReasonCode.TOO_FEW_VOTES: ("votes", "n", "label"),
    ReasonCode.TOO_FEW_PAIRED_VOTES: ("votes", "n", "label"),
    ReasonCode.OTHER_CLASS_LEADS: ("votes", "n", "label", "leader", "leader_votes"),
    ReasonCode.LOW_MEAN_SCORE: ("mean", "n", "label"),
    ReasonCode.NO_SIGNIFICANT_CLASS: ("votes", "runner_up", "n"),
    ReasonCode.LEAD_TOO_SMALL: ("votes", "runner_up", "n", "label"),
    ReasonCode.RADIUS_IMPOSSIBLE: ("radius",),
    ReasonCode.RADIUS_REFUTED: ("radius", "votes", "n", "label"),
    ReasonCode.RADIUS_UNDECIDED: ("radius", "votes", "n", "label", "limit"),
    ReasonCode.BELOW_PRECISION: ("width", "votes", "n", "label", "limit"),
    ReasonCode.REGION_CUT: (),
    ReasonCode.REGION_OVERRULED: (),
    ReasonCode.REGION_INHERITED: (),
    ReasonCode.NO_ROOM_IN_MEMORY: (),
    ReasonCode.IN_PROMISED_REGION: ("position",),
    ReasonCode.LEVEL_PROVES_NOTHING: ("sigma",),
    ReasonCode.LEVEL_NOT_PROVED: ("sigma",),
    ReasonCode.LEVELS_DISAGREE: ("label", "sigma"),
    ReasonCode.POSSIBLE_LEVELS_DIFFER: ("levels",),
}
"""The numbers that each reason carries. `n` counts samples drawn; `limit` is the most that could be drawn."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A code and its numbers. `str(reason)` is the sentence for a person; nothing reads it back."""

    code: ReasonCode
    numbers: Mapping[str, int | float]

    def __post_init__(self) -> None:
        if set(self.numbers) != set(REASON_NUMBERS[self.code]):
            raise InputError(
                f"reason {self.code} needs the numbers {REASON_NUMBERS[self.code]}, got {dict(self.numbers)}"
            )
        for name, value in self.numbers.items():
            if type(value) not in (int, float) or not math.isfinite(value):
                raise InputError(f"{name} of reason {self.code} is {value!r}; a finite number was expected")

    def __str__(self) -> str:
        from smoothcert.records.sentences import describe_reason

        return describe_reason(self)

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code.value, **self.numbers}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Reason:
        """Read what `to_json` wrote; raises InputError, KeyError or ValueError for anything else."""
        code = ReasonCode(document["code"])
        return cls(code, {name: value for name, value in document.items() if name != "code"})


class RemarkCode(enum.StrEnum):
    """What a reader of the results of a run should know. `sentences.describe_remark` uses the values of each."""

    FLOAT_NOISE = "float-noise"
    HALF_OF_THE_VOTES = "half-of-the-votes"
    ANSWERS_FROM_MEMORY = "answers-from-memory"
    REGIONS_OF_MEMORY = "regions-of-memory"
    SAMPLES_SPENT = "samples-spent"
    DECIDED_RADII = "decided-radii"
    UNFINISHED = "unfinished"
    SEVERAL_CERTIFICATES = "several-certificates"
    OTHER_NORM = "other-norm"
    SCALED_NORM = "scaled-norm"
    RANDOM_WEIGHTS = "random-weights"
    HALF_PRECISION = "half-precision"
    EVERY_EVALUATION = "every-evaluation"


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark about the results called `name`. values: plain JSON, as `sentences.describe_remark` uses them."""

    code: RemarkCode
    name: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        from smoothcert.records.sentences import describe_remark

        return describe_remark(self)
