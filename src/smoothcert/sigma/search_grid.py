"""The best of a grid of noise levels (Alfarra et al., appendix B)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smoothcert.records.tallies import FloatArray
from smoothcert.settings_text import format_settings
from smoothcert.sigma.search_problem import (
    USUAL_CHECK,
    USUAL_CLAMP,
    Problem,
    check_clamp,
    check_count,
)


@dataclass(frozen=True, slots=True)
class GridSearch:
    """The level of largest estimated radius among `points` levels in equal ratios from the least to the most.

    The start is one of them. All are tried with the same `noises` draws of noise, so that they differ by the level
    alone. Of levels with equal radii the lowest is taken. The paper's grid of 200 levels with one draw is in equal
    steps over (0, 1]; equal ratios spend as many levels between σ/2 and σ as between σ and 2σ.

    clamp: see `estimated_radii`. check: draws of noise for the last comparison, with the start; 0: none.
    """

    points: int = 33
    noises: int = 64
    clamp: float = USUAL_CLAMP
    check: int = USUAL_CHECK

    name: ClassVar[str] = "grid"
    needs_scores: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("points", self.points, least=2)
        check_count("noises", self.noises)
        check_count("check", self.check, least=0)
        check_clamp(self.clamp)

    def __str__(self) -> str:
        return format_settings(self)

    def find(self, problem: Problem) -> tuple[FloatArray, FloatArray]:
        levels = grid(problem, points=self.points)
        every = problem.every()
        sigmas = np.broadcast_to(levels, (len(every), len(levels)))
        radii = problem.radii(every, sigmas, noises=self.noises, clamp=self.clamp)
        best = radii.argmax(axis=1)
        return levels[best], radii[every, best]


def grid(problem: Problem, *, points: int) -> FloatArray:
    """`points` increasing levels in equal ratios over the range, the one nearest the start replaced by the start."""
    levels = np.geomspace(problem.least, problem.most, points)
    levels[np.abs(np.log(levels / problem.start)).argmin()] = problem.start
    return np.clip(levels, problem.least, problem.most)
