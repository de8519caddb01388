"""The multi-start sign search of Chen, Kong, Yu and others (2021), as Súkeník et al. describe it in appendix C.3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smoothcert.records.tallies import FloatArray, IntArray
from smoothcert.settings_text import format_settings
from smoothcert.sigma.search_problem import (
    USUAL_CHECK,
    USUAL_CLAMP,
    Problem,
    check_clamp,
    check_count,
)


@dataclass(frozen=True, slots=True)
class SignSearch:
    """From each of several random levels the variance moves on in equal steps while the estimated radius does not fall.

    Start k is the variance l·σ₀² with step s·σ₀²; l is drawn evenly from 1 … (most/σ₀)² (the authors have 1 … 16, the
    range that most = 4 σ₀ gives), s from (-1, 1), both from the stream of the input; the first start has l = 1. A walk
    also ends at the bounds, and after `moves` steps, because s may be nearly 0. Every radius is estimated over `noises`
    fresh draws. The best end of all walks is taken. Half-widths λ of uniform noise are searched in the same way.

    clamp: see `estimated_radii`. check: draws of noise for the last comparison, with the start; 0: none.
    """

    starts: int = 8
    noises: int = 80
    moves: int = 16
    clamp: float = USUAL_CLAMP
    check: int = USUAL_CHECK

    name: ClassVar[str] = "signs"
    needs_scores: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("starts", "noises", "moves"):
            check_count(name, getattr(self, name))
        check_count("check", self.check, least=0)
        check_clamp(self.clamp)

    def __str__(self) -> str:
        return format_settings(self)

    def find(self, problem: Problem) -> tuple[FloatArray, FloatArray]:
        draws = problem.samples.uniform(count=self.starts, size=2)
        largest = (problem.most / problem.start) ** 2
        levels = 1.0 + 0.5 * (draws[..., 0] + 1.0) * (largest - 1.0)
        levels[:, 0] = 1.0
        walks = _Walks(problem, levels.ravel(), noises=self.noises, clamp=self.clamp)
        for _ in range(self.moves):
            walks.move(draws[..., 1].ravel())
        radii = walks.radii.reshape(levels.shape)
        best = radii.argmax(axis=1)
        every = problem.every()
        return walks.sigmas.reshape(levels.shape)[every, best], radii[every, best]


class _Walks:
    """All walks of all inputs, those of one input side by side: variances relative to that of the start, and radii."""

    def __init__(self, problem: Problem, levels: FloatArray, *, noises: int, clamp: float) -> None:
        self._problem = problem
        self._noises, self._clamp = noises, clamp
        self._owner = np.repeat(problem.every(), len(levels) // max(1, len(problem.labels)))
        self._levels = levels
        self._going = np.arange(len(levels))
        self.radii = self._estimated(self._going, levels)

    @property
    def sigmas(self) -> FloatArray:
        return self._sigmas(self._levels)

    def move(self, steps: FloatArray) -> None:
        """One step of every walk that goes on: accepted where the radius does not fall, else the walk ends."""
        there = self._levels[self._going] + steps[self._going]
        inside = (there >= (self._problem.least / self._problem.start) ** 2) & (
            there <= (self._problem.most / self._problem.start) ** 2
        )
        going, there = self._going[inside], there[inside]
        radii = self._estimated(going, there)
        better = radii >= self.radii[going]
        self._going = going[better]
        self._levels[self._going] = there[better]
        self.radii[self._going] = radii[better]

    def _estimated(self, walks: IntArray, levels: FloatArray) -> FloatArray:
        sigmas = self._sigmas(levels)[:, np.newaxis]
        return self._problem.radii(self._owner[walks], sigmas, noises=self._noises, clamp=self._clamp)[:, 0]

    def _sigmas(self, levels: FloatArray) -> FloatArray:
        return np.clip(self._problem.start * np.sqrt(levels), self._problem.least, self._problem.most)
