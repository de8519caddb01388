"""The settings of an attack on a run."""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass
from typing import Any

from smoothcert.attacks import AttackObjective
from smoothcert.errors import InputError
from smoothcert.statistics import check_alpha

CERTIFIED = "certified"
"""Stands for a radius per input: just inside its certified radius."""


class AttackMethod(enum.StrEnum):
    AUTO = "auto"
    """The usual one for the noise of the run."""
    PGD = "pgd"
    DDN = "ddn"
    GREEDY = "greedy"
    """For splitting only."""


class GradientSource(enum.StrEnum):
    """Where the gradient of the smoothed classifier comes from. Values are names on the command line."""

    AUTO = "auto"
    EXACT = "exact"
    SCORES = "scores"
    VOTES = "votes"


class AttackBounds(enum.StrEnum):
    """Where adversarial points may lie."""

    DATA = "data"
    """In the range of the data."""
    ANY = "any"
    """Anywhere in R^d, as far as a certificate reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackSettings:
    """How to attack a run. A seed of None is replaced by a random one when the attack begins.

    radii: numbers as text, or "certified". draws: noisy copies of a point per gradient; of the greedy attack, moves
    tried per step. n: fresh samples that check each point found; where nothing is sampled, the number of evaluations,
    and alpha is 0. looks: the most checks per point; while a certificate is neither confirmed nor contradicted, each
    one takes ten times as many new samples as the one before. alpha: the probability that any check, over all inputs,
    radii and looks, reports a change that is none.
    """

    radii: tuple[str, ...]
    method: str = AttackMethod.AUTO.value
    objective: str = AttackObjective.SOFT_VOTE.value
    gradient: str = GradientSource.AUTO.value
    steps: int = 20
    step_size: float | None = None
    draws: int = 100
    restarts: int = 1
    n: int = 10_000
    looks: int = 3
    bounds: str = AttackBounds.DATA.value
    alpha: float = 0.001
    skip: int = 1
    max_inputs: int | None = None
    seed: int | None = None

    def check(self) -> None:
        """Raise an InputError for invalid settings, before anything slow is loaded."""
        if not self.radii:
            raise InputError("no radius was given: use --radius 0.25,0.5 or --radius certified")
        for text in self.radii:
            self.limit(text, certified=0.0)
        for option, value, choices in (
            ("method", self.method, AttackMethod),
            ("objective", self.objective, AttackObjective),
            ("gradient", self.gradient, GradientSource),
            ("bounds", self.bounds, AttackBounds),
        ):
            if value not in list(choices):
                raise InputError(f"--{option} {value!r} is unknown: use {', '.join(choices)}")
        for option, count in (
            ("steps", self.steps),
            ("draws", self.draws),
            ("restarts", self.restarts),
            ("looks", self.looks),
            ("skip", self.skip),
            ("max", self.max_inputs),
        ):
            if count is not None and count < 1:
                raise InputError(f"--{option} {count} must be at least 1")
        if self.step_size is not None and not (math.isfinite(self.step_size) and self.step_size > 0):
            raise InputError(f"--step-size {self.step_size} must be a positive finite number, in units of the input")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise InputError(f"--seed {self.seed} is outside 0 … 2^64-1")
        check_alpha(self.alpha)

    @property
    def certain(self) -> bool:
        """Whether points are judged without samples."""
        return self.alpha == 0

    def samples(self, look: int) -> int:
        """Fresh samples of one look. Looks count from 0."""
        return self.n * int(10**look)

    def share(self, look: int) -> float:
        """The part of a point's error probability that one look spends: a half for the first, equal parts for the rest.

        The parts add up to 1, so all looks together keep to it by the union bound.
        """
        if self.looks == 1:
            return 1.0
        return 0.5 if look == 0 else 0.5 / (self.looks - 1)

    @staticmethod
    def limit(text: str, *, certified: float) -> float:
        """The largest distance of a point. text: a radius as given. certified: the certified radius of the input."""
        if text == CERTIFIED:
            return certified * _JUST_INSIDE
        try:
            radius = float(text)
        except ValueError:
            radius = math.nan
        if not (math.isfinite(radius) and radius >= 0):
            raise InputError(f"--radius {text!r} is neither a number of at least 0 nor the word {CERTIFIED}")
        return radius

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "radii": list(self.radii)}


_JUST_INSIDE = 1.0 - 1e-9
"""A certificate covers points closer than its radius. Distances have a relative error of 1e-12."""


def parse_attack_radii(given: list[str]) -> tuple[str, ...]:
    """Split options at commas and drop duplicates."""
    texts = [part.strip() for text in given for part in text.split(",")]
    return tuple(dict.fromkeys(text for text in texts if text))
