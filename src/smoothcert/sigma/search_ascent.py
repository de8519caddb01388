"""Gradient ascent on the estimated radius (Alfarra et al., "Data dependent randomized smoothing", Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, Noise
from smoothcert.settings_text import written
from smoothcert.sigma.search_problem import (
    USUAL_CHECK,
    USUAL_CLAMP,
    Problem,
    check_clamp,
    check_count,
)

STEP_ASIDE = 0.01
"""Half the distance of the two levels of a central difference, relative to the level between them.

Scores computed from float32 logits are off by about 1e-6, which a difference magnifies to 1e-6/(2·0.01) = 5e-5 of a
derivative that is of order 1; leaving out the third derivative costs about 0.01²/6 = 2e-5 of it. A smaller distance
would make the first error worse than the second, a larger one the second worse than the first; both are far below the
spread of a gradient over few draws of noise.
"""

RATE = 0.08
"""How far a step moves σ where nothing holds it back (all mean scores beyond the clamp), relative to the start."""


@dataclass(frozen=True, slots=True)
class Ascent:
    """`steps` steps σ ← σ + step · dR̂/dσ from the start, each with `noises` fresh draws of noise, σ kept in its range.

    The noise is reparameterised as σ·z, and the derivative with respect to the one number σ is the central difference
    of R̂ at σ(1±0.01) with the same z. That takes two forward passes, the price of one forward and one backward pass; it
    works for every model that gives scores, whatever computes it, and a σ inherits from the scores that it does not
    depend on what else is in a batch, on the number of workers or on a resumed run. Where both mean scores are beyond
    the clamp only the factor σ/2 pulls, upwards, as in the paper.

    step: how far σ moves for a derivative of 1, in the units of σ; None: a step moves σ by RATE · start where
    nothing holds it back. clamp: see `estimated_radii`.
    check: draws of noise for the last comparison, with the start; 0: the end point is taken as it is. The paper has
    steps=900, noises=1, step=1e-4, clamp=0.02, check=0.
    """

    steps: int = 40
    noises: int = 32
    step: float | None = None
    clamp: float = USUAL_CLAMP
    check: int = USUAL_CHECK

    name: ClassVar[str] = "ascent"
    needs_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("noises", self.noises)
        check_count("check", self.check, least=0)
        check_clamp(self.clamp)
        if self.step is not None and not (math.isfinite(self.step) and self.step > 0.0):
            raise InputError(f"step={self.step} of the ascent must be a positive number, in the units of sigma")

    def __str__(self) -> str:
        return written(self)

    def find(self, problem: Problem) -> tuple[FloatArray, FloatArray]:
        """Where the ascent ends, and the mean of the last two radii beside it."""
        step = RATE * problem.start / self._steepest(problem.noise) if self.step is None else self.step
        every = problem.every()
        sigmas = np.full(len(every), problem.start)
        radii = np.zeros((len(every), 2))
        for _ in range(self.steps):
            beside = sigmas[:, np.newaxis] * [1.0 - STEP_ASIDE, 1.0 + STEP_ASIDE]
            radii = problem.radii(every, beside, noises=self.noises, clamp=self.clamp)
            slope = (radii[:, 1] - radii[:, 0]) / (2.0 * STEP_ASIDE * sigmas)
            sigmas = np.clip(sigmas + step * slope, problem.least, problem.most)
        return sigmas, radii.mean(axis=1)

    def _steepest(self, noise: Noise) -> float:
        """The derivative of the estimated radius where the scores of the class are beyond the clamp."""
        return 1.0 if noise is Noise.UNIFORM else float(ndtri(1.0 - self.clamp))
