"""What every search for a noise level maximises: the radius estimated from mean scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import ndtri

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, IntArray, Noise
from smoothcert.sigma.search_samples import NoisyScores

USUAL_CLAMP = 1e-4
"""About the chance of another class that 100000 unanimous votes cannot rule out (7e-5 at α = 0.001).

A larger clamp hides how safe a class is at small σ, and drives σ up until that shows: with the paper's 0.02 the radii
on MNIST come out smaller. For certificates over 10000 votes 5e-4 is as good.
"""
USUAL_CHECK = 100
"""Draws that notice a search gone astray; too few to tell levels apart whose radii differ by a few percent."""
MOST_EVALUATIONS = 10**9
"""More evaluations of the model for one input than any search needs."""


def estimated_radii(
    scores: FloatArray, labels: IntArray, sigmas: FloatArray, *, noise: Noise, clamp: float, two_class: bool
) -> FloatArray:
    """σ/2 (Φ⁻¹(E_A) - Φ⁻¹(E_B)) for Gaussian noise, λ (E_A - E_B) for uniform noise.

    E_A is the mean score of the label. E_B is that of all others together, 1 - E_A, as in the certificates that bound
    one probability; with two_class it is the largest of any other class, as in those that bound two, and in the paper.
    For Gaussian noise both are moved into [clamp, 1-clamp] first. An estimate, negative where the opponent leads, and
    never part of a certificate.

    scores: (k, s, classes), labels: (k,), sigmas: (k, s). Returns (k, s).
    """
    place = np.broadcast_to(labels[:, np.newaxis, np.newaxis], (*sigmas.shape, 1))
    own = np.take_along_axis(scores, place, axis=2)[..., 0]
    others = scores.copy()
    np.put_along_axis(others, place, -np.inf, axis=2)
    best: FloatArray = others.max(axis=2) if two_class else 1.0 - own
    if noise is Noise.UNIFORM:
        margin: FloatArray = own - best
        return sigmas * margin
    bounds = (clamp, 1.0 - clamp)
    gap: FloatArray = ndtri(np.clip(own, *bounds)) - ndtri(np.clip(best, *bounds))
    return 0.5 * sigmas * gap


@dataclass(frozen=True, slots=True)
class Problem:
    """m inputs, the class (m,) each shall keep, and the range in which its noise level is looked for.

    two_class: which opponent the class has, see `estimated_radii`.
    """

    samples: NoisyScores
    labels: IntArray
    start: float
    least: float
    most: float
    noise: Noise
    two_class: bool

    def radii(self, chosen: IntArray, sigmas: FloatArray, *, noises: int, clamp: float) -> FloatArray:
        """Estimated radii of input chosen[i] at the levels sigmas[i], (k, s), over fresh noise shared by the levels."""
        scores = self.samples.mean_scores(chosen, sigmas, noises=noises)
        return estimated_radii(
            scores, self.labels[chosen], sigmas, noise=self.noise, clamp=clamp, two_class=self.two_class
        )

    def every(self) -> IntArray:
        """The number of each input."""
        return np.arange(len(self.labels))


class Search(Protocol):
    """Settings of a search, a dataclass of numbers.

    name: the word on the command line. needs_scores: it makes no sense with votes. check: fresh draws of noise for the
    comparison of what it found with the start; 0: there is none.
    """

    name: ClassVar[str]
    needs_scores: ClassVar[bool]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def clamp(self) -> float: ...

    @property
    def check(self) -> int: ...

    def find(self, problem: Problem) -> tuple[FloatArray, FloatArray]:
        """The level (m,) that the search prefers for each input, and the radius (m,) it estimated there."""


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Refuses what is not a whole number of evaluations."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_EVALUATIONS:
        raise InputError(f"{name}={value} of a search for sigma must be a whole number, at least {least}")


def check_clamp(value: float) -> None:
    """Refuses a clamp that leaves no room between itself and 1 minus itself."""
    if not (isinstance(value, (int, float)) and 0.0 < value < 0.5):
        raise InputError(
            f"clamp={value} of a search for sigma must lie between 0 and 0.5: mean scores are moved into "
            "[clamp, 1-clamp] before the normal quantile is taken (1e-4 is usual)"
        )
