"""The searches for the noise level of an input: gradient ascent, a grid, and random walks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from smoothcert.errors import InputError
from smoothcert.noise import law_of
from smoothcert.records import FloatArray, IntArray
from smoothcert.settings_text import collect_settings, format_settings, parse_settings
from smoothcert.sigma.search_problem import USUAL_CHECK, USUAL_CLAMP, Problem, check_clamp, check_count

STEP_ASIDE = 0.01
"""Half the distance of the two levels of a central difference, relative to the level between them.

Scores from float32 logits have an error of about 1e-6, which gives an error of 1e-6/(2·0.01) = 5e-5 in a derivative of
order 1. The omitted third derivative costs about 0.01²/6 = 2e-5. Both are far below the spread of a gradient over few
draws of noise. A smaller distance would increase the first error, a larger one the second.
"""
RATE = 0.08
"""How far one step moves σ, relative to the start, if all mean scores are beyond the clamp."""


@dataclass(frozen=True, slots=True)
class Ascent:
    """Gradient ascent on the estimated radius (Alfarra et al., "Data dependent randomized smoothing", Algorithm 1).

    `steps` steps σ ← σ + step · dR̂/dσ from the start, each with `noises` fresh draws of noise; σ is clipped to its
    range. The noise is σ·z, and the derivative is the central difference of R̂ at σ(1±0.01) with the same z. This costs
    two forward passes, about as much as a forward and a backward pass. It works for every model that gives scores, and
    σ does not depend on the other inputs of a batch, on the number of workers or on a resumed run. Where both mean
    scores are beyond the clamp, only the factor σ/2 acts, upwards, as in the paper.

    step: how far σ moves for a derivative of 1, in the units of σ; None: RATE · start if all mean scores are beyond the
    clamp. clamp: see `estimate_radii`. check: draws of noise for the final comparison with the start; 0: no
    comparison. The paper has steps=900, noises=1, step=1e-4, clamp=0.02, check=0.
    """

    steps: int = 40
    noises: int = 32
    step: float | None = None
    clamp: float = USUAL_CLAMP
    check: int = USUAL_CHECK

    name: ClassVar[str] = "ascent"
    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_settings(self, steps=1, noises=1)
        if self.step is not None and not (math.isfinite(self.step) and self.step > 0.0):
            raise InputError(f"step={self.step} of the ascent must be a positive number, in the units of sigma")

    def __str__(self) -> str:
        return format_settings(self)

    def find(self, problem: Problem) -> tuple[FloatArray, FloatArray]:
        """Return the final levels, and the mean of the last two radii beside them."""
        steepest = law_of(problem.noise).steepest_estimate(clamp=self.clamp)
        step = RATE * problem.start / steepest if self.step is None else self.step
        every = problem.every()
        sigmas = np.full(len(every), problem.start)
        radii = np.zeros((len(every), 2))
        for _ in range(self.steps):
            beside = sigmas[:, np.newaxis] * [1.0 - STEP_ASIDE, 1.0 + STEP_ASIDE]
            radii = problem.radii(every, beside, noises=self.noises, clamp=self.clamp)
            slope = (radii[:, 1] - radii[:, 0]) / (2.0 * STEP_ASIDE * sigmas)
            sigmas = np.clip(sigmas + step * slope, problem.least, problem.most)
        return sigmas, radii.mean(axis=1)


@dataclass(frozen=True, slots=True)
class GridSearch:
    """The level of largest estimated radius on a grid (Alfarra et al., appendix B).

    The grid has `points` levels in equal ratios from the least to the most; the start is one of them. All use the same
    `noises` draws of noise, so that they differ by the level alone. Of equal radii the lowest level is taken.
    The paper's grid has 200 levels in equal steps over (0, 1] and one draw; equal ratios spend as many levels between
    σ/2 and σ as between σ and 2σ. clamp, check: see `Ascent`.
    """

    points: int = 33
    noises: int = 64
    clamp: float = USUAL_CLAMP
    check: int = USUAL_CHECK

    name: ClassVar[str] = "grid"
    needs_scores: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_settings(self, points=2, noises=1)

    def __str__(self) -> str:
        return format_settings(self)

    def find(self, problem: Problem) -> tuple[FloatArray, FloatArray]:
        levels = np.geomspace(problem.least, problem.most, self.points)
        levels[np.abs(np.log(levels / problem.start)).argmin()] = problem.start
        levels = np.clip(levels, problem.least, problem.most)
        every = problem.every()
        sigmas = np.broadcast_to(levels, (len(every), len(levels)))
        radii = problem.radii(every, sigmas, noises=self.noises, clamp=self.clamp)
        best = radii.argmax(axis=1)
        return levels[best], radii[every, best]


@dataclass(frozen=True, slots=True)
class SignSearch:
    """The multi-start sign search of Chen, Kong, Yu and others (2021), as in Súkeník et al., appendix C.3.

    From each of several random levels the variance moves in equal steps while the estimated radius does not fall.
    Start k is the variance l·σ₀² with step s·σ₀². l is uniform in 1 … (most/σ₀)² (1 … 16 in the paper, as for
    most = 4 σ₀), s uniform in (-1, 1), both from the stream of the input; the first start has l = 1. A walk also
    ends at the bounds and after `moves` steps, because s may be close to 0. Each radius is estimated over `noises`
    fresh draws. The best end of all walks is taken. The half-width λ of uniform noise is searched in the same way.
    clamp, check: see `Ascent`.
    """

    starts: int = 8
    noises: int = 80
    moves: int = 16
    clamp: float = USUAL_CLAMP
    check: int = USUAL_CHECK

    name: ClassVar[str] = "signs"
    needs_scores: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_settings(self, starts=1, noises=1, moves=1)

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
    """All walks of all inputs, those of one input next to each other. levels: variances relative to the start's."""

    def __init__(self, problem: Problem, levels: FloatArray, *, noises: int, clamp: float) -> None:
        self._problem = problem
        self._noises, self._clamp = noises, clamp
        self._owner = np.repeat(problem.every(), len(levels) // max(1, len(problem.labels)))
        self._levels = levels
        self._moving = np.arange(len(levels))
        self.radii = self._estimate(self._moving, levels)

    @property
    def sigmas(self) -> FloatArray:
        return self._to_sigmas(self._levels)

    def move(self, steps: FloatArray) -> None:
        """Move every unfinished walk by one step. A walk whose radius would fall, or leave the bounds, ends."""
        target = self._levels[self._moving] + steps[self._moving]
        inside = (target >= (self._problem.least / self._problem.start) ** 2) & (
            target <= (self._problem.most / self._problem.start) ** 2
        )
        moving, target = self._moving[inside], target[inside]
        radii = self._estimate(moving, target)
        better = radii >= self.radii[moving]
        self._moving = moving[better]
        self._levels[self._moving] = target[better]
        self.radii[self._moving] = radii[better]

    def _estimate(self, walks: IntArray, levels: FloatArray) -> FloatArray:
        sigmas = self._to_sigmas(levels)[:, np.newaxis]
        return self._problem.radii(self._owner[walks], sigmas, noises=self._noises, clamp=self._clamp)[:, 0]

    def _to_sigmas(self, levels: FloatArray) -> FloatArray:
        return np.clip(self._problem.start * np.sqrt(levels), self._problem.least, self._problem.most)


AnySearch = Ascent | GridSearch | SignSearch
_SEARCHES: dict[str, type[AnySearch]] = {kind.name: kind for kind in (Ascent, GridSearch, SignSearch)}


def parse_search(text: str) -> AnySearch:
    """Parse a search from its name and settings: "ascent", "grid:points=200,noises=1". str() is the inverse."""
    return parse_settings(text, _SEARCHES, what="search for sigma")


def _check_settings(search: AnySearch, **least: int) -> None:
    for name, smallest in least.items():
        check_count(name, getattr(search, name), least=smallest)
    check_count("check", search.check, least=0)
    check_clamp(search.clamp)


def make_search(name: str, settings: Mapping[str, Any]) -> AnySearch:
    """A search from its name and some of its settings."""
    if name not in _SEARCHES:
        raise InputError(f"there is no search for sigma {name!r}; choose {', '.join(_SEARCHES)}")
    try:
        return _SEARCHES[name](**settings)
    except TypeError as error:
        raise InputError(f"the search {name} cannot take the settings {dict(settings)}: {error}") from error


def search_settings(search: AnySearch) -> dict[str, Any]:
    """The settings of a search that are not None, as plain JSON; `make_search` takes them back."""
    return collect_settings(search)
